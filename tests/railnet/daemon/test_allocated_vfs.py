"""Kubelet's two files say which pod holds which VF; a process that hangs while kubelet is looked for costs few threads."""

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from railnet.configuration import Configuration, HostConfiguration
from railnet.daemon import kubelet_folder
from railnet.daemon.allocated_vfs import AllocatedVfs
from railnet.daemon.kubelet_folder import KubeletSearch
from railnet.errors import NotReady
from railnet.kubelet.dra_manager_state_file import MOST_BYTES
from railnet.vf.pci_address import PciAddress
from tests.railnet.kubelet.dra_state import a_claim, a_data, a_file, a_state

SEARCH = "search for kubelet"
BY_DEVICE_PLUGIN, BY_CLAIM = PciAddress.parse("0000:03:00.2"), PciAddress.parse("0000:03:00.1")
UNREADABLE = {
    "half-written": a_state(a_claim())[:-40],
    "another checksum": a_state(a_claim()).replace(b"train-vf", b"train-vg"),
    "of a kubelet with the alpha API": a_file(a_data(a_claim(), apiVersion="checkpoint.dra.kubelet.k8s.io/v1alpha1")),
    "a device that is no VF": a_state(a_claim(devices=("gpu-0",))),
    "huge": bytes(MOST_BYTES + 1),
}


class Node:
    """A node on which kubelet gave one VF to a pod by the device plugin; its file of claims is what a test writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.any_recorded = False
        host = HostConfiguration(root=Path("/"), kubelet=folder, device_plugins=folder / "device-plugins")
        self.configuration = Configuration(host=host)
        (resource,) = self.configuration.resources
        entry = {"PodUID": "uid-2", "ResourceName": resource, "DeviceIDs": [str(BY_DEVICE_PLUGIN)]}
        host.device_plugins.mkdir()
        (host.device_plugins / "kubelet_internal_checkpoint").write_text(
            json.dumps({"Data": {"PodDeviceEntries": [entry]}})
        )

    def claims(self, raw: bytes) -> None:
        (self.folder / "dra_manager_state").write_bytes(raw)

    def allocated(self, offer: str = "device-plugin") -> AllocatedVfs:
        configuration = replace(self.configuration, offer=offer)
        return AllocatedVfs(configuration, KubeletSearch(configuration.host), lambda: self.any_recorded)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def both(allocated: AllocatedVfs) -> tuple[set[PciAddress], dict[PciAddress, str] | None]:
    return await allocated.vfs(), await allocated.pods()


def test_vfs_are_those_of_the_device_plugin_and_of_claims(node: Node) -> None:
    node.claims(a_state(a_claim()))

    vfs, pods = asyncio.run(both(node.allocated()))

    assert vfs == {BY_CLAIM, BY_DEVICE_PLUGIN}
    assert pods == {BY_CLAIM: "uid-1", BY_DEVICE_PLUGIN: "uid-2"}


@pytest.mark.parametrize("raw", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_file_of_claims_costs_one_warning_where_no_claim_is_recorded(
    node: Node, caplog: pytest.LogCaptureFixture, raw: bytes
) -> None:
    node.claims(raw)

    vfs, pods = asyncio.run(both(node.allocated()))

    assert (vfs, pods) == ({BY_DEVICE_PLUGIN}, {BY_DEVICE_PLUGIN: "uid-2"})
    assert len(caplog.messages) == 1
    assert "no claim is recorded on this node" in caplog.text


@pytest.mark.parametrize(("offer", "recorded"), [("dra", False), ("device-plugin", True), ("dra", True)])
@pytest.mark.parametrize("raw", list(UNREADABLE.values())[:4], ids=list(UNREADABLE)[:4])
def test_no_vf_is_known_to_be_free_while_claims_may_have_some(
    node: Node, raw: bytes, offer: str, recorded: bool
) -> None:
    node.claims(raw)
    node.any_recorded = recorded
    allocated = node.allocated(offer)

    with pytest.raises(NotReady, match="it is not known which VFs pods use"):
        asyncio.run(allocated.vfs())
    assert asyncio.run(node.allocated(offer).pods()) is None


@pytest.mark.parametrize("recorded", [True, False])
def test_absent_file_of_claims_has_none_only_where_no_claim_is_recorded(node: Node, recorded: bool) -> None:
    node.any_recorded = recorded

    told = asyncio.run(node.allocated().pods())

    assert told == (None if recorded else {BY_DEVICE_PLUGIN: "uid-2"})


def test_kubelet_is_not_looked_for_again_where_its_folder_is_known(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.claims(a_state(a_claim()))
    looks = list[object]()
    found = kubelet_folder.KubeletFolder(node.folder, "a test")
    monkeypatch.setattr(kubelet_folder, "running_kubelet", lambda *_, **__: looks.append(found) or found)
    host = replace(node.configuration.host, kubelet=None)

    async def main() -> list[object]:
        allocated = AllocatedVfs(replace(node.configuration, host=host), KubeletSearch(host), lambda: True)
        return [await allocated.pods() for _ in range(3)]

    told = asyncio.run(main())

    assert told == [{BY_CLAIM: "uid-1", BY_DEVICE_PLUGIN: "uid-2"}] * 3
    assert len(looks) == 1


def test_process_that_hangs_for_ever_costs_a_few_threads_however_often_pods_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, before = threading.Event(), set(threading.enumerate())
    monkeypatch.setattr(kubelet_folder, "running_kubelet", lambda *_, **__: answer.wait(20) and None)
    host = replace(HostConfiguration(), root=tmp_path, device_plugins=tmp_path)
    configuration = replace(Configuration(), host=host)

    async def main() -> list[object]:
        allocated = AllocatedVfs(configuration, KubeletSearch(host, seconds=0.01), lambda: True)
        return [await allocated.pods() for _ in range(20)]

    told = asyncio.run(main())
    threads = [thread for thread in threading.enumerate() if thread.name == SEARCH and thread not in before]
    answer.set()
    for thread in threads:
        thread.join(0.01)

    assert told == [None] * 20
    assert len(threads) <= 4
