"""When a port's errors are too many, and when that is over; and the false alarms of other programs that must not come again."""

import re
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.fabric.port_counter_thresholds import (
    COUNTERS,
    PortHistory,
    PortReading,
    PortState,
    PortThresholds,
    Threshold,
    errors,
    judged,
)
from railnet.fabric.rails_condition import Moment, condition, seen

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ACTIVE, LOST, INCIDENT = PortState(-1.0), PortState(None), PortState(None, incident=True)
CARD, OTHER_CARD = ("0000:03:00.0", "1"), ("0000:03:00.0", "2")
STEP = 10.0  # seconds between two readings
DEFAULTS = PortThresholds()
HOUR, RECOVERY = 3600, 600


def at(second: float) -> Moment:
    return Moment(second, NOON + timedelta(seconds=second))


class Port:
    """A port that is read each ten seconds."""

    def __init__(self, thresholds: PortThresholds = DEFAULTS) -> None:
        self.thresholds = thresholds
        self.second, self.identity = 0.0, CARD
        self.values: dict[str, int] = {}
        self.history: PortHistory | None = None

    def read(self, state: PortState = ACTIVE, *, answers: bool = True) -> None:
        counters = {f"ports/1/counters/{name}": value for name, value in self.values.items()}
        reading = PortReading(self.identity, "mlx5_0", counters) if answers else None
        self.history = judged(self.history, reading, state, self.thresholds, at(self.second))
        self.second += STEP

    def moves(self, name: str, *steps: int, state: PortState = ACTIVE) -> None:
        """Have a counter move by so much before each reading."""
        for step in steps:
            self.values[name] = self.values.get(name, 0) + step
            self.read(state)

    @property
    def wrong(self) -> list[tuple[str, bool]]:
        return [] if self.history is None else [(error.name, error.severe) for error in errors(self.history)]


@pytest.fixture
def port() -> Port:
    port = Port()
    port.values = dict.fromkeys(COUNTERS, 0)
    port.read()
    return port


def test_storm_of_symbol_errors_is_said_two_readings_later_and_its_words_stay(port: Port) -> None:
    port.moves("symbol_error", 5000, 5000)
    assert port.history is not None
    (error,) = errors(port.history)
    port.moves("symbol_error", 5000, 5000)
    assert list(errors(port.history)) == [error]
    assert error.text == (
        "port 1 of mlx5_0 counts too many symbol_error since 2026-01-01T12:00:20Z (5000, allowed are 120/60m): "
        "check the cable, the transceivers and the switch port"
    )
    assert (error.reason, error.name, error.severe) == ("PortErrors", "symbol_error", True)


@pytest.mark.parametrize("name", [name for name in COUNTERS if DEFAULTS.of(name) is not None])
def test_as_many_events_as_the_threshold_allows_are_not_too_many(port: Port, name: str) -> None:
    threshold = DEFAULTS.of(name)
    assert threshold is not None
    port.moves(name, threshold.events, 0, 0)
    assert port.wrong == []
    port.moves(name, 1, 0)
    assert [found for found, _ in port.wrong] == [name]


def test_what_other_ports_can_cause_is_no_reason_against_this_card(port: Port) -> None:
    for name in ("port_rcv_errors", "port_xmit_discards"):
        port.moves(name, 10_000, 0)

    assert port.wrong == [("port_rcv_errors", False), ("port_xmit_discards", False)]


def test_congestion_is_judged_only_where_a_threshold_is_set(port: Port) -> None:
    port.moves("port_xmit_wait", 1 << 30, 0)
    judging = Port(PortThresholds(port_xmit_wait=Threshold(1000, 60.0)))
    judging.values = {"port_xmit_wait": 0}
    judging.read()
    judging.moves("port_xmit_wait", 5000, 0)

    assert port.wrong == []
    assert judging.wrong == [("port_xmit_wait", False)]


def test_events_since_the_boot_are_never_too_many(port: Port) -> None:
    fresh = Port()
    fresh.values = dict.fromkeys(COUNTERS, 14)
    for _ in range(20):
        fresh.read()

    assert fresh.wrong == []


