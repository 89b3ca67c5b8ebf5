"""The daemon keeps its node's condition and taint: what it writes when, over real TLS. The clock is the test's own."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cni.rail_observers import AddRefused, RailChanged, RailsAttached
from deviceplugin.pool_selection import Pool, Selector
from railnet.apiserver import service_account
from railnet.apiserver.client import ApiServer as Client
from railnet.apiserver.node_transport import NodeTransport
from railnet.apiserver.service_account import NotInCluster, ServiceAccount
from railnet.backoff import Backoff
from railnet.configuration import Configuration, Publish
from railnet.daemon.node_object.loop import ApiServerOfNode, NodeObjectLoop, PartPauses
from railnet.daemon.node_object.rails_condition import RailsCondition, RailsTaint, reasons
from railnet.fabric.rails_condition import TAINT, TYPE, Moment
from railnet.vf.inventory import Inventory, Port
from railnet.vf.pci_address import PciAddress
from railnet.vf.rail_memory import RailNumbers, RememberedRail
from railnet.vf.record import Record, SandboxPod
from railnet.vf.vf_table import VfTable
from simnode.kubernetes.api_server import ApiServer, Received, Reply
from tests.deviceplugin.builders import ACTIVE, DOWN, a_pf, a_vf, an_rdma_device, two_rails
from tests.jittered import jittered
from tests.railnet.vf.builders import a_record, an_attachment

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
FOREIGN = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
OURS = {"key": TAINT, "effect": "NoSchedule"}
ON = Configuration(publish=Publish(rails_condition=True))
TAINTED = Configuration(publish=Publish(rails_condition=True, rails_taint=True))


class Node:
    """One node: its ports, its clock, its object in the API server, and the daemon's part that is tested."""

    def __init__(self, server: ApiServer, credentials: Path, configuration: Configuration = TAINTED) -> None:
        self.server = server
        self.second = 0.0
        self.events: list[RailsAttached | AddRefused | RailChanged] = []
        self.records: list[Record] = []
        self.table = VfTable(two_rails())
        self.configuration = configuration
        host, port = server.environment.values()
        account = ServiceAccount(host, int(port), credentials)
        client = Client(NodeTransport(account), account.token, "railnet")
        self.cluster = ApiServerOfNode(client.send, "node-a")
        self.restart()

    def restart(self) -> None:
        condition = RailsCondition(self.configuration, self.table, self.events.append, lambda: self.records, self.clock)
        taint = RailsTaint(condition, on=self.configuration.publish.rails_taint)
        self.taint = NodeObjectLoop(taint, self.table, clock=self.clock)
        self.condition = NodeObjectLoop(condition, self.table, self.taint, self.clock)

    def clock(self) -> Moment:
        return Moment(self.second, NOON + timedelta(seconds=self.second))

    def port(self, rail: int, port: Port) -> None:
        pf = self.table.inventory.pfs[rail]
        self.table.reread_pfs({pf.address: replace(pf, rdma=an_rdma_device(rail, port))})

    def at(self, second: float) -> float:
        """Do what the daemon does at a second, and return the second that it would wait for."""
        self.second = second
        return min(asyncio.run(loop.step(self.cluster)) for loop in (self.condition, self.taint))

    def leave(self) -> None:
        """Do what a daemon of a node that Railnet leaves does."""
        for loop in (self.condition, self.taint):
            asyncio.run(loop.leave(self.cluster))

    @property
    def object(self) -> Any:
        return self.server.nodes["", "node-a"]

    @property
    def own(self) -> dict[str, str]:
        """The condition in the API server; empty if the node has none."""
        found = [one for one in self.object["status"]["conditions"] if one["type"] == TYPE]
        return found[0] if found else {}

    @property
    def writes(self) -> list[Any]:
        return [received.body for received in self.server.received if received.body]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    credentials = tmp_path / "serviceaccount"
    with ApiServer(credentials) as server:
        server.nodes["", "node-a"] = {
            "metadata": {"name": "node-a", "resourceVersion": "7"},
            "spec": {"taints": [FOREIGN]},
            "status": {"conditions": [READY]},
        }
        yield Node(server, credentials)


