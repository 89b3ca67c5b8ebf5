"""The report in the Common Test Report Format, which pipelines and NVIDIA's AICR read. Pure.

Source: ctrf-io/ctrf, schema/ctrf.schema.json; the version of the specification is the one that NVIDIA/aicr, pkg/validator/ctrf/types.go, has.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from railnet import VERSION
from railnet.validate.all_reduce.judgement import KIND
from railnet.validate.all_reduce.rail_all_reduce import RailAllReduce, all_reduce_lines
from railnet.validate.findings.rail_finding import RailFinding, nodes_of_pair
from railnet.validate.probe.measured import Measured
from railnet.validate.reports.report import Report, not_tried

_SPECIFICATION = "0.0.1"
_STATUSES = ("passed", "failed", "skipped", "pending", "other")  # AICR takes `other` for a test without a verdict


def as_ctrf(report: Report) -> dict[str, Any]:
    """Return the report: a test for each pair of a rail, and one for each thing that has no verdict."""
    tests = [*_tests(report)]
    start = round(datetime.fromisoformat(report.about.started).timestamp() * 1000) if report.about.started else 0
    counts = {status: sum(test["status"] == status for test in tests) for status in _STATUSES}
    times = {"start": start, "stop": start + round(report.about.seconds * 1000)}
    return {
        "reportFormat": "CTRF",
        "specVersion": _SPECIFICATION,
        **({"timestamp": report.about.started} if report.about.started else {}),
        "generatedBy": "railnet validate",
        "results": {
            "tool": {"name": "railnet", "version": VERSION},
            "summary": {"tests": len(tests), **counts, **times},
            "tests": tests,
            "environment": {
                "appName": "railnet",
                "appVersion": VERSION,
                "testEnvironment": " ".join(filter(None, (report.about.context, report.about.server))) or "unknown",
            },
        },
    }


def _tests(report: Report) -> Iterator[dict[str, Any]]:
    for measurement in report.measured:
        yield _pair_test(report, measurement)
    yield from _other_findings(report)
    for all_reduce in report.all_reduces:
        if all_reduce.ranks:  # else it is not tested, which is a test below
            yield _all_reduce_test(report, all_reduce)
    of_pairs = {measurement.untried for measurement in report.measured if measurement.untried}
    for why in report.untested:
        if not any(why.endswith(f": {of_pair}") for of_pair in of_pairs):  # a pair has its test already
            yield _test(f"not tested: {why}", "other", "not tested", [why])
    for unjudged in report.unjudged:
        name = f"rail {unjudged.rail}: the speed of {unjudged.speed.name}"
        yield _test(name, "other", "not judged", [unjudged.text])
    if why := not_tried(report):
        yield _test("optional tools", "skipped", "not tried", [why])


def _pair_test(report: Report, measurement: Measured) -> dict[str, Any]:
    rail = measurement.pair.rail
    findings = [finding for finding in report.findings if _is_about(finding, measurement)]
    warnings = [finding for finding in report.warnings if _is_about(finding, measurement)]
    status = "other" if measurement.untried else "failed" if findings else "passed"
    words = [measurement.untried, *(finding.text for finding in (*findings, *warnings))]
    name = f"rail {rail} between {' and '.join(nodes_of_pair(measurement))}"
    return _test(name, status, f"rail {rail}", words, round(measurement.seconds * 1000))


def _other_findings(report: Report) -> Iterator[dict[str, Any]]:
    """Yield a test for each finding of a node that has no pair, such as a netdev's MTU."""
    seen = {id(finding) for finding in report.findings for pair in report.measured if _is_about(finding, pair)}
    for finding in report.findings:
        if id(finding) not in seen and finding.kind != KIND:
            name = f"rail {finding.rail} of {' and '.join(finding.nodes)}"
            yield _test(name, "failed", f"rail {finding.rail}", [finding.text])


def _all_reduce_test(report: Report, all_reduce: RailAllReduce) -> dict[str, Any]:
    """Return the test of a rail's all-reduce; `other` if it has no result for a reason that is no finding, such as an image without PyTorch."""
    findings, warnings = (
        [finding.text for finding in findings if finding.kind == KIND and finding.rail == all_reduce.rail]
        for findings in (report.findings, report.warnings)
    )
    status = "failed" if findings else "passed" if all_reduce.is_done else "other"
    words = [*findings, *warnings, *all_reduce_lines(all_reduce)]
    name = f"rail {all_reduce.rail}: all-reduce of {len(all_reduce.ranks)} nodes"
    return _test(name, status, f"rail {all_reduce.rail}", words, round(all_reduce.seconds * 1000))


def _test(name: str, status: str, suite: str, words: list[str], milliseconds: int = 0) -> dict[str, Any]:
    message = "; ".join(filter(None, words))
    told = {"name": name, "status": status, "duration": milliseconds, "suite": ["railnet validate", suite]}
    return {**told, "message": message} if message else told


def _is_about(finding: RailFinding, measurement: Measured) -> bool:
    return (
        finding.kind != KIND
        and finding.rail == measurement.pair.rail
        and set(nodes_of_pair(measurement)).issuperset(finding.nodes)
    )
