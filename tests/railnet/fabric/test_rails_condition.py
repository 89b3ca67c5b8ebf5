"""The node's condition: what it says after what was seen of the ports, and when it is written. The clock is the test's own."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from railnet.fabric.rails_condition import (
    LIMITS,
    TAINT,
    TYPE,
    Condition,
    Histories,
    Moment,
    RailError,
    RailNews,
    Status,
    Written,
    condition,
    error_news,
    news,
    next_judgement,
    next_write,
    seen,
    taints,
    unknown,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NEVER = float("inf")
DOWN = "port 1 of PF 0000:03:00.0 (mlx5_0) is '1: DOWN', '2: Polling': check its cable and switch port"
UP = None
Look = tuple[float, str | None]


def at(seconds: float) -> Moment:
    return Moment(seconds, NOON + timedelta(seconds=seconds))


def after(*looks: Look) -> dict[int, Any]:
    """Return the history of rail 0 after looks at its port, each at a second."""
    rails: Histories = {}
    for seconds, trouble in looks:
        rails = seen(rails, {0: trouble}, at(seconds))
    return dict(rails)


def said(looks: Sequence[Look], found: Status | None = None) -> Condition | None:
    return condition(after(*looks), found, at(looks[-1][0]))


ACTIVE = Condition("True", "RailsActive", "1 of 1 rails are ACTIVE")
TEN_FLAPS = [(0.0, UP), *((6.0 * flap + half, (DOWN, UP)[half == 3]) for flap in range(1, 11) for half in (0, 3))]


@pytest.mark.parametrize(
    ("looks", "found", "expected"),
    [
        ([(0, UP)], None, ("True", "RailsActive", "1 of 1 rails are ACTIVE")),
        ([(0, DOWN)], None, None),
        ([(0, DOWN)], "True", None),
        ([(0, DOWN), (9.9, DOWN)], None, None),
        (
            [(0, DOWN), (10, DOWN)],
            None,
            ("False", "RailNotActive", f"rail 0 is not ACTIVE since 2026-01-01T12:00:00Z or earlier: {DOWN}"),
        ),
        ([(0, UP), (100, DOWN), (109, DOWN)], "True", None),
        ([(0, UP), (100, DOWN), (109, DOWN), (109.5, UP)], "True", ("True", "RailsActive", "1 of 1 rails are ACTIVE")),
        (
            [(0, UP), (100, DOWN), (110, DOWN)],
            "True",
            ("False", "RailNotActive", f"rail 0 is not ACTIVE since 2026-01-01T12:01:40Z: {DOWN}"),
        ),
        (
            [(0, UP), (100, DOWN), (110, DOWN), (120, "it is in INIT")],
            "False",
            ("False", "RailNotActive", "rail 0 is not ACTIVE since 2026-01-01T12:01:40Z: it is in INIT"),
        ),
        (
            [(0, UP), (100, DOWN), (110, DOWN), (120, UP), (179, UP)],
            "False",
            (
                "False",
                "RailNotActive",
                f"rail 0 is not ACTIVE since 2026-01-01T12:01:40Z (ACTIVE again since 2026-01-01T12:02:00Z): {DOWN}",
            ),
        ),
        ([(0, UP), (100, DOWN), (110, DOWN), (120, UP), (180, UP)], "False", ("True", "RailsActive", ACTIVE.message)),
        (
            [(0, UP), (100, DOWN), (110, DOWN), (120, UP), (150, DOWN)],
            "False",
            ("False", "RailNotActive", f"rail 0 is not ACTIVE since 2026-01-01T12:01:40Z (lost 2 times): {DOWN}"),
        ),
        (
            TEN_FLAPS,
            "True",
            ("False", "RailFlaps", f"rail 0 flaps: lost 10 times since 2026-01-01T12:00:06Z; the last time {DOWN}"),
        ),
        (
            [*TEN_FLAPS, (122, UP)],
            "False",
            ("False", "RailFlaps", f"rail 0 flaps: lost 10 times since 2026-01-01T12:00:06Z; the last time {DOWN}"),
        ),
        ([*TEN_FLAPS, (123, UP)], "False", ("True", "RailsActive", ACTIVE.message)),
        (
            [(0, UP), (30, DOWN), (31, UP), (60, DOWN), (61, UP), (91, DOWN), (92, UP)],
            "True",
            ("True", "RailsActive", ACTIVE.message),
        ),
        ([(0, UP)], "False", None),
        ([(0, UP), (59, UP)], "False", None),
        ([(0, UP), (60, UP)], "False", ("True", "RailsActive", ACTIVE.message)),
        ([(0, UP)], "Unknown", ("True", "RailsActive", ACTIVE.message)),
    ],
    ids=[
        "ACTIVE at the start",
        "down at the start: not said at once",
        "down at the start of a later daemon",
        "down at the start for almost ten seconds",
        "down at the start for ten seconds",
        "down for nine seconds",
        "down for less than ten seconds, and back",
        "down for ten seconds",
        "another reason",
        "back, but not for a minute",
        "back for a minute",
        "lost again within the minute",
        "ten flaps in a minute",
        "after the flaps, not a minute",
        "after the flaps, a minute",
        "three losses in more than a minute",
        "ACTIVE at the start, and the API server has False",
        "ACTIVE for less than a minute, and the API server has False",
        "ACTIVE for a minute, and the API server has False",
        "ACTIVE at the start, and the API server has Unknown",
    ],
)
def test_condition_after_looks_at_a_port(
    looks: list[Look], found: Status | None, expected: tuple[str, str, str] | None
) -> None:
    what = said(looks, found)

    assert (what and (what.status, what.reason, what.message)) == expected


def test_node_without_a_rail_is_true() -> None:
    assert condition({}, None, at(0)) == Condition("True", "NoRails", "this node has no rail that pods can have")


def test_numbers_that_are_not_known_are_unknown() -> None:
    assert unknown("rails.json is damaged").status == "Unknown"


def test_message_names_each_rail_and_stays_short_if_a_whole_node_is_cut_off() -> None:
    looks = dict.fromkeys(range(128), DOWN)
    what = condition(seen(seen({}, looks, at(0)), looks, at(10)), None, at(10))

    assert what is not None
    assert what.rails == frozenset(range(128))
    assert [what.message.count(f"rail {rail} is not ACTIVE") for rail in (0, 7, 8)] == [1, 1, 0]
    assert what.message.endswith("; and rails " + ", ".join(map(str, range(8, 128))))
    assert len(what.message) < 2000


def test_one_rail_that_flaps_and_one_that_is_down_are_not_active() -> None:
    rails: Histories = {}
    for seconds, port in TEN_FLAPS:
        rails = seen(rails, {0: port, 1: DOWN}, at(seconds))
    what = condition(rails, None, at(63))

    assert what is not None
    assert (what.reason, what.rails) == ("RailNotActive", frozenset((0, 1)))
    assert what.message.startswith("rail 0 flaps: lost 10 times since")


def test_rail_that_the_node_has_no_more_is_forgotten() -> None:
    rails = after((0, DOWN), (10, DOWN))

    assert condition(seen(rails, {}, at(11)), "False", at(11)) == Condition(
        "True", "NoRails", "this node has no rail that pods can have"
    )


def test_flapping_port_is_written_once_with_the_first_count_and_once_a_minute_with_the_newest() -> None:
    """A port that is lost every six seconds for five minutes: the status is written once, and then the count, once a minute."""
    rails: Histories = {}
    written: Written | None = None
    writes: list[tuple[float, Status, str]] = []
    for second in range(361):
        flap = 0 < second <= 300 and second % 6 < 3
        rails = seen(rails, {0: DOWN if flap else UP}, at(second))
        wanted = condition(rails, written and written.condition.status, at(second))
        if second >= next_write(wanted, written):
            written = Written(wanted or written.condition, second)  # type: ignore[union-attr]
            writes.append((second, written.condition.status, written.condition.message.partition(";")[0]))

    assert [(second, status) for second, status, _ in writes] == [
        (0, "True"),
        (12, "False"),
        *((12 + 60 * minute, "False") for minute in range(1, 6)),
    ]
    assert writes[1][2] == "rail 0 flaps: lost 3 times since 2026-01-01T12:00:01Z"
    assert writes[2][2] == "rail 0 flaps: lost 13 times since 2026-01-01T12:00:01Z"


FALSE = Condition("False", "RailNotActive", "rail 0 …", frozenset({0}))


@pytest.mark.parametrize(
    ("wanted", "written", "due"),
    [
        (None, None, NEVER),
        (ACTIVE, None, 0),
        (ACTIVE, Written(ACTIVE, 100), 400),
        (None, Written(ACTIVE, 100), 400),
        (FALSE, Written(ACTIVE, 100), 110),
        (Condition("False", "RailNotActive", "other words", frozenset({0})), Written(FALSE, 100), 160),
        (Condition("False", "RailFlaps", "rail 0 …", frozenset({0})), Written(FALSE, 100), 110),
        (Condition("False", "RailNotActive", "rails 0 and 1", frozenset({0, 1})), Written(FALSE, 100), 110),
    ],
    ids=[
        "nothing to say",
        "never written",
        "heartbeat",
        "heartbeat of what stays",
        "status",
        "words",
        "reason",
        "another rail",
    ],
)
def test_when_the_condition_is_written(wanted: Condition | None, written: Written | None, due: float) -> None:
    assert next_write(wanted, written) == due


@pytest.mark.parametrize(
    ("looks", "found", "due"),
    [
        ([(5, UP)], None, NEVER),
        ([(5, UP)], "False", 65),
        ([(5, DOWN)], None, 15),
        ([(5, DOWN), (15, DOWN)], None, NEVER),
        ([(5, DOWN), (15, DOWN), (20, UP)], "False", 80),
        ([(5, UP), (70, UP)], "False", NEVER),
    ],
    ids=[
        "ACTIVE",
        "ACTIVE, and the API server has False",
        "just down",
        "down",
        "back",
        "ACTIVE, and another rail is down",
    ],
)
def test_when_a_rail_is_judged_again(looks: list[Look], found: Status | None, due: float) -> None:
    assert next_judgement(after(*looks), found, at(looks[-1][0])) == due


def test_no_rail_is_never_judged_again() -> None:
    assert next_judgement({}, None, at(0)) == NEVER


def test_news_are_of_the_begin_of_an_incident_of_the_begin_of_flaps_and_of_the_end() -> None:
    rails: Histories = {}
    told: list[tuple[float, list[RailNews]]] = []
    looks = [
        (0.0, UP),
        (10.0, DOWN),
        (20.0, DOWN),
        (22.0, UP),
        (24.0, DOWN),
        (26.0, UP),
        (28.0, DOWN),
        (30.0, UP),
        (90.0, UP),
    ]
    for seconds, port in looks:
        newer = seen(rails, {3: port}, at(seconds))
        if found := news(rails, newer):
            told.append((seconds, found))
        rails = newer

    assert told == [
        (
            20.0,
            [
                RailNews(
                    3, "RailnetRailNotActive", f"rail 3 is not ACTIVE since 2026-01-01T12:00:10Z: {DOWN}", warning=True
                )
            ],
        ),
        (
            28.0,
            [
                RailNews(
                    3,
                    "RailnetRailFlaps",
                    f"rail 3 flaps: lost 3 times since 2026-01-01T12:00:10Z; the last time {DOWN}",
                    warning=True,
                )
            ],
        ),
        (
            90.0,
            [
                RailNews(
                    3,
                    "RailnetRailActive",
                    "rail 3 is ACTIVE again: it was lost 3 times since 2026-01-01T12:00:10Z",
                    warning=False,
                )
            ],
        ),
    ]


OURS = {"key": TAINT, "effect": "NoSchedule"}
FOREIGN = {"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "true"}


@pytest.mark.parametrize(
    ("found", "wanted", "expected"),
    [
        ([], False, None),
        ([], True, [OURS]),
        ([FOREIGN], False, None),
        ([FOREIGN], True, [FOREIGN, OURS]),
        ([FOREIGN, OURS], True, None),
        ([OURS, FOREIGN], False, [FOREIGN]),
        ([FOREIGN, FOREIGN, OURS], False, [FOREIGN, FOREIGN]),
        ([{"key": TAINT, "effect": "NoExecute"}], True, [OURS]),
        ([OURS, {"key": TAINT, "effect": "NoExecute"}], True, [OURS]),
        (["nonsense", 7, None], True, ["nonsense", 7, None, OURS]),
    ],
    ids=str,
)
def test_only_the_own_taint_comes_and_goes(found: list[Any], wanted: bool, expected: list[Any] | None) -> None:
    assert taints(found, wanted=wanted) == expected


def test_limits_bound_the_writes_of_a_minute() -> None:
    """Whatever the ports do, two writes are ten seconds apart."""
    conditions = [Condition("False", "RailNotActive", str(number), frozenset({number})) for number in range(600)]
    written, count = Written(ACTIVE, 0.0), 0
    for tenth, wanted in enumerate(conditions):
        if tenth / 10 >= next_write(wanted, written):
            written, count = Written(wanted, tenth / 10), count + 1

    assert count <= 60 / LIMITS.quiet


SEVERE = RailError("PortErrors", "symbol_error", severe=True, text="too many symbol_error: check the cable")
OF_KERNEL = RailError("KernelErrors", "firmware-fatal", severe=True, text="the kernel says: reset the card")
SLIGHT = RailError("PortErrors", "port_rcv_errors", severe=False, text="packets with errors arrive")


@pytest.mark.parametrize(
    ("errors", "status", "reason", "message", "rails"),
    [
        ({1: [SEVERE]}, "False", "PortErrors", "rail 1: too many symbol_error: check the cable", {1}),
        (
            {0: [SEVERE], 1: [OF_KERNEL, SLIGHT]},
            "False",
            "KernelErrors",
            "rail 0: too many symbol_error: check the cable; rail 1: the kernel says: reset the card",
            {0, 1},
        ),
        ({1: [SLIGHT]}, "True", "RailsDegraded", "2 of 2 rails are ACTIVE; rail 1: packets with errors arrive", set()),
        ({7: [SEVERE, SLIGHT]}, "True", "RailsActive", "2 of 2 rails are ACTIVE", set()),
    ],
    ids=["one rail", "two rails", "not the card's own", "a rail that the node has no more"],
)
def test_errors_of_rails_that_are_active(
    errors: dict[int, list[RailError]], status: str, reason: str, message: str, rails: set[int]
) -> None:
    assert condition(seen({}, {0: None, 1: None}, at(0)), None, at(0), errors=errors) == Condition(
        status,  # type: ignore[arg-type]
        reason,
        message,
        frozenset(rails),
    )


def test_lost_rail_comes_before_errors_of_another() -> None:
    rails = seen(seen({}, {0: "down", 1: None}, at(0)), {0: "down", 1: None}, at(20))
    both = condition(rails, None, at(20), errors={1: [SEVERE]})

    assert both is not None
    assert (both.reason, both.rails) == ("RailNotActive", frozenset({0, 1}))
    assert both.message.endswith("Z or earlier: down; rail 1: too many symbol_error: check the cable")


def test_message_stays_short_if_all_ports_have_errors() -> None:
    many = {rail: [SEVERE] for rail in range(40)}
    found = condition(seen({}, dict.fromkeys(range(40)), at(0)), None, at(0), errors=many)

    assert found is not None
    assert found.message.endswith("; rail 7: too many symbol_error: check the cable; and 32 more")


def test_news_of_errors_are_of_their_begin_and_their_end() -> None:
    before, after = {0: [SEVERE], 1: [OF_KERNEL]}, {0: [SEVERE, SLIGHT]}

    assert error_news(before, before) == []
    assert error_news(before, after) == [
        RailNews(0, "RailnetPortErrors", "rail 0: packets with errors arrive", warning=True),
        RailNews(1, "RailnetKernelErrorsOver", "rail 1: firmware-fatal is over", warning=False),
    ]


def test_policy_of_the_page_for_nvsentinel_reads_this_condition() -> None:
    """The form is that of NVSentinel's Kubernetes Object Monitor (NVIDIA/NVSentinel, docs/configuration/kubernetes-object-monitor.md)."""
    page = (Path(__file__).parents[3] / "docs/operations.md").read_text()
    (block,) = (
        block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "kubernetes-object-monitor" in block
    )
    (policy,) = yaml.safe_load(block)["kubernetes-object-monitor"]["policies"]

    assert policy["resource"] == {"group": "", "version": "v1", "kind": "Node"}
    expression = f'resource.status.conditions.filter(c, c.type == "{TYPE}" && c.status == "False").size() > 0'
    assert policy["predicate"] == {"expression": f"{expression}\n"}
    assert policy["healthEvent"].keys() == {"componentClass", "isFatal", "message", "recommendedAction", "errorCode"}