def test_node_whose_rails_are_active_gets_a_true_condition_at_once_and_no_taint(node: Node) -> None:
    node.at(0)

    assert node.own == {
        "type": TYPE,
        "status": "True",
        "reason": "RailsActive",
        "message": "2 of 2 rails are ACTIVE",
        "lastTransitionTime": "2026-01-01T12:00:00Z",
        "lastHeartbeatTime": "2026-01-01T12:00:00Z",
    }
    assert node.object["spec"]["taints"] == [FOREIGN]
    assert node.events == []


@pytest.mark.slow
def test_lost_port_is_a_false_condition_with_a_taint_and_its_return_takes_both_back(node: Node) -> None:
    node.at(0)
    node.port(1, DOWN)
    waits = node.at(100)
    early = node.own["status"]
    node.at(110)
    lost, tainted = node.own, node.object["spec"]["taints"]
    node.port(1, ACTIVE)
    node.at(200)
    still = node.own["status"]
    node.at(260)

    assert (waits, early, still) == (110, "True", "False")
    assert (lost["status"], lost["reason"], lost["lastTransitionTime"]) == (
        "False",
        "RailNotActive",
        "2026-01-01T12:01:50Z",
    )
    assert lost["message"] == (
        "rail 1 is not ACTIVE since 2026-01-01T12:01:40Z: port 1 of PF 0000:83:00.0 (mlx5_1) is '1: DOWN', '3: Disabled': "
        "check its cable and switch port"
    )
    assert (tainted, node.object["spec"]["taints"]) == ([FOREIGN, OURS], [FOREIGN])
    assert (node.own["status"], node.own["lastTransitionTime"]) == ("True", "2026-01-01T12:04:20Z")
    assert [one for one in node.object["status"]["conditions"] if one["type"] != TYPE] == [READY]


def test_condition_that_stays_has_a_new_heartbeat_every_five_minutes(node: Node) -> None:
    assert node.at(0) == 300
    node.at(299)
    before = len(node.writes)
    node.at(300)

    assert (before, len(node.writes)) == (1, 2)
    assert (node.own["lastTransitionTime"], node.own["lastHeartbeatTime"]) == (
        "2026-01-01T12:00:00Z",
        "2026-01-01T12:05:00Z",
    )


def test_port_that_flaps_ten_times_in_a_minute_changes_the_condition_once(node: Node) -> None:
    node.at(0)
    for flap in range(10):
        node.port(0, DOWN)
        node.at(10 + 6 * flap)
        node.port(0, ACTIVE)
        node.at(13 + 6 * flap)
    changed = len(node.writes)
    node.at(82)

    assert changed == 3  # True; False after the third loss, and its taint
    assert len(node.writes) == 4
    assert (node.own["status"], node.own["reason"], node.own["lastTransitionTime"]) == (
        "False",
        "RailFlaps",
        "2026-01-01T12:00:22Z",
    )
    assert node.own["message"].startswith(
        "rail 0 flaps: lost 10 times since 2026-01-01T12:00:10Z; the last time port 1"
    )
    assert [event.reason for event in node.events if isinstance(event, RailChanged)] == ["RailnetRailFlaps"]


def test_flaps_between_two_looks_of_the_loop_are_counted(node: Node) -> None:
    """The table reports each change at once; the loop may wait for the API server meanwhile."""

    async def whole() -> None:
        serving = asyncio.create_task(node.condition.serve(node.cluster))
        await asyncio.to_thread(node.server.wait_until, lambda: node.own)
        node.second = 20
        for _ in range(3):
            node.port(0, DOWN)
            node.port(0, ACTIVE)
        node.port(0, DOWN)
        await asyncio.to_thread(node.server.wait_until, lambda: node.own["reason"] == "RailFlaps")
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    asyncio.run(whole())

    assert node.own["message"].startswith("rail 0 flaps: lost 4 times")
    assert node.table._observers == []


