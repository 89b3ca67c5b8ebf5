"""The statistics of a churn: counts by kind and result, and a violation with all that concerns it."""

import pytest

from simnode.chaos.churn_statistics import RAIL_ADD, ChurnStatistics, rendered

ONE, OTHER, VF = "1" * 64, "2" * 64, "0000:03:00.1"
LOG = f"12:00 ADD {ONE[:12]} of pod default/one\n12:01 ADD {OTHER[:12]} of pod default/other\n12:02 VF {VF} is late\n"


@pytest.fixture
def statistics() -> ChurnStatistics:
    statistics = ChurnStatistics(seed=7)
    statistics.add_operation(RAIL_ADD, "ok", (ONE, VF), 10.0)
    statistics.add_operation(RAIL_ADD, "ok", (OTHER,), 30.0)
    statistics.add_operation("DEL", "code 11", (ONE, VF))
    statistics.add_operation("DEL", "ok", (ONE, VF))
    statistics.add_kill("executable", (OTHER,))
    return statistics


def test_summary_counts_operations_by_kind_and_result_and_kills_separately(statistics: ChurnStatistics) -> None:
    summary = statistics.summary(60.0)

    assert (summary["operations"], summary["rail_adds_ok"], summary["rail_adds_ok_percent"]) == (4, 2, 50.0)
    assert summary["operations_by_kind_and_result"] == {RAIL_ADD: {"ok": 2}, "DEL": {"code 11": 1, "ok": 1}}
    assert (summary["kills"], summary["kills_by_kind"]) == (1, {"executable": 1})
    assert (summary["seconds"], summary["seed"], summary["left_over"]) == (60.0, 7, 0)


def test_summary_has_percentiles_of_timed_operations_only(statistics: ChurnStatistics) -> None:
    assert statistics.summary(60.0)["milliseconds"] == {RAIL_ADD: {"p50": 20.0, "p99": 10.0}}


def test_reviews_are_no_operations_and_have_figures_of_their_own(statistics: ChurnStatistics) -> None:
    for milliseconds in (4.0, 8.0, 700.04):
        statistics.add_review(milliseconds)

    summary = statistics.summary(60.0)
    assert summary["reviews"] == {"count": 3, "p50": 8.0, "p99": 8.0, "longest": 700.0}
    assert summary["operations"] == 4
    assert any(line.startswith("  reviews           3, p50 8.0 ms") for line in rendered(summary))


def test_summary_without_reviews_prints_none(statistics: ChurnStatistics) -> None:
    summary = statistics.summary(60.0)

    assert summary["reviews"] == {}
    assert not any("reviews" in line for line in rendered(summary))


def test_violation_has_the_events_of_its_sandbox_and_the_log_lines_about_sandbox_and_vfs(
    statistics: ChurnStatistics,
) -> None:
    statistics.add_violation(f"record left over: {ONE}@eth0.json", LOG)

    (violation,) = statistics.violations
    assert [line.split(" ", 3)[-1].partition(",")[0] for line in violation.splitlines()[1:4]] == [
        f"{RAIL_ADD}: ok",
        "DEL: code 11",
        "DEL: ok",
    ]
    assert [line for line in violation.splitlines() if "log:" in line] == [
        f"  log: 12:00 ADD {ONE[:12]} of pod default/one",
        f"  log: 12:02 VF {VF} is late",
    ]


def test_violation_of_a_vf_names_the_sandboxes_that_had_the_vf(statistics: ChurnStatistics) -> None:
    statistics.add_violation(f"VF misplaced: {VF}", LOG)

    (violation,) = statistics.violations
    assert ONE[:12] in violation
    assert OTHER[:12] not in violation
    assert f"log: 12:02 VF {VF} is late" in violation
    assert f"log: 12:00 ADD {ONE[:12]} of pod default/one" in violation


def test_summary_prints_seed_and_left_over(statistics: ChurnStatistics) -> None:
    statistics.add_violation("link left over: planted", "")

    lines = list(rendered(statistics.summary(60.0)))
    assert lines[-3:] == ["seed 7", "link left over: planted", "left over: 1"]
