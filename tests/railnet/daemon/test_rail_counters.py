"""What a scrape says of pods, rails and ports, from a sysfs tree in the kernel's form."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from railnet.daemon import rail_counters
from railnet.daemon.rail_counters import RailCounters
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.sysfs.rdma_counters import read_counters
from railnet.vf.record import Record, SandboxPod
from railnet.vf.vf_table import Owner, VfTable
from tests.railnet.kernel.tree import ON_NODE, OTHER_PF, OTHER_VF, PF, Tree
from tests.railnet.vf.builders import FIRST, a_record, an_attachment

WORD = 4  # octets


class Node:
    """Two cards with one VF each; pods come and go as by `cni.attachment`, and `scrape` returns the samples."""

    def __init__(self, root: Path) -> None:
        self.tree = Tree(root)
        self.tree.whole()
        self.tree.second_card()
        for function in (PF, ON_NODE, OTHER_PF, OTHER_VF):
            for name in ("port_rcv_data", "port_xmit_data"):
                self.count(function, name, "0")
        sysfs = Sysfs(root)
        self.table = VfTable(sysfs.inventory())
        self.records: list[Record] = []
        self.counters = RailCounters(self.table, sysfs, lambda: self.records)

    def file(self, function: str, name: str, folder: str = "counters") -> Path:
        (device,) = (self.tree.devices / function / "infiniband").iterdir()
        return device / "ports/1" / folder / name

    def count(self, function: str, name: str, text: str, folder: str = "counters") -> None:
        file = self.file(function, name, folder)
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{text}\n")

    def begin(self, pod: str) -> None:
        record = a_record(
            an_attachment(vf=FIRST, rail=0), container_id=pod, ifname="eth0", pod=SandboxPod("ml", pod, pod)
        )
        self.table.claim(FIRST, Owner(pod, "eth0", pod))
        self.records.append(record)

    def end(self, pod: str) -> None:
        self.table.release(FIRST, Owner(pod, "eth0", pod))
        self.records = [record for record in self.records if record.container_id != pod]

    async def scrape(self) -> dict[str, int]:
        await self.counters.fresh()
        lines = (line for line in self.counters.text.splitlines() if not line.startswith("#"))
        return {name: int(value) for name, _, value in (line.rpartition(" ") for line in lines)}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(rail_counters, "_PAUSE_SECONDS", 0.0)
    return Node(tmp_path)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await scenario()

    asyncio.run(whole())


def received(pod: str) -> str:
    return f'railnet_pod_received_bytes_total{{namespace="ml",pod="{pod}",rail="0",device="mlx5_4"}}'


RAIL = 'railnet_rail_received_bytes_total{rail="0"}'


def test_pods_on_one_vf_have_their_own_bytes_and_the_rail_has_all(node: Node) -> None:
    async def scenario() -> None:
        node.count(ON_NODE, "port_rcv_data", "1000")
        node.begin("one")
        assert (await node.scrape())[received("one")] == 0
        node.count(ON_NODE, "port_rcv_data", "3500")
        during = await node.scrape()
        assert (during[received("one")], during[RAIL]) == (2500 * WORD, 3500 * WORD)
        node.end("one")
        after = await node.scrape()
        assert (received("one") in after, after[RAIL]) == (False, 3500 * WORD)
        node.begin("other")
        assert (await node.scrape())[received("other")] == 0
        node.count(ON_NODE, "port_rcv_data", "3501")
        last = await node.scrape()
        assert (last[received("other")], last[RAIL]) == (WORD, 3501 * WORD)

    run(scenario)


def test_bytes_between_the_claim_and_the_first_scrape_are_the_pods(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        loop, read = asyncio.get_running_loop(), asyncio.Event()

        def reading(*arguments: Any) -> dict[str, int]:
            found = read_counters(*arguments)
            loop.call_soon_threadsafe(read.set)
            return found

        monkeypatch.setattr(rail_counters, "read_counters", reading)
        watch = asyncio.create_task(node.counters.serve())
        await asyncio.sleep(0)
        node.begin("one")
        await asyncio.wait_for(read.wait(), 10)
        node.count(ON_NODE, "port_rcv_data", "7")
        assert (await node.scrape())[received("one")] == 7 * WORD
        watch.cancel()

    run(scenario)


def test_rails_total_is_there_again_after_a_restart_of_the_daemon(node: Node) -> None:
    async def scenario() -> None:
        node.begin("one")
        await node.scrape()
        node.count(ON_NODE, "port_rcv_data", "50")
        await node.scrape()
        node.counters = RailCounters(node.table, Sysfs(node.tree.root), lambda: node.records)
        found = await node.scrape()
        assert (found[received("one")], found[RAIL]) == (0, 50 * WORD)

    run(scenario)


def test_reset_of_the_vf_lowers_no_total(node: Node) -> None:
    async def scenario() -> None:
        node.count(ON_NODE, "port_rcv_data", "100")
        node.begin("one")
        await node.scrape()
        node.count(ON_NODE, "port_rcv_data", "5")
        found = await node.scrape()
        assert (found[received("one")], found[RAIL]) == (5 * WORD, 105 * WORD)

    run(scenario)


@pytest.mark.parametrize("text", ["N/A (no PMA)", "letters", "-5", str(1 << 64), ""])
def test_counter_that_is_no_number_is_left_out(node: Node, text: str) -> None:
    async def scenario() -> None:
        node.count(ON_NODE, "port_rcv_data", text)
        node.begin("one")
        found = await node.scrape()
        assert received("one") not in found
        assert found[received("one").replace("received", "transmitted")] == 0
        assert found['railnet_counters_unread{card="0000:03:00.0"}'] == 0

    run(scenario)


@pytest.mark.slow
def test_file_that_hangs_costs_its_function_alone(node: Node) -> None:
    async def scenario() -> None:
        node.begin("one")
        file = node.file(ON_NODE, "port_rcv_data")
        file.unlink()
        os.mkfifo(file)
        found = await asyncio.wait_for(node.scrape(), 60)
        os.close(os.open(file, os.O_RDWR | os.O_NONBLOCK))
        assert found['railnet_counters_unread{card="0000:03:00.0"}'] == 1
        assert found['railnet_counters_unread{card="0000:83:00.0"}'] == 0
        assert received("one") not in found
        assert found['railnet_port_received_bytes_total{rail="0"}'] == 0
        assert found['railnet_rail_received_bytes_total{rail="1"}'] == 0

    run(scenario)


def test_errors_of_a_port_and_saturated_counters_are_named(node: Node) -> None:
    async def scenario() -> None:
        node.count(PF, "link_downed", "255")
        node.count(PF, "port_xmit_wait", "12")
        node.count(PF, "np_cnp_sent", "3", folder="hw_counters")
        found = await node.scrape()
        events = {name: value for name, value in found.items() if name.startswith("railnet_port_events_total")}
        assert events == {
            'railnet_port_events_total{rail="0",counter="link_downed"}': 255,
            'railnet_port_events_total{rail="0",counter="port_xmit_wait"}': 12,
            'railnet_port_events_total{rail="0",counter="np_cnp_sent"}': 3,
        }
        assert found['railnet_port_events_saturated{rail="0",counter="link_downed"}'] == 1

    run(scenario)


def test_vf_that_went_away_keeps_the_rails_total(node: Node) -> None:
    async def scenario() -> None:
        node.begin("one")
        node.count(ON_NODE, "port_rcv_data", "9")
        await node.scrape()
        (vf,) = (vf for vf in node.table.inventory.vfs() if vf.address == FIRST)
        node.table.reread({FIRST: replace(vf, rdma=None)})
        found = await node.scrape()
        assert (received("one") in found, found[RAIL]) == (False, 9 * WORD)

    run(scenario)


def test_scrapes_within_a_second_share_one_reading(tmp_path: Path) -> None:
    node = Node(tmp_path)

    async def scenario() -> None:
        node.begin("one")
        await node.scrape()
        node.count(ON_NODE, "port_rcv_data", "9")
        assert (await node.scrape())[received("one")] == 0

    run(scenario)


def test_name_with_a_quote_does_not_end_its_label(node: Node) -> None:
    async def scenario() -> None:
        node.begin('o"ne')
        await node.scrape()
        assert 'pod="o\\"ne"' in node.counters.text

    run(scenario)