def test_pods_that_have_the_rail_are_told(node: Node) -> None:
    with_it, without = SandboxPod("ml", "with-it", "1"), SandboxPod("ml", "without", "2")
    node.records = [
        a_record(an_attachment(rail=1), pod=with_it),
        a_record(an_attachment(rail=0), pod=without),
        a_record(an_attachment(rail=1), pod=with_it),
    ]
    node.at(0)
    node.port(1, DOWN)
    node.at(100)
    node.at(110)
    node.port(1, ACTIVE)
    node.at(120)
    node.at(180)

    told = [event for event in node.events if isinstance(event, RailChanged)]
    assert [(event.reason, event.warning, event.pods) for event in told] == [
        ("RailnetRailNotActive", True, (with_it,)),
        ("RailnetRailActive", False, (with_it,)),
    ]


def test_later_daemon_keeps_since_when_the_condition_is_what_it_is(node: Node) -> None:
    node.at(0)
    node.restart()
    node.at(1000)

    assert (node.own["lastTransitionTime"], node.own["lastHeartbeatTime"]) == (
        "2026-01-01T12:00:00Z",
        "2026-01-01T12:16:40Z",
    )


def test_later_daemon_believes_a_false_condition_until_the_ports_were_active_for_a_minute(node: Node) -> None:
    node.port(0, DOWN)
    node.at(0)
    node.at(10)
    node.restart()
    node.port(0, ACTIVE)
    waits = node.at(100)
    early = node.own["status"], node.object["spec"]["taints"]
    node.at(160)

    assert (waits, early) == (160, ("False", [FOREIGN, OURS]))
    assert (node.own["status"], node.object["spec"]["taints"]) == ("True", [FOREIGN])


def test_later_daemon_whose_port_is_lost_now_and_then_keeps_the_heartbeat_of_a_false_condition(node: Node) -> None:
    node.port(0, DOWN)
    node.at(0)
    node.at(10)
    said = node.own["message"]
    node.restart()
    node.port(0, ACTIVE)
    for second in range(100, 450, 50):
        node.port(0, DOWN)
        node.at(second)
        node.port(0, ACTIVE)
        node.at(second + 5)

    assert (node.own["status"], node.own["message"], node.own["lastTransitionTime"]) == (
        "False",
        said,
        "2026-01-01T12:00:10Z",
    )
    assert node.own["lastHeartbeatTime"] == "2026-01-01T12:06:40Z"


def test_taint_is_off_by_default_and_goes_when_it_is_switched_off(node: Node) -> None:
    node.port(0, DOWN)
    node.at(0)
    node.at(10)
    tainted = node.object["spec"]["taints"]
    node.configuration = ON
    node.restart()
    node.at(100)
    node.at(110)

    assert tainted == [FOREIGN, OURS]
    assert (node.own["status"], node.object["spec"]["taints"]) == ("False", [FOREIGN])


def test_taint_of_another_program_that_comes_at_the_same_moment_is_kept(node: Node) -> None:
    meanwhile = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}

    def taint_first(received: Received) -> Reply | None:
        if received.path.endswith("/nodes/node-a") and meanwhile not in node.object["spec"]["taints"]:
            node.object["spec"]["taints"] = [meanwhile, *node.object["spec"]["taints"]]
            node.object["metadata"]["resourceVersion"] = "1000"
        return None

    node.port(0, DOWN)
    node.at(0)
    node.server.interfere = taint_first
    node.at(10)

    assert node.object["spec"]["taints"] == [meanwhile, FOREIGN, OURS]
    assert node.taint.trouble is None


@pytest.mark.slow
def test_node_that_changes_all_the_time_gets_its_taint_later(node: Node) -> None:
    def conflict(received: Received) -> Reply | None:
        return Reply(409, "modified") if received.path.endswith("/nodes/node-a") else None

    node.port(0, DOWN)
    node.at(0)
    node.server.interfere = conflict
    waits = node.at(10)
    tries = sum(received.path.endswith("/nodes/node-a") for received in node.server.received)
    node.server.interfere = lambda _: None
    node.at(waits)

    assert (waits - 10, tries) == (jittered(15), 3)
    assert node.object["spec"]["taints"] == [FOREIGN, OURS]


