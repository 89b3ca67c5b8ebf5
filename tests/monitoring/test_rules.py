"""The alerts: what they ask for is exported, they fire and do not fire as they should, and each leads to a section of the documentation.

promtool evaluates the cases: series as they would be scraped each minute, and what is alerted at one moment.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.monitoring.exported import ROOT, exported
from tests.monitoring.expressions import faults, named
from tests.monitoring.promtool import answer, promtool
from tests.test_docs import leads_nowhere

FILE = ROOT / "charts/railnet/files/rules.yaml"
GROUPS: list[dict[str, Any]] = yaml.load(FILE.read_text(), yaml.CSafeLoader)["groups"]
RULES: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
EACH = pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))

_NODE = {"job": "railnet-node", "instance": "127.0.0.1:9474", "node": "gpu-7"}
_HELPER = {"job": "railnet-admission", "instance": "10.244.0.9:8080"}
_LEADER = {"job": "railnet-controllers", "instance": "10.244.0.10:8080"}


class Case(NamedTuple):
    """Series, and the alerts of one rule at one minute: for each its labels beside severity, and its value in words ("" if not said)."""

    alert: str
    series: Mapping[str, str]
    minute: int
    alerts: tuple[tuple[Mapping[str, str], str], ...] = ()


def a(name: str, target: Mapping[str, str], **labels: str) -> str:
    """Write one series."""
    inside = ",".join(f'{label}="{value}"' for label, value in {**target, **labels}.items())
    return f"{name}{{{inside}}}"


def alert(*parts: Mapping[str, str], value: str = "", **labels: str) -> tuple[Mapping[str, str], str]:
    return {name: text for part in (*parts, labels) for name, text in part.items()}, value


def port(counter: str) -> str:
    return a("railnet_port_events_total", _NODE, rail="1", counter=counter)


def of_port(**more: str) -> tuple[Mapping[str, str], str]:
    value = more.pop("value", "")
    return alert(_NODE, rail="1", value=value, **more)


def buckets(name: str, target: Mapping[str, str], until: Mapping[str, int], **labels: str) -> dict[str, str]:
    """Return a histogram's series: by bound, how many come each minute that are at most that."""
    return {a(f"{name}_bucket", target, **labels, le=bound): f"0+{count}x60" for bound, count in until.items()}


def requests(code: str) -> str:
    return a("railnet_cni_requests_total", _NODE, verb="ADD", code=code)


IDLE = {"node": "gpu-7", "namespace": "ml", "pod": "train"}


def moved(received: str, transmitted: str) -> dict[str, str]:
    """Return the series of a pod's two VFs, of which the second moves nothing."""
    names = {"received": received, "transmitted": transmitted}
    return {
        a(
            f"railnet_pod_{name}_bytes_total", _NODE, namespace="ml", pod="train", rail=rail, device=f"mlx5_{rail}"
        ): values
        for name, moves in names.items()
        for rail, values in (("4", moves), ("5", "0x40"))
    }


UP = a("up", _NODE)
LOST = a("railnet_lost_rails", _NODE, rail="1")
VFS = "railnet_vfs"
LEAKS = a("railnet_leaks_total", _NODE, kind="rails")
REVIEWS = a("railnet_admission_reviews_total", _HELPER, outcome="failed", operator="KubeDL")
EXPIRY = a("railnet_admission_certificate_expiry_timestamp_seconds", _HELPER)
UNHEALTHY = {
    reason: a(VFS, _NODE, pool="rdma/ib_vf", state="unhealthy", reason=reason) for reason in ("driver", "port")
}
POOL = {"node": "gpu-7", "pool": "rdma/ib_vf"}
ERROR = a("railnet_rail_errors", _NODE, rail="1", error="symbol_error", severity="severe")
ACTIVE = a("railnet_rail_active", _NODE, rail="1")
DAY = 86400
CALL = {"verb": "create", "resource": "services"}
CALLS = {
    result: a("railnet_controllers_requests_total", _LEADER, **CALL, result=result) for result in ("done", "failed")
}