@pytest.mark.slow
def test_slow_events_below_the_rate_are_never_too_many(port: Port) -> None:
    for _ in range(24 * 60):  # one a minute, for a day
        port.moves("symbol_error", 1, 0, 0, 0, 0, 0)
        assert port.wrong == []


def test_excess_is_over_ten_minutes_after_the_last_error_and_not_before(port: Port) -> None:
    port.moves("symbol_error", 500, 0)
    assert port.wrong
    begun = port.second
    while port.wrong:
        port.moves("symbol_error", 0)

    assert RECOVERY - 2 * STEP <= port.second - begun <= RECOVERY + 2 * STEP
    port.moves("symbol_error", *(0 for _ in range(100)))
    assert port.wrong == []


def test_excess_stays_while_half_of_the_rate_goes_on(port: Port) -> None:
    port.moves("symbol_error", 500, 0)
    for _ in range(200):  # 72 an hour are below the threshold, and above its half
        port.moves("symbol_error", 1, 0, 0, 0, 0)

    assert [name for name, _ in port.wrong] == ["symbol_error"]


def test_counter_that_is_reset_begins_anew(port: Port) -> None:
    port.moves("symbol_error", 100, 0)
    port.values["symbol_error"] = 0  # perfquery -R, or the driver loaded anew
    port.read()
    port.values["symbol_error"] = 20
    port.read()
    port.read()
    assert port.wrong == []


def test_counter_that_is_full_raises_nothing_and_keeps_what_it_raised_for_an_hour(port: Port) -> None:
    full = Port()
    full.values = {"link_downed": 255, "symbol_error": 65535}
    for _ in range(100):
        full.read()
    assert full.wrong == []

    port.values["symbol_error"] = 65535  # by a storm of a second
    last = port.second
    while port.second < last + HOUR:
        port.read()
    assert port.history is not None
    (error,) = errors(port.history)
    assert error.text.endswith(
        "; the counter is full and shows no more of them: reset it when that is done (perfquery -R)"
    )
    reset = deepcopy(port)
    reset.values["symbol_error"] = 0
    reset.read()
    assert reset.wrong == []
    for _ in range(1000):
        port.read()
        assert port.wrong == []


def test_counter_of_four_bits_that_fills_up_slowly_marks_no_healthy_node_for_good() -> None:
    port, name = Port(), "local_link_integrity_errors"
    port.values = {name: 11}  # from months ago
    port.read()
    for _ in range(4):
        port.moves(name, *(0 for _ in range(60)), 1)  # once in ten minutes
    port.moves(name, 0)
    full, begun = port.wrong, port.second
    while port.wrong and port.second < 3 * HOUR:
        port.moves(name, 0)

    assert full == [(name, True)]
    assert HOUR - 3 * STEP <= port.second - begun <= HOUR + STEP


def test_full_counter_keeps_nothing_of_a_link_that_was_trained_anew(port: Port) -> None:
    port.values["symbol_error"] = 65535
    port.read()
    port.read()
    assert port.wrong
    port.read(INCIDENT)
    active = PortState(port.second)
    while port.second < active.active_since + RECOVERY:  # type: ignore[operator]
        assert port.wrong
        port.read(active)
    port.read(active)

    assert port.wrong == []


def test_gpud_1247_link_that_settles_is_good_again_without_an_operator_and_one_that_goes_on_is_not(port: Port) -> None:
    """leptonai/gpud#1247: a port flapped while a new fabric settled, and kept its node drained for days though it was ACTIVE since.

    There the flap stayed until an operator took it back. The pull request lets it end when the port was stable for a time, which a
    port that still flaps never is.
    """
    port.moves("link_downed", 1, 1, 1)
    assert port.wrong == [("link_downed", True)]
    port.moves("link_downed", *(0 for _ in range(62)))
    settled = port.wrong
    for _ in range(3):
        port.moves("link_downed", 1)
    for _ in range(6):  # once in eight minutes
        port.moves("link_downed", 1, *(0 for _ in range(47)))
        assert port.wrong == [("link_downed", True)]

    assert settled == []