FAILURES = {
    "forbidden": (Reply(403, "no"), "; set railsCondition.enabled=true of the chart; it is tried again"),
    "dead": (Reply(503, "no leader"), "HTTP 503: no leader; it is tried again"),
    "gone": (Reply(404, "not found"), "cannot patch nodes/node-a/status: not found; it is tried again"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["forbidden", "dead", "gone"])
def test_failure_is_reported_once_with_what_to_do_and_tried_again_ever_more_seldom(
    node: Node, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    reply, words = FAILURES[name]
    node.server.interfere = lambda _: reply
    caplog.set_level(logging.WARNING)
    pauses, second = [], 0.0
    for _ in range(7):
        before, second = second, node.at(second)
        pauses.append(second - before)
    reported = [record.message for record in caplog.records if TYPE in record.message]
    node.server.interfere = lambda _: None
    node.at(second)

    assert pauses == [jittered(one) for one in (15, 30, 60, 120, 240, 300, 300)]
    assert len(reported) == 1
    assert reported[0].endswith(words)
    assert (node.own["status"], node.condition.trouble) == ("True", None)


def test_forbidden_taint_does_not_hold_the_condition_up(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    def forbid(received: Received) -> Reply | None:
        return Reply(403, "no") if received.path.endswith("/nodes/node-a") else None

    node.server.interfere = forbid
    caplog.set_level(logging.WARNING)
    node.at(0)
    node.port(0, DOWN)
    node.at(100)
    node.at(110)
    node.port(0, ACTIVE)
    node.at(111)
    node.at(171)

    assert node.own["status"] == "True"
    reported = [record.message for record in caplog.records if record.message.startswith(TAINT)]
    assert len(reported) == 1
    assert reported[0].endswith("set railsCondition.taint=true of the chart; it is tried again")


def test_pause_that_the_api_server_asks_for_is_kept(node: Node) -> None:
    node.server.interfere = lambda _: Reply(429, "too many", headers={"Retry-After": "120"})

    assert node.at(0) == 120


def test_api_server_that_hangs_delays_no_look_and_no_event(node: Node) -> None:
    """While a request is without an answer, ports that change are counted, and the VF table goes on."""
    answer = threading.Event()

    def hang(_received: Received) -> Reply | None:
        assert answer.wait(20)
        return None

    node.server.interfere = hang

    async def whole() -> None:
        serving = asyncio.create_task(node.condition.serve(node.cluster))
        await asyncio.to_thread(node.server.wait_until, lambda: node.server.received)
        for _ in range(3):
            node.port(1, DOWN)
            node.port(1, ACTIVE)
        node.second = 20
        answer.set()
        await asyncio.to_thread(node.server.wait_until, lambda: node.own.get("reason") == "RailFlaps")
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    asyncio.run(whole())

    assert node.own["message"].startswith("rail 1 flaps: lost 3 times")


def test_loop_ends_when_it_is_cancelled_at_the_moment_of_a_change(node: Node) -> None:
    async def whole() -> set[asyncio.Task[None]]:
        serving = asyncio.create_task(node.condition.serve(node.cluster))
        await asyncio.to_thread(node.server.wait_until, lambda: node.own)
        await asyncio.sleep(0.1)  # the loop waits for a change
        node.port(1, DOWN)
        serving.cancel()
        ended, serves = await asyncio.wait([serving], timeout=5.0)
        for task in serves:
            task.cancel()
        return ended

    assert len(asyncio.run(whole())) == 1


def test_taint_whose_request_hangs_holds_the_condition_up_by_nothing(node: Node) -> None:
    answer = threading.Event()

    def hang(received: Received) -> Reply | None:
        assert not received.path.endswith("/nodes/node-a") or answer.wait(20)
        return None

    node.port(0, DOWN)
    node.at(0)
    node.server.interfere = hang

    async def whole() -> None:
        node.second = 10
        serving = [asyncio.create_task(loop.serve(node.cluster)) for loop in (node.condition, node.taint)]
        await asyncio.to_thread(node.server.wait_until, lambda: node.server.received[-1].path.endswith("/nodes/node-a"))
        node.second = 1000
        node.port(0, ACTIVE)
        node.second = 1060
        node.condition.wake()
        await asyncio.to_thread(node.server.wait_until, lambda: node.own["status"] == "True")
        hung = node.object["spec"]["taints"]
        answer.set()
        await asyncio.to_thread(node.server.wait_until, lambda: OURS not in node.object["spec"]["taints"])
        assert hung == [FOREIGN]
        for task in serving:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    asyncio.run(whole())

    assert (node.condition.trouble, node.taint.trouble) == (None, None)


def test_numbers_that_are_not_known_make_the_condition_unknown_and_leave_the_taint(node: Node) -> None:
    node.port(0, DOWN)
    node.at(0)
    node.at(10)
    node.table.number(RailNumbers((), unsettled="rails.json is damaged"))
    node.at(30)

    assert (node.own["status"], node.own["reason"], node.own["message"]) == (
        "Unknown",
        "RailsNotKnown",
        "rails.json is damaged",
    )
    assert node.object["spec"]["taints"] == [FOREIGN, OURS]


def test_railnet_that_leaves_the_node_takes_condition_and_taint_with_it(node: Node) -> None:
    node.port(0, DOWN)
    node.at(0)
    node.at(10)
    node.restart()
    node.leave()

    assert (node.condition.gone.is_set(), node.taint.gone.is_set()) == (True, True)
    assert (node.object["status"]["conditions"], node.object["spec"]["taints"]) == ([READY], [FOREIGN])


def test_leaving_is_tried_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RailsCondition, "pauses", PartPauses(0.0, Backoff(0.01, 300.0)))
    replies = iter([Reply(503, "no leader"), None])
    node.at(0)
    node.server.interfere = lambda _: next(replies, None)
    asyncio.run(node.condition.leave(node.cluster))

    assert node.own == {}


def test_leaving_waits_as_long_as_the_api_server_asks(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    replies = iter([Reply(429, "too many", headers={"Retry-After": "120"}), Reply(503, "no leader"), None])
    node.at(0)
    node.server.interfere = lambda _: next(replies, None)
    asyncio.run(node.condition.leave(node.cluster))

    assert slept == [120.0, jittered(30)]


def test_daemon_outside_a_cluster_has_nothing_to_keep(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_environ: object) -> None:
        raise NotInCluster("there is no token")

    monkeypatch.setattr(service_account, "find", absent)
    asyncio.run(node.condition.run(leaving=False))

    assert node.condition.gone.is_set()


CARD = PciAddress.parse("0000:03:00.0")
OTHER = PciAddress.parse("0000:83:00.0")


def inventory_of(port: Port, **changes: Any) -> Inventory:
    return Inventory((a_pf(a_vf(), rdma=an_rdma_device(0, port), **changes),))


@pytest.mark.parametrize(
    ("inventory", "configuration", "expected"),
    [
        (two_rails(), ON, {0: None, 1: None}),
        (Inventory(), ON, {}),
        (inventory_of(DOWN), ON, {0: "port 1 of PF 0000:03:00.0 (mlx5_0) is '1: DOWN'"}),
        (inventory_of(DOWN), replace(ON, pools=(Pool("a/b", Selector(vendor=("1111",))),)), {}),
        (
            inventory_of(replace(DOWN, link_layer="Ethernet"), carrier=True),
            replace(ON, pools=(Pool("a/b", Selector(), rdma=False),)),
            {0: None},
        ),
        (
            inventory_of(replace(DOWN, link_layer="Ethernet"), carrier=False),
            replace(ON, pools=(Pool("a/b", Selector(), rdma=False),)),
            {0: "PF 0000:03:00.0 (ibs5) has no carrier"},
        ),
        (replace(inventory_of(ACTIVE), named_rails=(CARD, OTHER)), ON, {0: None, 1: "`rails` in node.yaml names"}),
        (
            replace(inventory_of(ACTIVE), numbers=RailNumbers((RememberedRail(OTHER, None, None),))),
            ON,
            {0: "0000:83:00.0"},
        ),
        (replace(two_rails(), numbers=RailNumbers((), unsettled="damaged")), ON, None),
    ],
    ids=["ACTIVE", "no card", "down", "no pool", "carrier", "no carrier", "missing", "remembered", "unsettled"],
)
def test_reasons_of_the_rails(
    inventory: Inventory, configuration: Configuration, expected: dict[int, str | None] | None
) -> None:
    found = reasons(configuration, inventory)

    assert (None if found is None else found.keys()) == (None if expected is None else expected.keys())
    for rail, words in (expected or {}).items():
        said = (found or {})[rail]
        assert (words or "") in (said or "")
        assert (said is None) == (words is None)
