"""A card leaves PCI, comes back, moves or is replaced; each card keeps its rail, and a card whose rail is not certain serves no pod."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

import pytest

from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress
from simnode.hardware.pf_properties import SimulatedPf
from simnode.kubernetes.kubelet import PodIdentity
from simnode.kubernetes.runtime import CniFailed
from simnode.node import RESOURCE, Node, Pod
from simnode.preinstalled_files import CONFIGURATION
from simnode.waiting import wait_until

FIRST = SimulatedPf()
SECOND = SimulatedPf(PciAddress(0, 0x0C, 0, 0), Guid(0xB8599F0300F98F10), "ibs6")
ELSEWHERE = SimulatedPf(PciAddress(0, 0x21, 0, 0), FIRST.guid, "ibs7")
FILE = Path("/var/lib/railnet/rails.json")
RAIL_0, RAIL_1, ONLY_RAIL = "10.56.0.0/17", "10.56.128.0/17", "10.56.0.0/16"
SECONDS = 60.0


@pytest.fixture
def node() -> Iterator[Node]:
    """Provide a node with two cards of two VFs each, which serves them."""
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), (FIRST, SECOND), vfs=2) as node:
        node.install()
        node.start_daemon()
        yield node


def configure(*provisioned: SimulatedPf, **keys: Any) -> None:
    """Change node.yaml: PFs that are not on the node must not be named under `provision`."""
    document = json.loads(CONFIGURATION.read_text())
    document["provision"] = [{"pf": str(pf.address), "vfs": 2} for pf in provisioned]
    CONFIGURATION.write_text(json.dumps(document | keys))


def restart(node: Node, healthy: int) -> None:
    node.stop_daemon()
    start(node, healthy)


def start(node: Node, healthy: int) -> None:
    node.start_daemon(wait=False)
    wait_until(lambda: registered(node), SECONDS, "the daemon's registration", every=0.2)
    node.kubelet.wait_for_devices(RESOURCE, healthy, SECONDS)


def registered(node: Node) -> bool:
    return "rails" in status(node) and not any("kubelet does not watch" in one for one in status(node)["reasons"])


def status(node: Node) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "railnet", "status", "--json"], capture_output=True, check=False)
    return json.loads(done.stdout) if done.stdout else {}


def table() -> str:
    return subprocess.run(
        [sys.executable, "-m", "railnet", "status"], capture_output=True, text=True, check=False
    ).stdout


def reasons(node: Node) -> dict[str, str | None]:
    return {rail["address"]: rail["reason"] for rail in status(node)["rails"]}


def numbers(node: Node) -> dict[str, int | None]:
    return {rail["address"]: rail["rail"] for rail in status(node)["rails"]}


def prefixes(pod: Pod) -> dict[str, str]:
    """Return the prefix of each VF of a pod, by the VF's bus."""
    record = json.loads(Path(f"/run/railnet/journal/{pod.container_id}@eth0.json").read_text())
    return {one["vf"][5:7]: str(ip_interface(one["addresses"][0]).network) for one in record["attachments"]}


def run_and_remove(node: Node, vfs: int) -> dict[str, str]:
    pod = node.run_pod("train", vfs=vfs)
    found = prefixes(pod)
    node.remove_pod(pod)
    return found


def test_second_card_keeps_its_rail_when_the_first_leaves_pci_while_the_daemon_runs(node: Node) -> None:
    before = run_and_remove(node, 4)
    node.hca.pull_out(FIRST.address)
    node.kubelet.wait_for_devices(RESOURCE, 2, SECONDS)

    wait_until(lambda: "0000:03:00.1" not in {vf["vf"] for vf in status(node)["vfs"]}, SECONDS, "a look", every=0.5)

    assert before == {"03": RAIL_0, "0c": RAIL_1}
    assert run_and_remove(node, 1) == {"0c": RAIL_1}
    assert numbers(node) == {"0000:03:00.0": 0, "0000:0c:00.0": 1}
    assert "rail 0 has no card: card 0000:03:00.0" in reasons(node)["0000:03:00.0"]
    assert "rail 0 has no card" in table()
    assert status(node)["reasons"] == []  # the other rail is served


def test_second_card_keeps_its_rail_when_the_daemon_starts_without_the_first_card(node: Node) -> None:
    node.stop_daemon()
    node.hca.pull_out(FIRST.address)
    configure(SECOND)
    start(node, 2)

    assert run_and_remove(node, 1) == {"0c": RAIL_1}


def test_card_that_comes_back_has_its_old_rail(node: Node) -> None:
    node.hca.pull_out(FIRST.address)
    configure(SECOND)
    restart(node, 2)
    node.hca.plug_in(FIRST, node.fabrics[0])
    configure(FIRST, SECOND)
    restart(node, 4)

    assert run_and_remove(node, 4) == {"03": RAIL_0, "0c": RAIL_1}