CASES = (
    Case("RailnetDaemonAbsent", {UP: "0x10"}, 6, (alert(_NODE),)),
    Case("RailnetDaemonAbsent", {UP: "1 0 0 1x10"}, 6),
    Case("RailnetDaemonAbsent", {UP: "0x10"}, 4),
    Case("RailnetNodeSilent", {UP: "1x5 stale"}, 20, (alert(node="gpu-7"),)),
    Case("RailnetNodeSilent", {UP: "1x5 stale"}, 80),
    Case("RailnetNodeSilent", {UP: "0x30"}, 20),
    Case("RailnetNodesUnknown", {a("up", _HELPER): "1x60"}, 20, (alert(job="railnet-node"),)),
    Case("RailnetNodesUnknown", {UP: "0x60"}, 20),
    Case("RailnetDaemonRestarts", {a("railnet_daemon_restarts_total", _NODE): "0x5 1x60"}, 30, (alert(_NODE),)),
    Case("RailnetDaemonRestarts", {a("railnet_daemon_restarts_total", _NODE): "3x60"}, 30),
    Case("RailnetDaemonRestarts", {a("railnet_daemon_restarts_total", _NODE): "3x5 0x60"}, 30),
    Case(
        "RailnetHardwareHangs",
        {a("railnet_hung_reads", _NODE, card="0000:03:00.0"): "4x20"},
        6,
        (alert(_NODE, card="0000:03:00.0"),),
    ),
    Case(
        "RailnetHardwareHangs",
        {a("railnet_hung_writes", _NODE, card="0000:03:00.0"): "1x20"},
        6,
        (alert(_NODE, card="0000:03:00.0"),),
    ),
    Case("RailnetHardwareHangs", {a("railnet_hung_reads", _NODE, card="0000:03:00.0"): "1 1 0x20"}, 6),
    Case("RailnetVfsUnhealthy", {UNHEALTHY["driver"]: "2x20"}, 11, (alert(POOL, reason="driver", value="2"),)),
    Case(
        "RailnetVfsUnhealthy", {UNHEALTHY["port"]: "8x20", ACTIVE: "1x20"}, 11, (alert(POOL, reason="port", value="8"),)
    ),
    Case("RailnetVfsUnhealthy", {UNHEALTHY["port"]: "8x20", ACTIVE: "0x20"}, 11),
    Case("RailnetVfsUnhealthy", {UNHEALTHY["driver"]: "2x5 0x20"}, 11),
    Case(
        "RailnetAddsFail", {requests("0"): "0+6x40", requests("11"): "0+4x40"}, 30, (alert(node="gpu-7", value="40%"),)
    ),
    Case("RailnetAddsFail", {requests("102"): "0+4x40"}, 30, (alert(node="gpu-7", value="100%"),)),
    Case("RailnetAddsFail", {requests("0"): "0+99x40", requests("11"): "0+1x40"}, 30),
    Case("RailnetAddsFail", {requests("0"): "5x40", requests("11"): "9x40"}, 30),
    Case(
        "RailnetAddsSlow",
        buckets("railnet_cni_seconds", _NODE, {"5": 8, "10": 10, "+Inf": 10}, verb="ADD", stage="all"),
        30,
        (alert(node="gpu-7", value="8.75s"),),
    ),
    Case(
        "RailnetAddsSlow",
        buckets("railnet_cni_seconds", _NODE, {"0.1": 99, "10": 100, "+Inf": 100}, verb="ADD", stage="all"),
        30,
    ),
    Case(
        "RailnetAddsSlow",
        buckets("railnet_cni_seconds", _NODE, {"5": 8, "10": 10, "+Inf": 10}, verb="DEL", stage="all"),
        30,
    ),
    Case("RailnetRequestsQueue", {a("railnet_cni_queue", _NODE): "3x40"}, 20, (alert(_NODE),)),
    Case("RailnetRequestsQueue", {a("railnet_cni_queue", _NODE): "9 9 9 9 0x40"}, 20),
    Case("RailnetRequestsQueue", {a("railnet_cni_queue", _NODE): "3x12 0 3x40"}, 20),
    Case("RailnetLeaksAgainAndAgain", {LEAKS: "0+1x90"}, 60, (alert(_NODE, kind="rails"),)),
    Case("RailnetLeaksAgainAndAgain", {LEAKS: "0x25 40x90"}, 40),
    Case("RailnetLeaksAgainAndAgain", {LEAKS: "0x25 40x90"}, 60),
    Case("RailnetRailNotActive", {ACTIVE: "0x10"}, 3, (alert(_NODE, rail="1"),)),
    Case("RailnetRailNotActive", {ACTIVE: "1 0 1x10"}, 3),
    Case("RailnetPodsLostRails", {LOST: "0x5 2x10"}, 8, (of_port(value="2"),)),
    Case("RailnetPodsLostRails", {LOST: "0x5 2x1 0x10"}, 9),
    Case("RailnetLinkLost", {port("link_downed"): "7x20 8x10 9x60"}, 60, (of_port(counter="link_downed"),)),
    Case("RailnetLinkLost", {port("link_downed"): "7x20 8x90"}, 60),
    Case("RailnetLinkLost", {port("symbol_error"): "0+9x90"}, 60),
    Case("RailnetSymbolErrors", {port("symbol_error"): "0+2x90"}, 70, (of_port(counter="symbol_error", value="120"),)),
    Case("RailnetSymbolErrors", {port("symbol_error"): "500x30 520x90"}, 70),
    Case(
        "RailnetPortErrors", {port("port_rcv_errors"): "0+1x90"}, 70, (of_port(counter="port_rcv_errors", value="60"),)
    ),
    Case("RailnetPortErrors", {port("port_xmit_wait"): "0+100x90"}, 70),
    Case("RailnetPortErrors", {port("link_error_recovery"): "3x30 5x90"}, 70),
    Case(
        "RailnetRailErrors", {ERROR: "_x5 1x10"}, 8, (alert(_NODE, rail="1", error="symbol_error", severity="severe"),)
    ),
    Case("RailnetRailErrors", {ERROR: "_x5 1x1 stale"}, 9),
    Case(
        "RailnetRailErrors",
        {a("railnet_rail_errors", _NODE, rail="1", error="port_rcv_errors", severity="slight"): "1x20"},
        9,
    ),
    Case(
        "RailnetCounterSaturated",
        {a("railnet_port_events_saturated", _NODE, rail="1", counter="link_downed"): "1x90"},
        61,
        (of_port(counter="link_downed"),),
    ),
    Case(
        "RailnetCounterSaturated",
        {a("railnet_port_events_saturated", _NODE, rail="1", counter="link_downed"): "1x50 stale"},
        61,
    ),
    Case(
        "RailnetCountersUnreadable",
        {a("railnet_counters_unread", _NODE, card="0000:03:00.0"): "9x20"},
        11,
        (alert(_NODE, card="0000:03:00.0", value="9"),),
    ),
    Case("RailnetCountersUnreadable", {a("railnet_counters_unread", _NODE, card="0000:03:00.0"): "9x5 0x20"}, 11),
    Case("RailnetPodMovesNothing", moved(received="0x30", transmitted="0+100x30"), 21, (alert(IDLE),)),
    Case("RailnetPodMovesNothing", moved(received="0x30", transmitted="0+100x30"), 15),
    Case("RailnetPodMovesNothing", moved(received="0x10 1000000x30", transmitted="0x40"), 35),
    Case("RailnetAdmissionAbsent", {a("up", _HELPER): "1x5 0x20"}, 10, (alert(job="railnet-admission"),)),
    Case("RailnetAdmissionAbsent", {a("up", _HELPER): "1x5 stale"}, 20, (alert(job="railnet-admission"),)),
    Case("RailnetAdmissionAbsent", {a("up", _HELPER): "1x5 stale"}, 80),
    Case("RailnetAdmissionAbsent", {a("up", _HELPER): "0x20", a("up", {**_HELPER, "instance": "other"}): "1x20"}, 10),
    Case("RailnetAdmissionAbsent", {UP: "1x20"}, 10),
    Case("RailnetReplicaDown", {a("up", _LEADER): "0x20"}, 16, (alert(_LEADER),)),
    Case("RailnetReplicaDown", {a("up", _LEADER): "0x14 1x9"}, 16),
    Case("RailnetReviewsFail", {REVIEWS: "_x10 1x60"}, 12, (alert(operator="KubeDL"),)),
    Case("RailnetReviewsFail", {REVIEWS: "1x30 2x60"}, 35, (alert(operator="KubeDL"),)),
    Case("RailnetReviewsFail", {REVIEWS: "_x10 1x60"}, 40),
    Case("RailnetReviewsFail", {REVIEWS.replace("failed", "denied"): "0+1x60"}, 40),
    Case(
        "RailnetReviewsSlow",
        buckets("railnet_admission_review_seconds", _HELPER, {"1": 9, "2.5": 10, "+Inf": 10}),
        30,
        (alert(value="2.35s"),),
    ),
    Case("RailnetReviewsSlow", buckets("railnet_admission_review_seconds", _HELPER, {"0.005": 10, "+Inf": 10}), 30),
    Case("RailnetCertificateNotRenewed", {EXPIRY: f"{19 * DAY}x90"}, 60, (alert(_HELPER, value="18d 23h 0m 0s"),)),
    Case("RailnetCertificateNotRenewed", {EXPIRY: f"{19 * DAY}x10 {90 * DAY}x80"}, 60),
    Case("RailnetCertificateEnds", {EXPIRY: f"{2 * DAY}x90"}, 60, (alert(_HELPER, value="1d 23h 0m 0s"),)),
    Case("RailnetCertificateEnds", {EXPIRY: f"{19 * DAY}x90"}, 60),
    Case("RailnetNoCertificate", {a("up", _HELPER): "1x20"}, 10, (alert(_HELPER),)),
    Case("RailnetNoCertificate", {a("up", _HELPER): "1x20", EXPIRY: f"{90 * DAY}x20"}, 10),
    Case(
        "RailnetNoLeader", {a("railnet_controllers_leader", _LEADER): "0x20"}, 10, (alert(job="railnet-controllers"),)
    ),
    Case("RailnetNoLeader", {a("up", _LEADER): "0x20"}, 10, (alert(job="railnet-controllers"),)),
    Case(
        "RailnetNoLeader",
        {
            a("railnet_controllers_leader", _LEADER): "0x20",
            a("railnet_controllers_leader", {**_LEADER, "instance": "other"}): "1x20",
        },
        10,
    ),
    Case(
        "RailnetControllersRefused",
        {CALLS["done"]: "0+1x40", CALLS["failed"]: "0+3x40"},
        30,
        (alert(CALL, value="75%"),),
    ),
    Case("RailnetControllersRefused", {CALLS["done"]: "0+9x40", CALLS["failed"]: "0+1x40"}, 30),
    Case("RailnetEventsLost", {a("railnet_controllers_lost_events_total", _LEADER): "0x5 3x60"}, 30, (alert(_LEADER),)),
    Case("RailnetEventsLost", {a("railnet_controllers_lost_events_total", _LEADER): "3x60"}, 30),
)


