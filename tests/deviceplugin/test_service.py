"""The device plugin API over a real socket, called as kubelet does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from deviceplugin import service
from deviceplugin.pool_selection import DEFAULT
from deviceplugin.service import PoolService
from railnet.errors import NotReady
from railnet.kernel.threads.file_reads import read_in_time
from railnet.kubelet.api import deviceplugin_pb2 as api
from railnet.kubelet.api import deviceplugin_pb2_grpc as grpc_api
from railnet.kubelet.checkpoint_file import CheckpointReads
from railnet.vf.inventory import Inventory
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import Owner, VfTable
from tests.deviceplugin.builders import DOWN, an_rdma_device, two_rails
from tests.deviceplugin.fake_kubelet import WAIT_SECONDS, Dialled, Kubelet, dial

RAIL = "rdma/ib_vf"
VF = "0000:03:00.1"
OWNER = Owner("c0ffee", "eth0", "uid-1")
ALL_HEALTHY = dict.fromkeys(["0000:03:00.1", "0000:03:00.2", "0000:83:00.1", "0000:83:00.2"], "Healthy")


class Node:
    """One pool's service, with a kubelet, a VF table, attachments and a socket."""

    def __init__(self, folder: Path, *, lists: bool = True) -> None:
        self.kubelet = Kubelet(folder)
        self.table = VfTable(two_rails())
        self.attached: dict[PciAddress, Owner] = {}
        self.node_reason: str | None = None
        self.on_host: set[str] = set()
        self.asked: list[set[str]] = []
        self.runtime_fails: Exception | None = None
        self.claimed: dict[PciAddress, str] = {}
        self.lists = lists
        self.socket = folder / "plugin.sock"
        self.service = PoolService(
            DEFAULT[0],
            DEFAULT,
            self.table,
            self.attached.get,
            CheckpointReads(folder / "device-plugins", read_in_time),
            lambda: self.node_reason,
            on_host_network=self.pods_on_host_network,
            claimed=lambda: self.claimed,
            lists=lists,
        )

    def claim(self, *vfs: str) -> None:
        self.claimed = {PciAddress.parse(vf): "claim ml/train has it" for vf in vfs}
        self.service.changed()

    async def pods_on_host_network(self, pod_uids: Collection[str]) -> frozenset[str]:
        self.asked.append(set(pod_uids))
        if self.runtime_fails:
            raise self.runtime_fails
        return frozenset(self.on_host.intersection(pod_uids))

    def attach(self, owner: Owner = OWNER) -> None:
        self.attached[PciAddress.parse(VF)] = owner

    def second_rail_loses_its_link(self) -> None:
        first, second = self.table.inventory.pfs
        self.table.refresh(Inventory((first, replace(second, rdma=an_rdma_device(0, DOWN)))))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[grpc.aio.Server]:
        server = grpc.aio.server()
        grpc_api.add_DevicePluginServicer_to_server(self.service, server)
        server.add_insecure_port(f"unix:{self.socket}")
        await server.start()
        try:
            yield server
        finally:
            await server.stop(grace=None)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def on(node: Node, act: Callable[[Dialled], Awaitable[None]]) -> None:
    """Run `act` with a connection to the node's service."""

    async def main() -> None:
        async with node.serving(), dial(node.socket) as dialled:
            await act(dialled)

    asyncio.run(main())


async def streams_are(node: Node, count: int) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while node.service.streams != count:  # noqa: ASYNC110 (the service has no event for it)
            await asyncio.sleep(0.01)


def test_options_ask_for_pre_start_and_preferred_allocation(node: Node) -> None:
    async def act(kubelet: Dialled) -> None:
        options = await kubelet.plugin.GetDevicePluginOptions(api.Empty())

        assert options == api.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)

    on(node, act)


@pytest.mark.parametrize(("lists", "vfs"), [(False, ()), (True, (VF,)), (False, (VF,))])
def test_pre_start_is_not_asked_for_while_pods_may_have_vfs_by_claims(
    tmp_path: Path, lists: bool, vfs: tuple[str, ...]
) -> None:
    node = Node(tmp_path, lists=lists)
    node.claim(*vfs)

    async def act(kubelet: Dialled) -> None:
        assert not (await kubelet.plugin.GetDevicePluginOptions(api.Empty())).pre_start_required

    on(node, act)