def test_card_that_does_not_answer_keeps_its_excess_for_an_hour(port: Port) -> None:
    port.moves("symbol_error", 500, 0)
    while port.second < HOUR - STEP:
        port.read(answers=False)
    assert port.wrong
    while port.second < HOUR + 5 * STEP:
        port.read(answers=False)
    assert port.wrong == []


def test_errors_of_a_reading_that_hung_for_long_count_with_their_rate(port: Port) -> None:
    port.second += 24 * HOUR / 2  # such a long span is forgotten before
    port.moves("symbol_error", 1000, 0)
    assert port.wrong == []
    port.second += 50 * 60  # 100 errors within 50 minutes
    port.moves("symbol_error", 100, 0)
    assert port.wrong == []


@pytest.mark.parametrize("name", [name for name in COUNTERS if name != "link_downed"])
def test_errors_while_a_link_is_lost_and_trains_are_the_loss(port: Port, name: str) -> None:
    port.moves(name, 14, state=ACTIVE)  # just before the loss
    port.moves(name, 1 << 20, 0, state=INCIDENT)
    port.moves(name, 1 << 20, 0, 0, state=PortState(port.second - 1))  # ACTIVE again for a second

    assert port.wrong == []


class Planes(Port):
    """A card with two planes, of which the second one keeps the rail ACTIVE."""

    def read_planes(self, **values: int) -> None:
        """Read counters of the first plane, all of them, or none while its link is lost."""
        counters = {f"ports/2/counters/{name}": value for name, value in values.items()}
        counters |= dict.fromkeys(("ports/3/counters/symbol_error", "ports/3/counters/link_downed"), 0)
        self.history = judged(
            self.history, PortReading(CARD, "mlx5_0", counters), ACTIVE, self.thresholds, at(self.second)
        )
        self.second += STEP


def test_plane_that_was_lost_and_trained_while_another_kept_the_rail_is_no_error() -> None:
    planes = Planes()
    for _ in range(2):
        planes.read_planes(symbol_error=14, link_downed=0)
    planes.read_planes(symbol_error=2000, link_downed=0)  # just before the loss
    for _ in range(12):
        planes.read_planes()
    for _ in range(5):
        planes.read_planes(symbol_error=5000, link_downed=3)
        assert planes.wrong == []
    planes.read_planes(symbol_error=9000, link_downed=3)
    planes.read_planes(symbol_error=9000, link_downed=3)

    assert planes.wrong == [("symbol_error", True)]


def test_plane_that_was_lost_between_two_readings_is_one_loss_and_no_error() -> None:
    planes = Planes()
    for losses in (0, 0, 1):
        planes.read_planes(symbol_error=5000 * losses, link_downed=losses)
    planes.read_planes(symbol_error=5000, link_downed=1)
    once = planes.wrong
    for losses in (2, 3):
        planes.read_planes(symbol_error=5000, link_downed=losses)

    assert (once, planes.wrong) == ([], [("link_downed", True)])


def test_card_that_did_not_answer_has_no_plane_that_was_lost() -> None:
    planes = Planes()
    planes.read_planes(symbol_error=0)
    planes.read(answers=False)
    planes.read_planes(symbol_error=5000)
    planes.read_planes(symbol_error=5000)

    assert planes.wrong == [("symbol_error", True)]


def test_switch_that_starts_anew_loses_the_link_and_is_no_error(port: Port) -> None:
    port.moves("link_downed", 1, state=LOST)
    port.moves("link_downed", 0, 2, 1, 1, 0, state=INCIDENT)  # the link trains, and is lost again
    port.moves("link_downed", 0, 0)
    assert port.wrong == []


def test_losses_while_the_counter_was_not_read_are_of_an_incident_that_is_over(port: Port) -> None:
    for _ in range(12):  # the card did not answer while the switch started anew, and the condition said so
        port.read(INCIDENT, answers=False)
    port.moves("link_downed", 4, *(0 for _ in range(6)), state=PortState(port.second - 1))

    assert port.wrong == []