def expected(case: Case) -> Iterator[dict[str, Any]]:
    """Yield the alerts of a case with all their labels and annotations."""
    rule = RULES[case.alert]
    for labels, value in case.alerts:
        annotations = {name: filled(text, labels, value) for name, text in rule["annotations"].items()}
        yield {"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": annotations}


def filled(text: str, labels: Mapping[str, str], value: str) -> str:
    """Return an annotation with the labels and the value of an alert."""
    template = r"\{\{ \$(?:labels[.](\w+)|value[^}]*) \}\}"
    return re.sub(template, lambda found: labels[found[1]] if found[1] else value, text)


def judged(folder: Path, cases: tuple[Case, ...]) -> tuple[int, str]:
    """Have promtool evaluate the rules on the cases."""
    tests = [
        {
            "name": f"case {number}: {case.alert}",
            "interval": "1m",
            "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
            "alert_rule_test": [
                {"alertname": case.alert, "eval_time": f"{case.minute}m", "exp_alerts": list(expected(case))}
            ],
        }
        for number, case in enumerate(cases)
    ]
    path = folder / "cases.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(FILE)], "evaluation_interval": "1m", "tests": tests}))
    return answer("test", "rules", path)


def test_promtool_accepts_the_rules() -> None:
    assert f"SUCCESS: {len(RULES)} rules found" in promtool("check", "rules", FILE)