def test_card_in_the_slot_of_another_card_keeps_the_rail_and_the_log_says_so(node: Node) -> None:
    node.stop_daemon()
    node.hca.pull_out(FIRST.address)
    node.hca.plug_in(SimulatedPf(guid=Guid(0xB8599F0300AAAAAA)), node.fabrics[0])
    start(node, 4)

    assert run_and_remove(node, 4) == {"03": RAIL_0, "0c": RAIL_1}
    assert (
        "was replaced, and card 0000:03:00.0 (15b3:1021, GUID b859:9f03:00aa:aaaa) keeps the rail" in node.daemon.log()
    )
    assert json.loads(FILE.read_text())["rails"][0]["guid"] == "b859:9f03:00aa:aaaa"


def test_card_in_another_slot_serves_no_pod_until_the_administrator_has_decided(node: Node) -> None:
    node.stop_daemon()
    node.hca.pull_out(FIRST.address)
    node.hca.plug_in(ELSEWHERE, node.fabrics[0])
    configure(ELSEWHERE, SECOND)
    start(node, 2)  # the VFs of the card that did not move

    rails, not_ready = reasons(node), status(node)["reasons"]
    assert run_and_remove(node, 1) == {"0c": RAIL_1}
    assert (
        "the card of rail 0 (GUID b859:9f03:00f9:8f86) has moved from 0000:03:00.0 to 0000:21:00.0"
        in rails["0000:21:00.0"]
    )
    assert rails["0000:03:00.0"] == rails["0000:21:00.0"]
    assert not_ready == [rails["0000:21:00.0"]]

    FILE.write_text(FILE.read_text().replace("0000:03:00.0", "0000:21:00.0"))  # as the reason says
    restart(node, 4)
    assert run_and_remove(node, 4) == {"21": RAIL_0, "0c": RAIL_1}


def test_new_card_gets_the_next_rail_although_it_is_the_first_on_pci(node: Node) -> None:
    node.stop_daemon()
    node.hca.plug_in(SimulatedPf(PciAddress(0, 1, 0, 0), Guid(0xB8599F0300BBBBBB), "ibs1"), node.fabrics[0])
    configure(FIRST, SECOND)
    start(node, 4)

    assert numbers(node) == {"0000:03:00.0": 0, "0000:0c:00.0": 1, "0000:01:00.0": 2}


def test_garbled_memory_numbers_nothing_and_plain_pods_run(node: Node) -> None:
    node.stop_daemon()
    whole = FILE.read_bytes()
    FILE.write_bytes(whole[:40])
    start(node, 0)

    plain = node.run_pod("plain")
    node.remove_pod(plain)
    (reason,) = status(node)["reasons"]
    after = FILE.read_bytes()
    FILE.write_bytes(whole)  # no restart: it is read again
    node.kubelet.wait_for_devices(RESOURCE, 4, SECONDS)

    assert "/var/lib/railnet/rails.json, which says which card is which rail, cannot be used" in reason
    assert after == whole[:40]
    assert run_and_remove(node, 4) == {"03": RAIL_0, "0c": RAIL_1}


def test_card_gets_no_rail_before_the_memory_can_be_written(node: Node) -> None:
    node.stop_daemon()
    FILE.unlink()
    subprocess.run(["mount", "-o", "remount,ro", FILE.parent], check=True)
    start(node, 0)
    (reason,) = status(node)["reasons"]
    subprocess.run(["mount", "-o", "remount,rw", FILE.parent], check=True)
    node.kubelet.wait_for_devices(RESOURCE, 4, SECONDS)

    assert "which card is which rail cannot be written to /var/lib/railnet/rails.json" in reason
    assert "Read-only file system" in reason
    assert run_and_remove(node, 4) == {"03": RAIL_0, "0c": RAIL_1}


def test_card_that_is_missing_at_the_first_start_is_noticed_by_ipam_rails(node: Node) -> None:
    """Take the place of another node's first rail never, also if nothing is remembered yet."""
    node.stop_daemon()
    FILE.unlink()
    node.hca.pull_out(FIRST.address)
    of_two = {"default": {"ipam": {"type": "slice", "rails": 2}}, "verbs": {"ipam": {"type": "none"}}}
    configure(SECOND, networks=of_two)
    start(node, 2)  # a pod of the network `verbs` needs no address
    identity = PodIdentity("train", "default", "uid-1")
    node.kubelet.allocate(identity, RESOURCE, 1)

    with pytest.raises(CniFailed) as failure:
        node.run_sandbox(identity)

    node.kubelet.remove(identity)
    (reason,) = status(node)["reasons"]
    assert failure.value.code == 7
    assert "ipam.rails is 2, but this node has 1 rail (0000:0c:00.0): repair a missing card" in failure.value.msg
    assert "ipam.rails is 2" in reason
    assert not FILE.exists()


def test_named_rails_are_not_remembered(node: Node) -> None:
    node.stop_daemon()
    FILE.unlink(missing_ok=True)
    configure(FIRST, SECOND, rails=[str(SECOND.address), str(FIRST.address)])
    start(node, 4)

    assert run_and_remove(node, 4) == {"0c": RAIL_0, "03": RAIL_1}
    assert not FILE.exists()
