"""A card that reports nonsense, or is gone, costs itself alone: the other card is offered, and its pods start and end."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress
from simnode.hardware.pf_properties import SimulatedPf
from simnode.node import RESOURCE, Node
from simnode.preinstalled_files import CONFIGURATION
from tests.waiting import until

GOOD, BAD = SimulatedPf(), SimulatedPf(PciAddress(0, 0x0C, 0, 0), Guid(0xB8599F0300F98F10), "ibs6")
DEVICES = Path("/sys/bus/pci/devices")
BAD_VF, OTHER_VF = "0000:0c:00.1", "0000:0c:00.2"
UNRELATED = DEVICES / "0000:65:00.0"
PATIENCE_SECONDS = 90.0

# file of the bad card → how many of the node's four VFs stay healthy
VALUES = [
    (f"{BAD_VF}/class", "", 3),
    (f"{BAD_VF}/vendor", "nonsense", 3),
    (f"{BAD_VF}/net/*/mtu", "", 3),
    (f"{BAD_VF}/net/*/ifindex", "0x", 3),
    (f"{BAD_VF}/infiniband/*/node_guid", "", 3),
    (f"{BAD_VF}/infiniband_verbs/*/dev", "231", 3),
    (f"{BAD.address}/sriov_totalvfs", "", 2),
    (f"{BAD.address}/numa_node", "none", 2),
    (f"{BAD.address}/class", "", 2),
    (f"{BAD.address}/infiniband/*/node_guid", "0", 2),
    (f"{UNRELATED.name}/class", "", 4),
]


@pytest.fixture(scope="module")
def two_cards() -> Iterator[Node]:
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), (GOOD, BAD), vfs=2) as node:
        UNRELATED.mkdir()
        (UNRELATED / "class").write_text("0x010802\n")
        node.install()
        node.start_daemon()
        yield node


def status() -> dict[str, object]:
    command = [sys.executable, "-m", "railnet", "status", "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout)


def reasons() -> dict[str, str]:
    return {vf["vf"]: vf["reason"] for vf in status()["vfs"] if vf["reason"] is not None}


def a_pod_of_the_good_card_runs(node: Node) -> bool:
    node.kubelet.wait_for_devices(RESOURCE, len(node.kubelet.healthy(RESOURCE)), PATIENCE_SECONDS)
    pods = [node.run_pod(f"train{number}", vfs=1) for number in range(2)]
    for pod in pods:
        node.remove_pod(pod)
    return all(pod.device_ids for pod in pods)


@pytest.mark.parametrize(("pattern", "value", "healthy"), VALUES, ids=[pattern for pattern, _, _ in VALUES])
def test_start_with_a_bad_value_serves_all_but_its_function(
    two_cards: Node, pattern: str, value: str, healthy: int
) -> None:
    two_cards.stop_daemon()
    (file,) = DEVICES.glob(pattern)
    good = file.read_text()
    file.write_text(f"{value}\n")
    try:
        two_cards.start_daemon(wait=False)
        two_cards.kubelet.wait_for_devices(RESOURCE, healthy, PATIENCE_SECONDS)
        found = reasons()
        ran = a_pod_of_the_good_card_runs(two_cards)
    finally:
        file.write_text(good)
        two_cards.stop_daemon()
        two_cards.start_daemon()

    expected = {4: set(), 3: {BAD_VF}, 2: {BAD_VF, OTHER_VF}}[healthy]
    assert found.keys() == expected
    assert all(f"{file.relative_to(DEVICES)}: " in reason for reason in found.values())
    assert ran


def test_bad_values_come_while_a_pod_has_the_vf_and_the_pod_keeps_it(two_cards: Node) -> None:
    pods = [two_cards.run_pod(f"train{number}", vfs=1) for number in range(4)]
    (class_,) = DEVICES.glob(f"{BAD_VF}/class")
    (guid,) = DEVICES.glob(f"{OTHER_VF}/infiniband/*/node_guid")
    kept = {file: file.read_text() for file in (class_, guid, UNRELATED / "class")}
    for file in kept:
        file.write_text("\n")
    try:
        until(lambda: OTHER_VF in reasons(), PATIENCE_SECONDS, "the VF with the bad GUID is unhealthy")
        two_cards.stop_daemon()  # the next start reads the journal's records while the values are bad
        two_cards.start_daemon(wait=False)
        two_cards.kubelet.wait_for_devices(RESOURCE, 2, PATIENCE_SECONDS)
        sandboxes = {one["id"] for one in status()["sandboxes"]}
        for pod in pods:
            two_cards.remove_pod(pod)
    finally:
        for file, text in kept.items():
            file.write_text(text)
    two_cards.kubelet.wait_for_devices(RESOURCE, 4, PATIENCE_SECONDS)

    assert sandboxes == {pod.container_id for pod in pods}
    assert status()["sandboxes"] == []


def test_provisioned_pf_that_is_gone_is_named_and_the_other_is_offered(two_cards: Node) -> None:
    two_cards.stop_daemon()
    text = CONFIGURATION.read_text()
    document = yaml.safe_load(text)
    document["provision"].append({"pf": "0000:99:00.0", "vfs": 2})
    CONFIGURATION.write_text(yaml.safe_dump(document))
    try:
        two_cards.start_daemon()
        found = status()["reasons"]
        ran = a_pod_of_the_good_card_runs(two_cards)
    finally:
        CONFIGURATION.write_text(text)
        two_cards.stop_daemon()
        two_cards.start_daemon()

    assert any("this node has no PF 0000:99:00.0" in reason for reason in found)
    assert ran


def test_pf_with_fewer_vfs_than_are_configured_costs_itself_alone(two_cards: Node) -> None:
    two_cards.stop_daemon()
    text = CONFIGURATION.read_text()
    document = yaml.safe_load(text)
    for entry in document["provision"]:
        if entry["pf"] == str(BAD.address):
            entry["vfs"] = BAD.totalvfs + 1
    CONFIGURATION.write_text(yaml.safe_dump(document))
    try:
        two_cards.start_daemon(wait=False)
        two_cards.kubelet.wait_for_devices(RESOURCE, 2, PATIENCE_SECONDS)
        found = reasons()
        ran = a_pod_of_the_good_card_runs(two_cards)
    finally:
        CONFIGURATION.write_text(text)
        two_cards.stop_daemon()
        two_cards.start_daemon()

    assert found.keys() == {BAD_VF, OTHER_VF}
    assert all(f"at most {BAD.totalvfs} VFs" in reason for reason in found.values())
    assert ran