@EACH
def test_alert_asks_for_what_is_exported(rule: dict[str, Any]) -> None:
    assert faults(rule["expr"], exported()) == []


@pytest.mark.slow
def test_alerts_fire_and_do_not_fire(tmp_path: Path) -> None:
    status, printed = judged(tmp_path, CASES)

    assert status == 0, printed


@pytest.mark.parametrize(
    "case",
    [
        Case("RailnetDaemonAbsent", {UP: "1x10"}, 6, (alert(_NODE),)),
        Case("RailnetDaemonAbsent", {UP: "0x10"}, 6),
        Case(
            "RailnetCountersUnreadable",
            {a("railnet_counters_unread", _NODE, card="c"): "9x20"},
            11,
            (alert(_NODE, card="c", value="8"),),
        ),
    ],
    ids=["does not fire", "fires", "says another value"],
)
def test_case_that_is_wrong_fails(tmp_path: Path, case: Case) -> None:
    status, printed = judged(tmp_path, (case,))

    assert status
    assert case.alert in printed


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    assert {case.alert for case in CASES if case.alerts} == RULES.keys()
    assert {case.alert for case in CASES if not case.alerts} == RULES.keys()


def test_series_of_the_cases_are_exported() -> None:
    of_exported = {(one.name, frozenset(one.labels)) for one in exported()}
    named_by_cases = {
        (selector.metric, frozenset(one.label for one in selector.matchers))
        for case in CASES
        for series in case.series
        for selector in named(series).selectors
    }

    assert named_by_cases - of_exported == set()


