"""VFs that pods have by the device plugin stay theirs on a node that offers its VFs by DRA now."""

import asyncio

import pytest

from railnet.dra.card_facts import CardReads
from railnet.dra.device_plugin_holders import DevicePluginHolders
from railnet.dra.offered_devices import OfferedDevices
from railnet.errors import NotReady
from railnet.kubelet.checkpoint import Entries
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import VfTable
from tests.deviceplugin.builders import two_rails
from tests.railnet.dra.test_card_facts import Ports
from tests.railnet.dra.test_devices import offered_by_default

VF, OTHER = PciAddress.parse("0000:03:00.1"), PciAddress.parse("0000:03:00.2")


class Kubelet:
    """Kubelet's checkpoint and the runtime's sandboxes, as a test sets them."""

    def __init__(self, entries: Entries, *pods: str) -> None:
        self.entries, self.pods, self.now, self.asked = entries, frozenset(pods), 0.0, 0
        self.failure: Exception | None = None
        self.holders = DevicePluginHolders(self._entries, self._pods, frozenset({"rdma/ib_vf"}), clock=lambda: self.now)

    async def _entries(self) -> Entries:
        return self.entries

    async def _pods(self) -> frozenset[str]:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return self.pods

    def held(self, seconds: float = 0.0) -> set[PciAddress]:
        self.now += seconds
        return set(asyncio.run(self.holders.held()))


def test_vfs_of_the_checkpoint_are_held() -> None:
    kubelet = Kubelet({"uid": {"rdma/ib_vf": {str(VF)}, "gpu/x": {str(OTHER)}}}, "uid")

    assert kubelet.held() == {VF}


def test_ids_of_another_device_plugin_are_passed_over() -> None:
    assert Kubelet({"uid": {"rdma/ib_vf": {"mlx5_0", str(VF)}}}, "uid").held() == {VF}


def test_runtime_is_not_asked_where_no_pod_has_a_vf() -> None:
    kubelet = Kubelet({"uid": {"gpu/x": {"gpu-0"}}})

    assert kubelet.held() == set()
    assert kubelet.asked == 0


def test_entry_of_a_pod_without_a_sandbox_counts_no_more_after_ten_minutes() -> None:
    kubelet = Kubelet({"gone": {"rdma/ib_vf": {str(VF)}}, "uid": {"rdma/ib_vf": {str(OTHER)}}}, "uid")

    assert kubelet.held() == {VF, OTHER}
    assert kubelet.held(599.0) == {VF, OTHER}
    assert kubelet.held(1.0) == {OTHER}


def test_pod_that_gets_its_sandbox_late_keeps_its_vf() -> None:
    kubelet = Kubelet({"uid": {"rdma/ib_vf": {str(VF)}}})
    kubelet.held()
    kubelet.pods = frozenset({"uid"})
    kubelet.held(599.0)
    kubelet.pods = frozenset()

    assert kubelet.held(1.0) == {VF}


@pytest.mark.parametrize("failure", [NotReady("no answer"), FileNotFoundError("no socket")])
def test_runtime_that_does_not_answer_ends_no_entry(failure: Exception) -> None:
    kubelet = Kubelet({"uid": {"rdma/ib_vf": {str(VF)}}})
    kubelet.held()
    kubelet.failure = failure

    assert kubelet.held(700.0) == {VF}


def test_held_vfs_are_not_among_the_offered_devices() -> None:
    table, kubelet = VfTable(two_rails()), Kubelet({"uid": {"rdma/ib_vf": {str(VF)}}}, "uid")
    offered = OfferedDevices(table, lambda: offered_by_default(table), CardReads(Ports(), dict), kubelet.holders)
    devices = asyncio.run(offered.now())

    assert [str(device.vf) for device in devices] == ["0000:03:00.2", "0000:83:00.1", "0000:83:00.2"]
    assert dict(devices[0].attributes)["resource.kubernetes.io/pcieRoot"] == "pci0000:03"
