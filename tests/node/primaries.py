"""Write primary networks for Railnet to chain on the node under test, and find what pods left on that node."""

import json
from pathlib import Path

from simnode.node import RESOURCE, Node

# The runtime under test reads this copy, which tests may change. The file in /etc/cni/net.d belongs to the daemon.
OURS = Path("/run/runtime-net.d/00-railnet.conflist")
PLUGINS = Path("/opt/cni/bin")
RUN = Path("/run/railnet")
_PRIMARY = Path("/run/primary.conflist")


def write_stub(name: str, script: str) -> None:
    """Write a plugin that runs this shell script into the folder of CNI_PATH."""
    (PLUGINS / name).write_text(f"#!/bin/sh\n{script}\n")
    (PLUGINS / name).chmod(0o755)


def remove_stubs() -> None:
    for path in (*PLUGINS.glob("stub*"), *Path("/run").glob("stub*"), _PRIMARY):
        path.unlink(missing_ok=True)


def primary_of(*plugins: dict[str, object], version: str = "0.4.0") -> None:
    """Make these plugins the primary network that Railnet chains."""
    write_primary(json.dumps({"cniVersion": version, "name": "stubs", "plugins": plugins}), version)


def write_primary(text: str, version: str = "0.4.0") -> None:
    _PRIMARY.write_text(text)
    point_to(str(_PRIMARY), version)


def point_to(path: str, version: str = "0.4.0") -> None:
    """Make Railnet's configuration name another primary network."""
    conflist = json.loads(OURS.read_text())
    conflist["plugins"][0]["primary"] = path
    conflist["cniVersion"] = version
    OURS.write_text(json.dumps(conflist))


def set_seconds(**seconds: float) -> None:
    """Change the time limits of requests without a daemon in Railnet's configuration."""
    conflist = json.loads(OURS.read_text())
    conflist["plugins"][0]["seconds"].update(seconds)
    OURS.write_text(json.dumps(conflist))


def left_over(node: Node) -> list[str]:
    """Return what pods left on the node, according to the kernel and the disk."""
    node.wait_for_answered_deletes()
    node.hca.settle()
    links = {path.name for path in Path("/sys/class/net").iterdir()}
    found = [f"VF netdev ibs5v{index} is missing" for index in range(node.vfs) if f"ibs5v{index}" not in links]
    found += [f"record {path.name}" for path in (RUN / "journal").iterdir()]
    found += [f"lock {path.name}" for path in (RUN / "lock").iterdir() if path.name != "recovery"]
    found += [f"address {path.name}" for path in Path("/var/lib/cni").glob("networks/*/*.*.*.*")]
    found += [f"flannel state {path.name}" for path in Path("/var/lib/cni").glob("flannel/*")]
    found += [f"link {name}" for name in node_links() if name.startswith("veth")]
    healthy = len(node.kubelet.healthy(RESOURCE))
    return found if healthy == node.vfs else [*found, f"{healthy} of {node.vfs} VFs are healthy"]


def node_links() -> list[str]:
    """Name the links of the node's own network namespace."""
    return [line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
