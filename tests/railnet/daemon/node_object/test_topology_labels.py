"""The daemon labels its node: which ports it asks, what it does with each answer, and what it writes when."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from errno import EACCES, EINVAL, ENOENT, EPERM, ETIMEDOUT
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.pool_selection import Pool, Selector
from railnet.apiserver.client import RequestFailed
from railnet.apiserver.request import Request
from railnet.configuration import Configuration
from railnet.daemon.node_object import topology_labels
from railnet.daemon.node_object.loop import ApiServerOfNode, NodeObjectLoop, moment
from railnet.daemon.node_object.topology_labels import LookPauses, TopologyLabels, labelled_rails
from railnet.fabric.neighbour import Neighbour
from railnet.fabric.rails_condition import Moment
from railnet.fabric.topology_labels import LEAF, RAILS, RATE, Leaf, leaf_of_rail
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.threads.bounded_reads import BoundedReads
from railnet.kernel.umad.node_info import BadAnswer
from railnet.vf.guid import Guid
from railnet.vf.inventory import DeviceNode, Inventory, PhysicalFunction, Port
from railnet.vf.pci_address import PciAddress
from railnet.vf.provision import Provision
from railnet.vf.rail_memory import RailNumbers, RememberedRail
from railnet.vf.vf_table import VfTable
from tests.deviceplugin.builders import ACTIVE, a_pf, a_vf, an_rdma_device, two_rails
from tests.jittered import jittered
from tests.railnet.kernel.begun_jobs import Hangs, wait_for_begin

LEAF_1, LEAF_2 = Guid(0xA1), Guid(0xB2)
SWITCH = Neighbour("switch", LEAF_1, 3)
HEX_1, HEX_2 = "00000000000000a1", "00000000000000b2"
QUICK = LookPauses(quiet=0.001, again=0.01, resync=60.0)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
INIT = Port(state="2: INIT", phys_state="5: LinkUp", link_layer="InfiniBand")
POLLING = Port(state="1: DOWN", phys_state="2: Polling", link_layer="InfiniBand")


class Fabric:
    """The neighbours of ports by the name of their umad device; an exception is raised in place of an answer."""

    def __init__(self, neighbours: dict[str, Neighbour | Exception]) -> None:
        self.neighbours = neighbours
        self.asked: list[str] = []

    def ask(self, _root: Path, device: DeviceNode) -> Neighbour:
        self.asked.append(device.name)
        found = self.neighbours[device.name]
        if isinstance(found, Exception):
            raise found
        return found


class Node:
    """The node object in the API server; `failures` are raised before requests are done again."""

    def __init__(self, **labels: str) -> None:
        self.labels: dict[str, str] = labels
        self.requests: list[Request] = []
        self.failures: list[Exception] = []
        self.failed: list[Exception] = []

    @property
    def writes(self) -> list[Any]:
        bodies: list[Any] = [request.body for request in self.requests]
        return [body["metadata"]["labels"] for body in bodies if body["metadata"]["labels"]]

    def send(self, request: Request) -> dict[str, Any]:
        self.requests.append(request)
        if self.failures:
            self.failed.append(self.failures.pop(0))
            raise self.failed[-1]
        body: Any = request.body
        for key, value in body["metadata"]["labels"].items():
            self.labels.pop(key, None) if value is None else self.labels.update({key: value})
        return {"metadata": {"labels": dict(self.labels)}}


class Rates(Sysfs):
    """Each port has the same rate."""

    def __init__(self) -> None:
        super().__init__(Path("/nonexistent"))

    def rate(self, function: PciAddress) -> str | None:
        del function
        return "400"


def two_ports(first: Port = ACTIVE, second: Port = ACTIVE) -> Inventory:
    """Return a node with two rails, whose umad devices are umad8 and umad9."""
    return two_rails().with_pfs(
        {
            pf.address: replace(pf, rdma=an_rdma_device(number, port))
            for pf, number, port in zip(two_rails().pfs, (8, 9), (first, second), strict=True)
        }
    )


def both_on(first: Neighbour | Exception = SWITCH, second: Neighbour | Exception = SWITCH) -> Fabric:
    return Fabric({"umad8": first, "umad9": second})


class Served(TopologyLabels):
    """The labels with their loop. `labelled` is set when the node has had them, or has lost them because Railnet leaves."""

    def __init__(
        self,
        table: VfTable,
        fabric: Fabric,
        configuration: Configuration | None = None,
        pauses: LookPauses = QUICK,
        clock: Callable[[], Moment] = moment,
    ) -> None:
        super().__init__(configuration or Configuration(), table, Rates(), fabric.ask, pauses, clock)
        self.loop = NodeObjectLoop(self, table, clock=clock)
        self.labelled = asyncio.Event()

    async def write(self, cluster: ApiServerOfNode) -> None:
        await super().write(cluster)
        self.labelled.set()

    async def remove(self, cluster: ApiServerOfNode) -> None:
        await super().remove(cluster)
        self.labelled.set()


def labelled(
    node: Node,
    fabric: Fabric,
    inventory: Inventory,
    then: Callable[[Served, VfTable], Awaitable[object]] | None = None,
    *,
    leaving: bool = False,
    configuration: Configuration | None = None,
) -> Served:
    """Serve until the node is labelled and `then` has returned."""

    async def whole() -> Served:
        table = VfTable(inventory)
        topology = Served(table, fabric, configuration)
        cluster = ApiServerOfNode(node.send, "gpu-7")
        serving = asyncio.create_task((topology.loop.leave if leaving else topology.loop.serve)(cluster))
        await asyncio.wait_for(topology.labelled.wait(), 30)
        if then is not None:
            await then(topology, table)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        return topology

    return asyncio.run(whole())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what changes reports to no event of this test
            await asyncio.sleep(0.002)


def test_node_gets_leaf_rails_and_rate() -> None:
    node = Node(zone="z1")
    topology = labelled(node, both_on(), two_ports())

    assert node.labels == {
        "zone": "z1",
        LEAF: HEX_1,
        leaf_of_rail(0): HEX_1,
        leaf_of_rail(1): HEX_1,
        RAILS: "2",
        RATE: "400",
    }
    assert topology.places[0].leaf == Leaf(LEAF_1, 3)
    assert {(request.verb.right, request.path) for request in node.requests} == {("patch", "/api/v1/nodes/gpu-7")}


def test_node_that_has_its_labels_is_not_written() -> None:
    node = Node()
    labelled(node, both_on(), two_ports())
    again = Node(**node.labels)
    labelled(again, both_on(), two_ports())

    assert again.writes == []
    assert len(again.requests) == 1


def test_port_is_asked_before_the_subnet_manager_has_made_it_active_and_its_rate_is_not_taken() -> None:
    node = Node()
    labelled(node, both_on(), two_ports(INIT, INIT))

    assert (node.labels[LEAF], RATE in node.labels) == (HEX_1, False)


def test_port_that_becomes_active_is_asked_at_once() -> None:
    node, fabric = Node(), both_on()

    async def come_up(topology: Served, table: VfTable) -> None:
        assert (LEAF in node.labels, fabric.asked) == (False, ["umad8"])
        table.refresh(two_ports(), table.generation)
        await until(lambda: LEAF in node.labels)

    topology = labelled(node, fabric, two_ports(second=POLLING), come_up)

    assert "umad9" in fabric.asked  # how often depends on how long the write of the labels takes
    assert topology.places[1].reason is None


def test_look_at_the_vfs_that_finds_nothing_new_asks_no_port() -> None:
    node, fabric = Node(), both_on()

    async def look(topology: Served, _table: VfTable) -> None:
        for _ in range(5):
            topology.loop.wake()
            await asyncio.sleep(0.01)  # for what would be asked

    labelled(node, fabric, two_ports(), look)

    assert len(fabric.asked) == 2


def test_cable_that_was_moved_changes_the_labels() -> None:
    node, fabric = Node(), both_on()

    async def move(topology: Served, table: VfTable) -> None:
        table.refresh(two_ports(POLLING), table.generation)
        await until(lambda: topology.places[0].leaf is None)
        fabric.neighbours["umad8"] = SWITCH._replace(node_guid=LEAF_2)
        table.refresh(two_ports(), table.generation)
        await until(lambda: node.labels[leaf_of_rail(0)] == HEX_2)

    labelled(node, fabric, two_ports(), move)

    assert node.labels[LEAF].startswith("2-leaves-")
    assert [LEAF in write for write in node.writes] == [True, True]  # nothing was written while the port was down


SILENT = "the port's neighbour does not answer; it does not if the fabric protects reading by an M_Key"
FAULTS: dict[str, tuple[Exception, str]] = {
    "no right": (
        PermissionError(EPERM, "Operation not permitted"),
        "/dev/infiniband/umad8: Operation not permitted: this container may not use the device: set topologyLabels.enabled=true of the chart",
    ),
    "a security module": (
        PermissionError(EACCES, "Permission denied"),
        "/dev/infiniband/umad8: Permission denied: this container may not use the device: set topologyLabels.enabled=true of the chart",
    ),
    "no device node": (
        FileNotFoundError(ENOENT, "No such file or directory"),
        "/dev/infiniband/umad8: No such file or directory: the host has no such device node: load the kernel's module ib_umad",
    ),
    "no answer": (
        TimeoutError(ETIMEDOUT, "Connection timed out"),
        f"/dev/infiniband/umad8: Connection timed out: {SILENT}",
    ),
    "another error": (
        OSError(EINVAL, "Invalid argument"),
        "/dev/infiniband/umad8: Invalid argument: it is asked again",
    ),
    "a lie": (
        BadAnswer("its NodeInfo is wrong"),
        "the answer to umad8 cannot be used: its NodeInfo is wrong; look at the switch's firmware",
    ),
}


@pytest.mark.parametrize(("fault", "reason"), FAULTS.values(), ids=FAULTS.keys())
def test_port_that_cannot_be_asked_costs_itself_alone_and_is_asked_again(fault: Exception, reason: str) -> None:
    node, fabric, seen = Node(), both_on(fault), list[str | None]()

    async def mend(topology: Served, _table: VfTable) -> None:
        seen.append(topology.places[0].reason)
        assert node.labels == {leaf_of_rail(1): HEX_1, RAILS: "2", RATE: "400"}
        fabric.neighbours["umad8"] = SWITCH
        await until(lambda: LEAF in node.labels)

    topology = labelled(node, fabric, two_ports(), mend)

    assert seen == [reason]
    assert topology.places[0].reason is None


@pytest.mark.parametrize("kind", ["CA", "router"])
def test_port_without_a_switch_has_no_leaf(kind: Any) -> None:
    node = Node(**{LEAF: HEX_1, leaf_of_rail(0): HEX_1})
    topology = labelled(node, both_on(Neighbour(kind, LEAF_2, 1)), two_ports())

    assert node.labels == {leaf_of_rail(1): HEX_1, RAILS: "2", RATE: "400"}
    assert topology.places[0].reason == f"the cable leads to a {kind} (0000:0000:0000:00b2), not to a switch"


@pytest.mark.slow
def test_card_that_hangs_costs_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology_labels, "_HANGS_SECONDS", 0.1)
    node, hangs = Node(), Hangs()
    wait_for_begin(monkeypatch, hangs)

    class Hanging(Fabric):
        def ask(self, root: Path, device: DeviceNode) -> Neighbour:
            if device.name == "umad8":
                hangs.wait()
            return super().ask(root, device)

    hung: list[int] = []

    async def look(topology: Served, _table: VfTable) -> None:
        hung.append(topology.hung.total())
        assert node.labels == {leaf_of_rail(1): HEX_1, RAILS: "2", RATE: "400"}
        for _ in range(3):  # it is not asked by one more thread each time
            before = len(node.requests)
            await until(lambda known=before: len(node.requests) > known)  # type: ignore[misc]
        hung.append(topology.hung.total())
        hangs.alive.set()
        await until(lambda: LEAF in node.labels)

    topology = labelled(node, Hanging({"umad8": SWITCH, "umad9": SWITCH}), two_ports(), look)

    assert hung == [1, 1]
    assert topology.places[0].reason is None


def test_hung_question_takes_no_vf_away() -> None:
    """The threads of `Sysfs.reads` are for what kubelet is told: a PF that is asked has other ones."""
    sysfs = Rates()
    topology = TopologyLabels(Configuration(), VfTable(two_ports()), sysfs)

    assert isinstance(topology._reads, BoundedReads)
    assert topology._reads is not sysfs.reads


REFUSALS: dict[str, tuple[Exception, str]] = {
    "no right": (
        RequestFailed("cannot patch nodes/gpu-7: HTTP 403: forbidden", 403),
        "topology labels: cannot patch nodes/gpu-7: HTTP 403: forbidden; set topologyLabels.enabled=true of the chart; it is tried again",
    ),
    "no answer": (RequestFailed("no answer"), "topology labels: no answer; it is tried again"),
    "no token": (OSError("holds no token"), "topology labels: holds no token; it is tried again"),
}


@pytest.mark.parametrize("writing", [False, True], ids=["look", "change"])
@pytest.mark.parametrize(("failure", "trouble"), REFUSALS.values(), ids=REFUSALS.keys())
def test_request_that_fails_is_tried_again_and_status_says_why(
    failure: Exception, trouble: str, writing: bool, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node()
    if writing:
        send, node.failures = node.send, []

        def fail_first_write(request: Request) -> dict[str, Any]:
            if request.body != {"metadata": {"labels": {}}} and not node.failed:
                node.failures = [failure]
            return send(request)

        node.send = fail_first_write  # type: ignore[method-assign]
    else:
        node.failures = [failure, failure]
    topology = labelled(node, both_on(), two_ports())

    assert node.labels[LEAF] == HEX_1
    assert topology.loop.trouble is None
    assert [record.message for record in caplog.records if "topology labels" in record.message] == [trouble]


def test_pauses_double_while_looks_fail_begin_again_after_a_success_and_respect_retry_after() -> None:
    node, pauses, now = Node(), list[float](), [0.0]
    node.failures = [RequestFailed("no leader") for _ in range(8)]

    async def whole() -> None:
        table = VfTable(two_ports())
        topology = Served(table, both_on(), pauses=LookPauses(quiet=0.0), clock=lambda: Moment(now[0], NOON))
        while len(pauses) < 11:
            due = await topology.loop.step(ApiServerOfNode(node.send, "gpu-7"))
            pauses.append(due - now[0])
            now[0] = due
            if len(pauses) == 9:
                node.failures = [RequestFailed("no leader"), RequestFailed("slow down", 429, 45.0)]

    asyncio.run(whole())

    # A pause is the difference of two times of the clock, so it is not exact.
    growing = [jittered(whole) for whole in (15, 30, 60, 120, 240, 480, 600, 600)]
    assert pauses == [*growing, pytest.approx(600.0), jittered(15), pytest.approx(45.0)]


def test_leaf_that_stays_unknown_is_asked_for_ever_more_seldom_and_at_once_when_a_port_changes() -> None:
    node, fabric, pauses, now = Node(), both_on(), list[float](), [0.0]
    table = VfTable(two_ports(second=POLLING))
    topology = Served(table, fabric, pauses=LookPauses(quiet=0.0), clock=lambda: Moment(now[0], NOON))
    for _ in range(3):
        due = asyncio.run(topology.loop.step(ApiServerOfNode(node.send, "gpu-7")))
        pauses.append(due - now[0])
        now[0] = due
    now[0] -= 1
    table.refresh(two_ports(), table.generation)
    asyncio.run(topology.loop.step(ApiServerOfNode(node.send, "gpu-7")))

    assert pauses == [jittered(15), jittered(30), jittered(60)]
    assert LEAF in node.labels


def test_name_that_no_node_can_have_is_reported_and_the_daemon_goes_on() -> None:
    async def whole() -> str | None:
        topology = Served(VfTable(two_ports()), both_on())
        serving = asyncio.create_task(topology.loop.serve(ApiServerOfNode(Node().send, "GPU_7")))
        await until(lambda: topology.loop.trouble)
        assert not serving.done()
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        return topology.loop.trouble

    assert "'GPU_7' cannot be the name of an API object" in (asyncio.run(whole()) or "")


def test_node_object_that_was_made_again_is_labelled_again() -> None:
    node = Node()

    async def whole() -> None:
        topology = Served(VfTable(two_ports()), both_on(), pauses=QUICK._replace(resync=0.05))
        serving = asyncio.create_task(topology.loop.serve(ApiServerOfNode(node.send, "gpu-7")))
        await until(lambda: LEAF in node.labels)
        node.labels = {"zone": "z1"}
        await until(lambda: LEAF in node.labels)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    asyncio.run(whole())


def test_labels_are_removed_when_railnet_leaves_the_node_and_no_port_is_asked() -> None:
    node, fabric = Node(), both_on()
    labelled(node, fabric, two_ports())
    fabric.asked.clear()
    node.labels["zone"] = "z1"
    labelled(node, fabric, two_ports(), leaving=True)

    assert (node.labels, fabric.asked) == ({"zone": "z1"}, [])


def addresses(inventory: Inventory, configuration: Configuration | None = None) -> Sequence[str] | None:
    found = labelled_rails(configuration or Configuration(), inventory)
    return None if found is None else [f"{number} {rail.address}" for number, rail in found.items()]


STORAGE = a_pf(a_vf("0000:23:00.1", 9), address="0000:23:00.0", device="0x1017")


def with_storage(pf: PhysicalFunction = STORAGE) -> Inventory:
    first, second = two_ports().pfs
    return Inventory((first, pf, second))


def test_storage_card_whose_vfs_are_in_no_pool_is_not_asked() -> None:
    """topograph#488: a leaf of the storage network says nothing about where training pods run."""
    only_compute = Configuration(pools=(Pool("rdma/ib_vf", Selector(pf_device=("1021",))),))

    assert addresses(with_storage(), only_compute) == ["0 0000:03:00.0", "2 0000:83:00.0"]


