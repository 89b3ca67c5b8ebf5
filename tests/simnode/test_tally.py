"""What is told of a churn: counts by kind and result, and of a violation all that concerns it."""

import pytest

from simnode.chaos.tally import RAIL_ADD, Tally, rendered

ONE, OTHER, VF = "1" * 64, "2" * 64, "0000:03:00.1"
LOG = f"12:00 ADD {ONE[:12]} of pod default/one\n12:01 ADD {OTHER[:12]} of pod default/other\n12:02 VF {VF} is late\n"


@pytest.fixture
def tally() -> Tally:
    tally = Tally(seed=7)
    tally.operation(RAIL_ADD, "ok", (ONE, VF), 10.0)
    tally.operation(RAIL_ADD, "ok", (OTHER,), 30.0)
    tally.operation("DEL", "code 11", (ONE, VF))
    tally.operation("DEL", "ok", (ONE, VF))
    tally.kill("executable", (OTHER,))
    return tally


def test_operations_are_counted_by_kind_and_result_and_kills_apart(tally: Tally) -> None:
    summary = tally.summary(60.0)

    assert (summary["operations"], summary["rail_adds_ok"], summary["rail_adds_ok_percent"]) == (4, 2, 50.0)
    assert summary["operations_by_kind_and_result"] == {RAIL_ADD: {"ok": 2}, "DEL": {"code 11": 1, "ok": 1}}
    assert (summary["kills"], summary["kills_by_kind"]) == (1, {"executable": 1})
    assert (summary["seconds"], summary["seed"], summary["left_over"]) == (60.0, 7, 0)


def test_only_timed_operations_have_percentiles(tally: Tally) -> None:
    assert tally.summary(60.0)["milliseconds"] == {RAIL_ADD: {"p50": 20.0, "p99": 10.0}}


def test_violation_has_what_was_done_to_the_sandbox_it_names_and_the_daemons_words_about_it_and_its_vfs(
    tally: Tally,
) -> None:
    tally.violation(f"record left over: {ONE}@eth0.json", LOG)

    (told,) = tally.wrong
    assert [line.split(" ", 3)[-1].partition(",")[0] for line in told.splitlines()[1:4]] == [
        f"{RAIL_ADD}: ok",
        "DEL: code 11",
        "DEL: ok",
    ]
    assert [line for line in told.splitlines() if "log:" in line] == [
        f"  log: 12:00 ADD {ONE[:12]} of pod default/one",
        f"  log: 12:02 VF {VF} is late",
    ]


def test_violation_of_a_vf_has_who_had_it(tally: Tally) -> None:
    tally.violation(f"VF misplaced: {VF}", LOG)

    (told,) = tally.wrong
    assert ONE[:12] in told
    assert OTHER[:12] not in told
    assert f"log: 12:02 VF {VF} is late" in told
    assert f"log: 12:00 ADD {ONE[:12]} of pod default/one" in told


def test_summary_prints_seed_and_left_over(tally: Tally) -> None:
    tally.violation("link left over: planted", "")

    lines = list(rendered(tally.summary(60.0)))
    assert lines[-3:] == ["seed 7", "link left over: planted", "left over: 1"]