def test_link_that_is_lost_three_times_within_an_hour_for_a_moment_is_bad(port: Port) -> None:
    for _ in range(2):
        port.moves("link_downed", 1, *(0 for _ in range(60)))
        assert port.wrong == []
    port.moves("link_downed", 1)

    assert port.wrong == [("link_downed", True)]


def test_driver_without_counters_and_counters_that_come_late_are_nothing() -> None:
    port = Port()
    port.read()
    port.values = {"symbol_error": 60_000, "unknown_counter": 5}
    port.read()
    port.read()
    assert port.history is not None
    assert (port.wrong, list(port.history.counters)) == ([], ["ports/1/counters/symbol_error"])


@given(st.lists(st.tuples(st.integers(0, 65535), st.sampled_from([ACTIVE, LOST, INCIDENT])), max_size=300))
def test_memory_of_a_counter_is_bounded(readings: list[tuple[int, PortState]]) -> None:
    port = Port()
    for value, state in readings:
        port.values["symbol_error"] = value
        port.read(state)
    kept = () if port.history is None else port.history.counters.values()
    assert all(len(counter.spans) <= 65 for counter in kept)


def test_nvsentinel_1663_device_nodes_that_a_platform_does_not_make_are_nothing() -> None:
    """NVIDIA/NVSentinel#1663: GB300 nodes have no /dev/infiniband/issm*; each GPU node was marked as broken for it, though RDMA worked.

    What a port counts, and whether it is ACTIVE, is all that is judged: the reading of a port has no device nodes.
    """
    port = Port()
    port.values = dict.fromkeys(COUNTERS, 0)
    for _ in range(10):
        port.read()

    assert PortReading._fields == ("identity", "device", "counters")
    assert port.wrong == []


def test_nvsentinel_1716_healthy_gb300_has_a_true_condition() -> None:
    """NVIDIA/NVSentinel#1716: the same check on other GB300 nodes asked to replace machines whose NCCL all-reduce passed.

    The condition of four rails without issm, with the counters of a working card, is True.
    """
    ports = [Port() for _ in range(4)]
    for port in ports:
        # The values of a working card, among them full ones: leptonai/gpud#943.
        port.values = {"link_downed": 255, "excessive_buffer_overrun_errors": 15, "port_xmit_discards": 65535}
        port.values |= {"port_xmit_wait": (1 << 32) - 1, "symbol_error": 0}
        for _ in range(10):
            port.read()
    rails = seen({}, dict.fromkeys(range(4)), at(0))
    found = {rail: list(errors(port.history)) for rail, port in enumerate(ports) if port.history is not None}
    said = condition(rails, None, at(100), errors=found)

    assert said is not None
    assert (said.status, said.reason) == ("True", "RailsActive")


def test_nvsentinel_1529_card_after_a_reboot_or_in_place_of_another_has_nothing_of_the_old_one(port: Port) -> None:
    """NVIDIA/NVSentinel#1529: conditions of a card stayed for good when it had another name after a reboot; also, a management card's counters
    were judged.

    The history belongs to the card: another card in the slot begins anew, and a daemon that starts has none.
    The rest is test_rail_errors.py, for cards that are no rail.
    """
    port.moves("symbol_error", 500, 0)
    assert port.wrong
    port.identity, port.values = OTHER_CARD, {"symbol_error": 60_000}
    port.read()
    port.read()
    assert port.wrong == []


def test_table_of_the_page_has_the_defaults() -> None:
    page = (Path(__file__).parents[3] / "docs/operations.md").read_text()
    rows = re.findall(
        r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \| `([0-9]+/[0-9]+m|ignore)` \| [^|]* \| (False|True)", page, re.MULTILINE
    )
    shown = {name: (default, status) for names, default, status in rows for name in re.findall("`([a-z_]+)`", names)}

    severe = {
        "symbol_error",
        "link_downed",
        "link_error_recovery",
        "local_link_integrity_errors",
        "excessive_buffer_overrun_errors",
    }
    assert shown == {
        name: (str(DEFAULTS.of(name) or "ignore"), "False" if name in severe else "True") for name in COUNTERS
    }