def test_pf_without_vfs_is_a_rail_only_if_the_configuration_makes_its_vfs() -> None:
    bare = replace(STORAGE, vfs=(), numvfs=0)
    making = Configuration(provision=(Provision(bare.address, 8),))

    assert addresses(with_storage(bare)) == ["0 0000:03:00.0", "2 0000:83:00.0"]
    assert addresses(with_storage(bare), making) == ["0 0000:03:00.0", "1 0000:23:00.0", "2 0000:83:00.0"]


def test_nothing_is_labelled_while_the_rails_numbers_are_not_known() -> None:
    assert addresses(replace(two_ports(), numbers=RailNumbers((), "the file cannot be read"))) is None


def test_missing_card_keeps_the_leaf_that_the_node_has() -> None:
    remembered = tuple(
        RememberedRail(pf.address, None if pf.rdma is None else pf.rdma.node_guid, "15b3:1021")
        for pf in two_ports().pfs
    )
    node = Node()
    labelled(node, both_on(), replace(two_ports(), numbers=RailNumbers(remembered)))
    labels = dict(node.labels)
    topology = labelled(node, both_on(), Inventory(two_ports().pfs[:1], numbers=RailNumbers(remembered)))

    assert node.labels == {**labels, RAILS: "1"}
    assert topology.places[1].absent


