"""The capabilities of the manifest are enough, and each is needed. The CNI folders belong to another user here."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from simnode.kubernetes.runtime import CniFailed
from simnode.node import RESOURCE, Node
from simnode.preinstalled_files import CONFIGURATION
from simnode.waiting import wait_until

MANIFEST = Path(__file__).resolve().parents[2] / "daemonset/daemonset.yaml"
_POD = yaml.safe_load(MANIFEST.read_text())["spec"]["template"]["spec"]
CAPABILITIES = {
    container["name"]: tuple(container["securityContext"]["capabilities"]["add"])
    for container in (*_POD["initContainers"], *_POD["containers"])
}
FOREIGN = 1000
_ENOUGH_SECONDS, _TOO_FEW_SECONDS = (
    90.0,
    15.0,
)  # with all capabilities, and with too few: a sweep runs every ten seconds
LEASES = Path("/var/lib/cni/networks/railnet-default")
LOG = Path("/run/limited.log")
OLD = Path("/var/lib/cni/networks/cbr0/10.244.3.99"), Path("/var/lib/cni/flannel/0ddba11")
DELEGATE = {
    "name": "cbr0",
    "type": "bridge",
    "cniVersion": "0.3.1",
    "ipam": {"type": "host-local", "subnet": "10.244.3.0/24"},
}
IPAM = {"type": "host-local", "ranges": [[{"subnet": "10.61.0.0/29"}]]}


@pytest.fixture
def node() -> Iterator[Node]:
    """Provide a node whose daemon reaches the host as the DaemonSet's container does: at the root of process 1."""
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), vfs=1) as node:
        document = json.loads(CONFIGURATION.read_text())
        document["host"] = {"root": "/proc/1/root"}
        document["networks"] = {"default": {"ipam": IPAM}}
        CONFIGURATION.write_text(json.dumps(document))
        for folder in ("/opt/cni/bin", "/etc/cni/net.d"):
            os.chown(folder, FOREIGN, FOREIGN)
            os.chmod(folder, 0o755)  # noqa: PTH101, S103 - the mode of runtimes
        yield node


def limited(capabilities: tuple[str, ...], command: str) -> list[str]:
    return [*bounded(capabilities), sys.executable, "-m", "railnet", command, "--config", str(CONFIGURATION)]


def bounded(capabilities: tuple[str, ...]) -> list[str]:
    """Return a command prefix that runs a program with only these capabilities, for good."""
    names = ",".join(["-all", *(f"+{name.lower()}" for name in capabilities)])
    return ["setpriv", f"--bounding-set={names}", "--inh-caps=-all"]


def installs(capabilities: tuple[str, ...]) -> bool:
    done = subprocess.run(limited(capabilities, "install"), capture_output=True, timeout=60, check=False)
    return done.returncode == 0


def serves(node: Node, capabilities: tuple[str, ...], seconds: float, swept: float = _TOO_FEW_SECONDS) -> bool:
    """Return whether a daemon with these capabilities attaches a pod's rail, and takes all back from a pod without a DEL.

    It must also take back, by flannel's own DEL, what a pod from before the boot left of the primary network.
    """
    leave_behind()
    with LOG.open("ab") as output:
        process = subprocess.Popen(limited(capabilities, "node"), stdout=output, stderr=output)
    try:
        node.kubelet.wait_for_devices(RESOURCE, node.vfs, seconds)
        node.remove_pod(node.run_pod("train", vfs=1))
        node.destroy_netns(node.run_pod("lost", vfs=1))
        wait_until(lambda: not list(LEASES.glob("*.*.*.*")), swept, "the return of the address")
        wait_until(lambda: not any(path.exists() for path in OLD), swept, "the removal of what is older than the boot")
    except (TimeoutError, CniFailed):
        return False
    else:
        return True
    finally:
        process.terminate()
        process.wait(60)


def leave_behind() -> None:
    """Write the state that flannel and host-local keep of a pod from before the machine's last start."""
    for path, text in zip(OLD, ("0ddba11\r\neth0", json.dumps(DELEGATE)), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1, 1))


def without(container: str, capability: str) -> tuple[str, ...]:
    return tuple(name for name in CAPABILITIES[container] if name != capability)


def test_capabilities_of_the_manifest_are_enough(node: Node) -> None:
    assert installs(CAPABILITIES["install"])
    assert serves(node, CAPABILITIES["railnet"], _ENOUGH_SECONDS, _ENOUGH_SECONDS)
    assert "DEL of container 0ddba11 failed" not in LOG.read_text()


@pytest.mark.parametrize("capability", CAPABILITIES["install"])
def test_installation_needs_each_of_its_capabilities(node: Node, capability: str) -> None:
    assert not installs(without("install", capability))


def test_announcing_needs_net_raw() -> None:
    """The daemon's test cannot show it: simulated links have no ARP, so nothing is announced on them."""
    allowed = [
        subprocess.run(
            [
                *bounded(capabilities),
                sys.executable,
                "-c",
                "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)",
            ],
            capture_output=True,
            check=False,
        ).returncode
        == 0
        for capabilities in (CAPABILITIES["railnet"], without("railnet", "NET_RAW"))
    ]

    assert allowed == [True, False]


@pytest.mark.parametrize("capability", [name for name in CAPABILITIES["railnet"] if name != "NET_RAW"])
def test_daemon_needs_each_of_its_capabilities(node: Node, capability: str) -> None:
    assert installs(CAPABILITIES["install"])

    assert not serves(node, without("railnet", capability), 6)
