"""The report in the Common Test Report Format: the keys that its schema requires, and a verdict for each pair."""

import json
from typing import Any

from railnet.validate.findings.judgement import RailLimits, judge
from railnet.validate.pair_plan import Pair
from railnet.validate.probe.measured import Measured
from railnet.validate.reports.ctrf import as_ctrf
from railnet.validate.reports.report import Report
from railnet.validate.reports.run_description import RunDescription
from tests.railnet.validate.measurements import all_pairs, cut, measured, mtus


def told(pairs: list[Measured], untested: tuple[str, ...] = (), small: str = "") -> dict[str, Any]:
    found = judge(pairs, mtus(0, "abc", **({small: 2044} if small else {})), RailLimits())
    report = Report({}, tuple(pairs), found.findings, untested, RailLimits(), False, found.warnings, found.unjudged)
    about = RunDescription("2026-11-27T08:00:00+00:00", 12.5, "10.0.0.1:6443", "lab")
    return as_ctrf(report._replace(about=about))


def statuses(document: dict[str, Any]) -> dict[str, str]:
    return {test["name"]: test["status"] for test in document["results"]["tests"]}


def test_document_has_what_the_schema_requires_and_no_other_key() -> None:
    document = json.loads(json.dumps(told(all_pairs(0, "abc")), allow_nan=False))
    results = document["results"]

    assert document.keys() == {"reportFormat", "specVersion", "timestamp", "generatedBy", "results"}
    assert (document["reportFormat"], document["timestamp"]) == ("CTRF", "2026-11-27T08:00:00+00:00")
    assert results.keys() == {"tool", "summary", "tests", "environment"}
    assert results["summary"] == {
        "tests": 4,
        "passed": 3,
        "failed": 0,
        "skipped": 1,
        "pending": 0,
        "other": 0,
        "start": 1795766400000,
        "stop": 1795766412500,
    }
    assert results["environment"]["testEnvironment"] == "lab 10.0.0.1:6443"
    for test in results["tests"]:
        assert (
            {"name", "status", "duration", "suite"} <= test.keys() <= {"name", "status", "duration", "suite", "message"}
        )
        assert isinstance(test["duration"], int)


def test_pair_with_a_finding_has_failed_with_its_words() -> None:
    document = told([measured(0, "a", "b"), cut(0, "a", "c"), cut(0, "b", "c")])
    failed = {test["name"]: test["message"] for test in document["results"]["tests"] if test["status"] == "failed"}

    assert failed.keys() == {"rail 0 between a and c", "rail 0 between b and c"}
    assert "rail 0 of node c, all its 2 pairs: no connection" in failed["rail 0 between a and c"]
    assert document["results"]["summary"]["failed"] == 2


def test_what_has_no_verdict_is_other_as_aicr_has_it() -> None:
    untried = Measured(Pair(0, "a", "c"), untried="no answer")
    untested = ("rail 0 between a and c: no answer", "node d: it is not ready")
    found = statuses(told([measured(0, "a", "b"), untried], untested))

    assert found == {
        "rail 0 between a and b": "passed",
        "rail 0 between a and c": "other",
        "not tested: node d: it is not ready": "other",
        "rail 0: the speed of TCP": "other",
        "optional tools": "skipped",
    }


def test_finding_about_a_node_without_a_pair_has_a_test_of_its_own() -> None:
    found = statuses(told(all_pairs(0, "ab"), small="c"))

    assert found["rail 0 of c"] == "failed"


def test_warning_has_passed_with_its_words() -> None:
    pairs = [one._replace(gbits=60.0) if one.pair.client == "c" else one for one in all_pairs(0, "abc")]
    tests = told(pairs)["results"]["tests"]

    assert [(test["status"], "TCP 60.0 Gbit/s" in test.get("message", "")) for test in tests[:3]] == [
        ("passed", False),
        ("passed", True),
        ("passed", True),
    ]
