"""`railnet plan` of what real daemons report: nodes with the proposed configuration give their pods all rails."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from railnet.kernel.waiting import block_until
from railnet.plan.cluster_reading import Reading
from railnet.plan.node_facts import KnownNode, SeenNode, node_of
from railnet.plan.planning import plan
from railnet.plan.running_configuration import running
from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress
from simnode.hardware.pf_properties import Model, SimulatedPf
from simnode.node import RESOURCE, Node
from simnode.preinstalled_files import CONFIGURATION

FIRST = SimulatedPf()
SECOND = SimulatedPf(PciAddress(0, 0x83, 0, 0), Guid(0xB8599F0300F98F10), "ibs6", numa_node=1)
STORAGE = SimulatedPf(PciAddress(0, 0x0B, 0, 0), Guid(0xB8599F0300F98F20), "ibs7", model=Model(0x101B, "MT4123"))
ADDRESSES = [str(FIRST.address), str(SECOND.address)]
SECONDS = 60.0


@contextmanager
def node_with(pfs: tuple[SimulatedPf, ...], keys: dict[str, Any]) -> Iterator[Node]:
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), pfs, vfs=2) as node:
        configure(keys)
        node.install()
        node.start_daemon(wait=False)
        yield node


def configure(keys: dict[str, Any]) -> None:
    """Write node.yaml: what each simulated node needs, without VFs and networks, and these keys."""
    given = json.loads(CONFIGURATION.read_text())
    own = {key: value for key, value in given.items() if key not in {"provision", "rails", "networks"}}
    CONFIGURATION.write_text(json.dumps(own | keys))


def status() -> dict[str, Any]:
    """Return the report of the daemon, as soon as it answers."""
    told: dict[str, Any] = json.loads(block_until(_status, SECONDS, 0.1))
    return told


def _status() -> bytes:
    command = [sys.executable, "-m", "railnet", "status", "--json"]
    return subprocess.run(command, capture_output=True, check=False).stdout


def seen(name: str, report: dict[str, Any], group: str = "") -> SeenNode:
    labels = {"railnet.io/node-group": group} if group else {}
    return node_of(KnownNode(name, labels, 2, group), report)


def rails_of_a_pod(node: Node) -> dict[str, tuple[int, str]]:
    """Run a pod with two VFs; return the rail and the address of each of its interfaces."""
    node.kubelet.wait_for_devices(RESOURCE, 4, SECONDS)
    pod = node.run_pod("train", vfs=2)
    (sandbox,) = status()["sandboxes"]
    node.remove_pod(pod)
    return {rail["ifname"]: (rail["rail"], rail["addresses"][0]) for rail in sandbox["rails"]}


def test_two_kinds_of_nodes_give_pods_all_rails_by_what_was_planned() -> None:
    with node_with((FIRST, SECOND), {}):
        plain = status()
    with node_with((FIRST, STORAGE, SECOND), {}) as node:
        with_storage = status()
        proposal = plan(Reading((seen("a", plain), seen("b", with_storage)), (), running({})))
        common = proposal.values["node"]["configuration"]
        by_group = {group["name"]: group["configuration"] | common for group in proposal.values["node"]["groups"]}
        first, second = by_group
        node.stop_daemon()
        configure(by_group[second])
        node.start_daemon(wait=False)
        pods = [rails_of_a_pod(node)]
        told, same = status(), {name: json.dumps(keys) for name, keys in {**by_group, "": common}.items()}
        again = plan(Reading((seen("a", plain, first), seen("b", told, second)), (), running(same)))
    with node_with((FIRST, SECOND), by_group[first]) as node:
        pods.append(rails_of_a_pod(node))
        reasons = status()["reasons"]

    assert [(pf["address"], pf["model"], pf["rate"], pf["pkeys"], pf["rail"]) for pf in with_storage["pfs"]] == [
        ("0000:03:00.0", "15b3:1021", "400", ["0xffff"], 0),
        ("0000:0b:00.0", "15b3:101b", "400", ["0xffff"], 1),
        ("0000:83:00.0", "15b3:1021", "400", ["0xffff"], 2),
    ]
    provision = [{"select": {"pfDevice": ["1021"]}, "vfs": 2}]
    assert [{key: keys.get(key) for key in ("rails", "provision")} for keys in by_group.values()] == [
        {"rails": "auto", "provision": provision},
        {"rails": ADDRESSES, "provision": provision},
    ]
    for rails in pods:
        assert [rail for rail, _ in rails.values()] == [0, 1]
        assert [address.partition("/")[2] for _, address in rails.values()] == ["17", "17"]
    assert [(pf["address"], pf["numvfs"]) for pf in told["pfs"]] == [
        ("0000:03:00.0", 2),
        ("0000:0b:00.0", 0),
        ("0000:83:00.0", 2),
    ]
    assert (told["reasons"], reasons) == ([], [])
    assert again.values == proposal.values