@EACH
def test_alert_says_what_happened_what_it_means_and_what_to_do(rule: dict[str, Any]) -> None:
    annotations = rule["annotations"]

    assert set(annotations) == {"summary", "description", "action", "runbook"}
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert len(re.sub(r"\{\{.*?\}\}", "1", annotations["summary"])) < 90
    assert not annotations["summary"].endswith(".")
    assert annotations["description"].endswith(".")
    assert annotations["action"].endswith(".")


@EACH
def test_alert_leads_to_a_section(rule: dict[str, Any]) -> None:
    runbook = rule["annotations"]["runbook"]

    assert "#" in runbook
    assert not leads_nowhere(ROOT / "README.md", runbook)


@EACH
def test_annotations_name_labels_that_the_answer_has(rule: dict[str, Any]) -> None:
    """A case that fires has them all; this is for a label that only some alerts of a rule have."""
    named_labels = set(re.findall(r"\$labels[.](\w+)", str(rule["annotations"])))

    for case in CASES:
        if case.alert == rule["alert"]:
            assert all(named_labels <= set(labels) for labels, _ in case.alerts)


def test_table_of_the_documentation_has_every_alert() -> None:
    rows = re.findall(r"^\| `(Railnet\w+)` \| (\w+) \|", (ROOT / "docs/operations.md").read_text(), re.MULTILINE)

    assert rows == [(name, rule["labels"]["severity"]) for name, rule in RULES.items()]