@pytest.mark.parametrize(
    ("pf", "reason"),
    [
        (
            {"rdma": an_rdma_device(8, replace(ACTIVE, link_layer="Ethernet"))},
            "an Ethernet port has no subnet management",
        ),
        ({"rdma": None}, "PF 0000:03:00.0 shows no RDMA port"),
        ({"rdma": replace(an_rdma_device(8, ACTIVE), port=None)}, "PF 0000:03:00.0 shows no RDMA port"),
        ({"rdma": an_rdma_device(8, ACTIVE, umad=None)}, "mlx5_8 has no umad device: load the kernel's module ib_umad"),
        ({"rdma": an_rdma_device(8, POLLING)}, "the link of mlx5_8 is not up (2: Polling)"),
    ],
    ids=["Ethernet", "no driver", "no port", "no umad", "no link"],
)
def test_port_that_cannot_have_an_answer_is_not_asked(pf: dict[str, Any], reason: str) -> None:
    fabric, everything = both_on(), Configuration(pools=(Pool("rdma/any"),))
    first, second = two_ports().pfs
    inventory = Inventory((replace(first, **pf), second))
    topology = labelled(Node(), fabric, inventory, configuration=everything)

    assert (topology.places[0].reason or "").startswith(reason)
    assert "umad8" not in fabric.asked


def test_vf_of_a_virtual_machine_says_to_use_the_clouds_labels() -> None:
    topology = labelled(Node(), both_on(), Inventory((), (a_vf(pf=None),)))

    assert topology.places[0].lasting
    assert "use the topology labels of the cloud" in (topology.places[0].reason or "")
