"""The daemon reads ports and the kernel's log, and says what is wrong with which rail. The clock is the test's own."""

import asyncio
import fcntl
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cni.rail_observers import AddRefused, RailChanged, RailsAttached
from deviceplugin.pool_selection import Pool, Selector
from railnet.configuration import Configuration, HostConfiguration, Publish
from railnet.daemon.node_object import rail_errors
from railnet.daemon.node_object.rail_errors import RailErrors, lines
from railnet.fabric.port_counter_thresholds import COUNTERS, PortState, PortThresholds, Threshold
from railnet.fabric.rails_condition import Moment
from railnet.kernel.kernel_log import KernelLog
from railnet.kernel.sysfs import rdma_counters
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.threads.bounded_reads import BoundedReads
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import SandboxPod
from railnet.vf.vf_table import VfTable
from tests.railnet.kernel.tree import OTHER_PF, PF, Tree

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TRAIN = SandboxPod("ml", "train", "uid")
FATAL = "poll_health:825:(pid 0): Fatal error 3 detected"


class Node:
    """Two cards, whose counters are files, and a pipe in place of the kernel's log."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tree = Tree(root / "sys")
        self.tree.whole()
        self.tree.second_card()
        self.second = 0.0
        monkeypatch.setattr(rail_errors, "moment", self.clock)
        self.log_path = root / "kmsg"
        os.mkfifo(self.log_path)
        self.configuration = Configuration(
            host=HostConfiguration(kernel_log=self.log_path),
            publish=Publish(rails_condition=True, kernel_messages=True),
            port_thresholds=PortThresholds(symbol_error=Threshold(100, 10.0), recovery=20.0),
        )
        for pf in (PF, OTHER_PF):
            for name in COUNTERS:
                self.count(pf, name, 14)
        self.told: list[RailsAttached | AddRefused | RailChanged] = []
        self.port_state: Callable[[int], PortState] = lambda _: PortState(-1.0)
        self.start()

    def start(self) -> None:
        sysfs = Sysfs(self.tree.root)
        self.table = VfTable(sysfs.inventory())
        self.errors = RailErrors(
            self.configuration,
            self.table,
            sysfs,
            self.told.append,
            lambda _: (TRAIN,),
            self.state_of,
        )

    def state_of(self, rail: int) -> PortState:
        return self.port_state(rail)

    def only_the_first_card(self) -> None:
        pool = Pool("rdma/ib_vf", Selector(pf=(PciAddress.parse(PF),)))
        self.configuration = replace(self.configuration, pools=(pool,))
        self.start()

    def clock(self) -> Moment:
        return Moment(self.second, NOON + timedelta(seconds=self.second))

    def file(self, pf: str, name: str) -> Path:
        (device,) = (self.tree.devices / pf / "infiniband").iterdir()
        return device / "ports/1/counters" / name

    def count(self, pf: str, name: str, value: int | str) -> None:
        file = self.file(pf, name)
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{value}\n")

    def looks(self, times: int = 1, each: Callable[[], object] = lambda: None) -> None:
        for _ in range(times):
            each()
            asyncio.run(self.errors.look())
            self.second += 10

    def storm(self, pf: str = PF, name: str = "symbol_error") -> None:
        self.looks()
        self.count(pf, name, 5000)
        self.looks(2)

    def says(self, *records: str | bytes) -> None:
        """Write records as the kernel does, and have the daemon read them."""
        with KernelLog(self.log_path) as log:
            writer = packets(self.log_path)
            try:
                for text in records:
                    os.write(writer, text if isinstance(text, bytes) else text.encode())
                self.errors.look_at_log(log)
            finally:
                os.close(writer)

    def wrong(self) -> dict[int, list[str]]:
        return {rail: [error.name for error in errors] for rail, errors in self.errors.errors().items()}

    @property
    def news(self) -> list[tuple[str, bool]]:
        return [(told.reason, told.warning) for told in self.told if isinstance(told, RailChanged)]


def packets(pipe: Path) -> int:
    """Open a pipe in which each write is a packet (pipe(2), O_DIRECT), as each read of the log is a record."""
    writer = os.open(pipe, os.O_WRONLY)
    fcntl.fcntl(writer, fcntl.F_SETFL, os.O_DIRECT)
    return writer


def kernel(text: str, card: str = PF) -> str:
    return f"3,1,2,-;mlx5_core {card}: {text}\n SUBSYSTEM=pci\n DEVICE=+pci:{card}\n"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_storm_of_one_port_costs_that_rail_and_is_told_once_to_its_pods(node: Node) -> None:
    node.storm()
    node.looks(1, lambda: node.count(PF, "symbol_error", 20_000))
    (told,) = node.told

    assert node.wrong() == {0: ["symbol_error"]}
    assert isinstance(told, RailChanged)
    assert (told.reason, told.warning, told.pods) == ("RailnetPortErrors", True, (TRAIN,))
    assert list(lines(node.errors.errors())) == [told.text]
    assert 'railnet_rail_errors{rail="0",error="symbol_error",severity="severe"} 1' in node.errors.text()


def test_two_ports_of_a_rail_with_the_same_error_are_one_sample_of_1(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = rdma_counters.read_counters

    def reading(*arguments: object) -> dict[str, int]:
        found: dict[str, int] = read(*arguments)  # type: ignore[arg-type]
        return found | {key.replace("ports/1/", "ports/2/"): value for key, value in found.items()}

    monkeypatch.setattr(rail_errors, "read_counters", reading)
    node.storm()
    samples = [line for line in node.errors.text().splitlines() if line.startswith("railnet_rail_errors{")]

    assert node.wrong() == {0: ["symbol_error", "symbol_error"]}
    assert samples == ['railnet_rail_errors{rail="0",error="symbol_error",severity="severe"} 1']


def test_storm_that_ends_is_over_and_told(node: Node) -> None:
    node.storm()
    node.looks(4)

    assert node.wrong() == {}
    assert node.news == [("RailnetPortErrors", True), ("RailnetPortErrorsOver", False)]


def test_daemon_that_starts_does_not_judge_what_was_before(node: Node) -> None:
    node.storm()
    node.start()
    node.looks(5)

    assert node.wrong() == {}


def test_nvsentinel_1361_port_that_no_pod_can_have_is_not_judged(node: Node) -> None:
    """NVIDIA/NVSentinel#1361: the second port of a cloud's front card has no cable by design, and was called broken at the first look.

    A PF without a VF of a pool is no rail: neither its port nor what the kernel says of it is looked at.
    """
    node.only_the_first_card()
    node.storm(OTHER_PF)
    node.says(kernel(FATAL, OTHER_PF))

    assert node.wrong() == {}
    assert node.told == []


def test_nvsentinel_1529_management_card_is_not_judged(node: Node) -> None:
    """NVIDIA/NVSentinel#1529: the counters of a management card were judged though its state was not, and one lost link cordoned the node.

    What is a rail is decided once, for ports, counters and messages: a pool that does not select a card makes it none.
    """
    node.only_the_first_card()
    node.looks()
    for value in (15, 16, 17, 18):
        node.count(OTHER_PF, "link_downed", value)
        node.looks()

    assert node.wrong() == {}


def note_asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the names of counters that will be read."""
    asked: list[str] = []
    read = rdma_counters.read_counters

    def reading(sysfs: Sysfs, function: object, device: str, ports: object, names: list[str]) -> dict[str, int]:
        asked.extend(names)
        found: dict[str, int] = read(sysfs, function, device, ports, names)  # type: ignore[arg-type]
        return found

    monkeypatch.setattr(rail_errors, "read_counters", reading)
    return asked