def test_options_are_outdated_after_the_end_of_the_last_claim(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.claim(VF)
    seen = [node.service.outdated]

    async def act(kubelet: Dialled) -> None:
        await kubelet.plugin.GetDevicePluginOptions(api.Empty())
        seen.append(node.service.outdated)
        node.claim()
        seen.append(node.service.outdated)
        assert (await kubelet.plugin.GetDevicePluginOptions(api.Empty())).pre_start_required
        seen.append(node.service.outdated)

    on(node, act)

    assert seen == [False, False, True, False]


def test_preferred_allocation_is_answered_for_each_container(node: Node) -> None:
    async def act(kubelet: Dialled) -> None:
        everything = [VF, "0000:03:00.2", "0000:83:00.1", "0000:83:00.2"]

        preferred = await kubelet.preferred((everything, [], 2), (everything, ["0000:83:00.2"], 2), (everything, [], 1))

        assert preferred == [[VF, "0000:83:00.1"], [VF, "0000:83:00.2"], [VF]]

    on(node, act)


def test_list_and_watch_sends_all_devices_first(node: Node) -> None:
    async def act(kubelet: Dialled) -> None:
        assert await kubelet.watch().next() == ALL_HEALTHY

    on(node, act)


def test_list_and_watch_sends_the_numa_node_of_a_vf_that_has_one(node: Node) -> None:
    async def act(kubelet: Dialled) -> None:
        response = await kubelet.watch().call.read()

        assert [[numa.ID for numa in device.topology.nodes] for device in response.devices] == [[0], [0], [1], []]

    on(node, act)


def test_list_and_watch_sends_the_list_again_when_health_changes(node: Node) -> None:
    async def act(kubelet: Dialled) -> None:
        stream = kubelet.watch()
        await stream.next()

        node.second_rail_loses_its_link()

        assert await stream.next() == ALL_HEALTHY | {"0000:83:00.1": "Unhealthy", "0000:83:00.2": "Unhealthy"}

    on(node, act)


def test_list_and_watch_sends_the_list_again_when_a_vf_is_gone(node: Node) -> None:
    async def act(kubelet: Dialled) -> None:
        stream = kubelet.watch()
        await stream.next()

        node.table.refresh(Inventory(node.table.inventory.pfs[:1]))

        assert list(await stream.next()) == ["0000:03:00.1", "0000:03:00.2"]

    on(node, act)


@pytest.mark.slow
def test_list_and_watch_sends_nothing_when_the_list_is_the_same(node: Node) -> None:
    async def act(kubelet: Dialled) -> None:
        stream = kubelet.watch()
        await stream.next()
        node.table.claim(PciAddress.parse(VF), OWNER)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await stream.call.read()

    on(node, act)


def test_list_and_watch_sends_one_list_for_several_changes_at_once(node: Node) -> None:
    async def act(kubelet: Dialled) -> None:
        stream = kubelet.watch()
        await stream.next()
        before = node.table.inventory

        node.second_rail_loses_its_link()
        await asyncio.sleep(0.01)
        node.table.refresh(before)
        await asyncio.sleep(0.01)
        node.table.refresh(Inventory(before.pfs[:1]))

        assert len(await stream.next()) == 2

    on(node, act)


def test_list_and_watch_sends_the_list_again_when_the_nodes_reason_changed(node: Node) -> None:
    async def act(kubelet: Dialled) -> None:
        stream = kubelet.watch()
        await stream.next()

        node.node_reason = "Railnet's configuration is not the active one"
        node.service.changed()

        assert set((await stream.next()).values()) == {"Unhealthy"}

    on(node, act)


def test_list_and_watch_waits_for_no_further_changes_when_a_port_has_changed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_SETTLE_SECONDS", 2 * WAIT_SECONDS)

    async def act(kubelet: Dialled) -> None:
        stream = kubelet.watch()
        await stream.next()

        node.second_rail_loses_its_link()
        node.service.changed(at_once=True)

        assert await stream.next() == ALL_HEALTHY | {"0000:83:00.1": "Unhealthy", "0000:83:00.2": "Unhealthy"}

    on(node, act)


def test_list_and_watch_is_closed_when_kubelet_disconnects(node: Node) -> None:
    async def act(kubelet: Dialled) -> None:
        stream = kubelet.watch()
        await stream.next()
        assert node.service.streams == 1

        stream.call.cancel()

        await streams_are(node, 0)
        assert node.table._observers == []

    on(node, act)


def test_list_and_watch_ends_when_the_server_stops(node: Node) -> None:
    async def main() -> None:
        async with node.serving() as server, dial(node.socket) as kubelet:
            stream = kubelet.watch()
            await stream.next()

            await server.stop(grace=None)

            with pytest.raises(grpc.aio.AioRpcError):
                await stream.next()
            await streams_are(node, 0)

    asyncio.run(main())


def test_list_and_watch_serves_two_kubelets_at_once(node: Node) -> None:
    async def act(kubelet: Dialled) -> None:
        old, new = kubelet.watch(), kubelet.watch()
        await old.next()
        await new.next()

        node.table.refresh(Inventory())

        assert [await old.next(), await new.next()] == [{}, {}]

    on(node, act)


def test_allocate_answers_each_container(node: Node) -> None:
    async def act(kubelet: Dialled) -> None:
        first, second = await kubelet.allocate(["0000:03:00.1"], ["0000:83:00.2"])

        assert [spec.host_path for spec in first.devices] == ["/dev/infiniband/uverbs4", "/dev/infiniband/rdma_cm"]
        assert {spec.permissions for spec in first.devices} == {"rw"}
        assert second.envs["NCCL_IB_HCA"] == "=mlx5_1:1"

    on(node, act)


def refused(node: Node, act: Callable[[Dialled], Awaitable[object]]) -> tuple[grpc.StatusCode, str]:
    """Return the status and the message with which a call was refused."""
    statuses: list[tuple[grpc.StatusCode, str]] = []

    async def conversation(kubelet: Dialled) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await act(kubelet)
        statuses.append((error.value.code(), error.value.details() or ""))

    on(node, conversation)
    return statuses[0]


def test_allocate_refuses_an_unknown_device_by_its_id(node: Node) -> None:
    code, words = refused(node, lambda kubelet: kubelet.allocate(["0000:99:00.1"]))

    assert (code, words) == (grpc.StatusCode.NOT_FOUND, "rdma/ib_vf has no device 0000:99:00.1 on this node")


def test_allocate_refuses_ten_thousand_unknown_devices_with_a_reason(node: Node) -> None:
    ids = [f"0000:99:{number >> 8:02x}.{number & 0xFF:x}" for number in range(10_000)]

    code, words = refused(node, lambda kubelet: kubelet.allocate(ids))

    assert code == grpc.StatusCode.NOT_FOUND
    assert words.endswith("and 9997 more on this node")


def test_text_of_a_refusal_fits_into_a_header_whatever_kubelet_asked(node: Node) -> None:
    code, words = refused(node, lambda kubelet: kubelet.pre_start("é" * 10_000))

    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert words.startswith("device 'éé")


class Refused:
    """The context of a call that is refused."""

    async def abort(self, code: grpc.StatusCode, words: str) -> None:
        self.code, self.words = code, words
        raise grpc.aio.AbortError


def test_allocate_refuses_a_device_without_a_driver_at_once(node: Node) -> None:
    vf = node.table.inventory.vf(PciAddress.parse("0000:83:00.1"))
    assert vf is not None
    node.table.reread({vf.address: replace(vf, driver=None, netdev=None, rdma=None)})
    context = Refused()
    request = api.AllocateRequest(
        container_requests=[api.ContainerAllocateRequest(devices_ids=["0000:03:00.1", "0000:83:00.1"])]
    )

    with pytest.raises(grpc.aio.AbortError):
        node.service.Allocate(request, context).send(None)  # type: ignore[arg-type]  # its first step, which awaits nothing

    assert context.code == grpc.StatusCode.FAILED_PRECONDITION
    assert context.words.startswith("device 0000:83:00.1 of rdma/ib_vf is unhealthy: no driver is bound")


@pytest.mark.parametrize("lost", [{"netdev": None}, {"netdev": None, "rdma": None}])
def test_allocate_gives_a_vf_that_is_on_its_way_back_from_a_pod_at_once(node: Node, lost: dict[str, Any]) -> None:
    vf = node.table.inventory.vf(PciAddress.parse("0000:83:00.1"))
    assert vf is not None

    async def act(kubelet: Dialled) -> None:
        await kubelet.watch().next()
        node.table.reread({vf.address: replace(vf, **lost)})

        [answer] = await kubelet.allocate(["0000:83:00.1"])

        assert answer.envs["NCCL_IB_HCA"] == "=mlx5_2:1"
        assert [spec.host_path for spec in answer.devices] == ["/dev/infiniband/uverbs2", "/dev/infiniband/rdma_cm"]

    on(node, act)


def test_allocate_gives_a_vf_whose_port_has_just_gone_down(node: Node) -> None:
    node.second_rail_loses_its_link()

    async def act(kubelet: Dialled) -> None:
        [answer] = await kubelet.allocate(["0000:83:00.1"])

        assert answer.envs["PCIDEVICE_RDMA_IB_VF"] == "0000:83:00.1"

    on(node, act)


def test_pre_start_permits_the_pod_that_has_the_vf(node: Node) -> None:
    node.attach()
    node.kubelet.allocated(RAIL, uid_1=[VF])

    on(node, lambda kubelet: kubelet.pre_start(VF))


def test_pre_start_refuses_a_vf_that_is_not_attached(node: Node) -> None:
    node.table.claim(PciAddress.parse(VF), OWNER)  # claimed, not yet attached
    node.kubelet.allocated(RAIL, uid_1=[VF])

    code, words = refused(node, lambda kubelet: kubelet.pre_start(VF))

    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert words.startswith(f"VF {VF} is not attached to a pod")


def test_pre_start_permits_a_pod_on_the_hosts_network_that_has_the_vf(node: Node) -> None:
    node.on_host = {"uid-1"}
    node.kubelet.allocated(RAIL, uid_1=[VF])

    on(node, lambda kubelet: kubelet.pre_start(VF))

    assert node.asked == [{"uid-1"}]


def test_pre_start_asks_the_runtime_nothing_about_a_vf_that_is_attached(node: Node) -> None:
    node.attach()
    node.kubelet.allocated(RAIL, uid_1=[VF])

    on(node, lambda kubelet: kubelet.pre_start(VF))

    assert node.asked == []


@pytest.mark.parametrize("error", [NotReady("the runtime hangs"), FileNotFoundError(2, "No such file", "cri.sock")])
def test_pre_start_refuses_a_free_vf_if_the_runtime_does_not_answer(node: Node, error: Exception) -> None:
    node.runtime_fails = error
    node.kubelet.allocated(RAIL, uid_1=[VF])

    code, words = refused(node, lambda kubelet: kubelet.pre_start(VF))

    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert words.endswith(f"is not known: {error}")


def test_pre_start_refuses_a_vf_that_a_dying_pod_still_has(node: Node) -> None:
    node.attach()
    node.kubelet.allocated(RAIL, uid_2=[VF])

    code, words = refused(node, lambda kubelet: kubelet.pre_start(VF))

    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert "kubelet gave it to uid-2" in words


def test_pre_start_refuses_when_one_of_several_is_not_attached(node: Node) -> None:
    node.attach()
    node.kubelet.allocated(RAIL, uid_1=[VF, "0000:83:00.1"])

    code, words = refused(node, lambda kubelet: kubelet.pre_start(VF, "0000:83:00.1"))

    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert words.startswith("VF 0000:83:00.1 is not attached")


def test_pre_start_relies_on_the_attachment_when_the_checkpoint_is_not_understood(node: Node) -> None:
    node.attach()
    (node.kubelet.folder / "device-plugins" / "kubelet_internal_checkpoint").write_text("{")

    on(node, lambda kubelet: kubelet.pre_start(VF))


def test_vf_of_a_prepared_claim_is_unhealthy_until_it_is_unprepared(node: Node) -> None:
    async def act(kubelet: Dialled) -> None:
        stream = kubelet.watch()
        lists = [await stream.next()]
        node.claim(VF)
        lists.append(await stream.next())
        node.claim()
        lists.append(await stream.next())

        assert lists == [ALL_HEALTHY, {**ALL_HEALTHY, VF: "Unhealthy"}, ALL_HEALTHY]

    on(node, act)


def test_vf_of_a_prepared_claim_is_not_allocated(node: Node) -> None:
    async def act(kubelet: Dialled) -> None:
        node.claim(VF)
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await kubelet.allocate([VF])

        assert "claim ml/train has it" in str(refusal.value.details())

    on(node, act)


def test_list_of_a_node_with_prepared_claims_is_made_anew_only_after_a_change(node: Node) -> None:
    node.claim(VF)
    first = node.service.listed()
    again = node.service.listed()
    node.claim("0000:03:00.2")

    assert first is again
    assert [vf.id for vf in node.service.listed() if vf.reason] == ["0000:03:00.2"]
    assert node.service.offers() is node.service.offer().offered


def test_pool_that_dra_offers_lists_nothing_and_starts_the_containers_that_it_gave_vfs_to(tmp_path: Path) -> None:
    node = Node(tmp_path, lists=False)
    node.kubelet.allocated(RAIL, uid_1=[VF])
    node.attach()

    async def act(kubelet: Dialled) -> None:
        assert await kubelet.watch().next() == {}
        await kubelet.pre_start(VF)
        with pytest.raises(grpc.aio.AioRpcError, match="has no device"):
            await kubelet.allocate([VF])

    on(node, act)
    assert len(node.service.offers()) == 4