def test_gpud_1164_refused_reads_neither_raise_nor_repeat(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """leptonai/gpud#1164: the firmware of some cards refuses registers, so looking at healthy machines filled their logs with errors.

    Each read of a counter failed with EINVAL, and the kernel wrote `ACCESS_REG(0x805) op_mod(0x1) failed`. Here such a counter is not known,
    it is read again after ten minutes, and the message says nothing.
    """
    asked = note_asked(monkeypatch)
    for pf in (PF, OTHER_PF):
        node.file(pf, "symbol_error").unlink()
        node.file(pf, "link_downed").write_text("N/A (no PMA)\n")
    node.looks(60)
    refused = (
        "mlx5_cmd_out_err:838:(pid 1441871): ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2), err(-22)"
    )
    node.says(*[kernel(refused)] * 10)

    assert asked.count("counters/symbol_error") == asked.count("counters/link_downed") == 2
    assert asked.count("counters/port_rcv_errors") == 120
    assert node.wrong() == {}


def test_card_that_refuses_all_counters_is_asked_twice_and_then_each_ten_minutes(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.only_the_first_card()
    asked = note_asked(monkeypatch)
    for name in COUNTERS:
        node.count(PF, name, "N/A (no PMA)")
    often = []
    for _ in range(3):
        node.looks(60)
        often.append(asked.count("counters/symbol_error"))

    assert often == [2, 3, 4]


@pytest.mark.parametrize("two_looks", [False, True], ids=["in one look", "in two looks, then ACTIVE anew"])
def test_driver_that_is_loaded_anew_during_a_look_blinds_no_card(node: Node, *, two_looks: bool) -> None:
    node.looks(3)
    device = node.tree.devices / PF / "infiniband"
    gone = device.with_name("gone")
    device.rename(gone)
    node.looks(2 if two_looks else 1)
    gone.rename(device)
    if two_looks:
        active = PortState(node.second)
        node.port_state = lambda _: active
    node.looks(2)
    node.storm()

    assert node.wrong() == {0: ["symbol_error"]}


@pytest.mark.slow
def test_card_that_hangs_keeps_what_is_known_of_it_and_holds_up_no_other(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.looks()
    node.errors._reads = BoundedReads(0.2)
    os.mkfifo(node.file(PF, "hung"))
    symbol_error = node.file(PF, "symbol_error")
    monkeypatch.undo()
    read = rdma_counters.read_counters

    def reading(sysfs: Sysfs, function: object, *arguments: object) -> dict[str, int]:
        if str(function) == PF and hangs:
            node.file(PF, "hung").read_text()  # until a writer comes
        found: dict[str, int] = read(sysfs, function, *arguments)  # type: ignore[arg-type]
        return found

    hangs = True
    monkeypatch.setattr(rail_errors, "read_counters", reading)
    monkeypatch.setattr(rail_errors, "moment", node.clock)

    async def scenario() -> None:
        await node.errors.look()
        assert node.errors.hung == {PF: 1}
        node.count(OTHER_PF, "symbol_error", 5000)
        symbol_error.write_text("5000\n")
        for _ in range(3):
            node.second += 10
            await node.errors.look()
        assert node.wrong() == {1: ["symbol_error"]}
        node.file(PF, "hung").write_text("")

    asyncio.run(scenario())


def test_message_of_the_kernel_about_a_card_costs_its_rail(node: Node) -> None:
    node.looks()
    node.says(
        "6,1,2,-;nothing\n",
        kernel(FATAL, OTHER_PF),
        b"\xff",
        kernel("Port module event[error]: module 0, Cable error, Unknown status"),
    )
    node.looks()

    assert node.wrong() == {0: ["cable-fault"], 1: ["firmware-fatal"]}
    assert [error.severe for errors in node.errors.errors().values() for error in errors] == [False, True]
    assert node.news == [("RailnetKernelErrors", True)] * 2
    assert 'railnet_kernel_messages_total{rail="1",kind="firmware-fatal"} 1' in node.errors.text()


def test_message_about_a_vf_costs_no_rail(node: Node) -> None:
    """A pod's own commands can make the kernel say something of its VF."""
    vf = str(node.table.inventory.rails[0].vfs[0].address)
    node.says(kernel(FATAL, vf))

    assert node.wrong() == {}


def test_messages_of_a_card_end_with_the_card(node: Node) -> None:
    node.looks()
    node.says(kernel(FATAL))
    (device,) = (node.tree.devices / PF / "infiniband").iterdir()
    (device / "node_guid").write_text("b8ce:f603:0099:0001\n")
    before = node.wrong()
    node.table.refresh(Sysfs(node.tree.root).inventory())
    node.looks()

    assert (before, node.wrong()) == ({0: ["firmware-fatal"]}, {})


def test_message_stays_while_the_driver_recovers_the_card_and_shows_no_device(node: Node) -> None:
    node.looks()
    node.says(kernel(FATAL))
    whole = node.table.inventory
    pf = whole.pfs[0]
    node.table.reread_pfs({pf.address: replace(pf, rdma=None)})
    node.says(kernel("mlx5_health_try_recover:330:(pid 9): health recovery failed"))
    node.looks()
    without = node.wrong()
    node.table.reread_pfs({pf.address: pf})
    node.looks()

    assert without == node.wrong() == {0: ["firmware-fatal", "firmware-recovery-failed"]}


def test_card_that_an_operator_resets_is_good_again_after_the_recovery_time(node: Node) -> None:
    node.looks()
    node.says(kernel(FATAL))
    whole = node.table.inventory
    pf = whole.pfs[0]
    node.table.reread_pfs({pf.address: replace(pf, rdma=None)})  # mlxfwreset
    node.looks()
    node.says(kernel("firmware version: 28.39.1002"))
    node.table.reread_pfs({pf.address: pf})
    node.looks()
    before = node.wrong()
    node.looks(2)

    assert (before, node.wrong()) == ({0: ["firmware-fatal"]}, {})


def test_flood_is_read_in_portions_and_keeps_one_incident(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rail_errors, "_MOST_RECORDS", 5)
    flood = [kernel(f"Fatal error {number} detected") for number in range(12)]
    with KernelLog(node.log_path) as log:
        writer = packets(node.log_path)
        for text in flood:
            os.write(writer, text.encode())
        read = []
        for _ in range(4):
            node.errors.look_at_log(log)
            (sample,) = (
                line for line in node.errors.text().splitlines() if line.startswith("railnet_kernel_messages_total{")
            )
            read.append(int(sample.rpartition(" ")[2]))
        os.close(writer)

    assert read == [5, 10, 12, 12]
    assert node.wrong() == {0: ["firmware-fatal"]}


def test_log_that_is_absent_is_said_once_and_tried_again(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rail_errors, "_LOG_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(rail_errors, "_LOG_PAUSE_SECONDS", 0.01)
    node.log_path.unlink()

    async def scenario() -> list[str | None]:
        serving = asyncio.create_task(node.errors.serve_log())
        await asyncio.sleep(0.1)
        troubles = [node.errors.trouble]
        os.mkfifo(node.log_path)
        async with asyncio.timeout(20):
            while node.errors.trouble is not None:  # noqa: ASYNC110 - the daemon sets no event
                await asyncio.sleep(0.01)
        serving.cancel()
        return [*troubles, node.errors.trouble]

    absent, present = asyncio.run(scenario())

    assert (
        absent
        == f"{node.log_path}: No such file or directory: the container needs this device (the value railsCondition.kernelMessages), or name it by host.kernelLog"
    )
    assert present is None
    assert [record.message for record in caplog.records if "kernel's log" in record.message] == [
        f"the kernel's log is not read: {absent}"
    ]


def test_no_counter_is_read_if_the_thresholds_are_ignored(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.configuration = replace(node.configuration, port_thresholds=PortThresholds.none())
    node.start()
    asked = note_asked(monkeypatch)
    node.storm()
    node.says(kernel(FATAL))

    assert (asked, node.wrong()) == ([], {0: ["firmware-fatal"]})


def test_nothing_is_watched_unless_the_condition_is_wanted(node: Node) -> None:
    node.configuration = replace(node.configuration, publish=Publish())
    node.start()

    assert node.errors.work() == {}
    assert "railnet_kernel" not in node.errors.text()
