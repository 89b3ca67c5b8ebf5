"""The checker finds what an expression names and no program exports, and lets pass what is exported."""

import re
from pathlib import Path

import pytest

from tests.monitoring.exported import exported
from tests.monitoring.expressions import Matcher, Named, Selector, faults, named
from tests.monitoring.promtool import check_expressions, find_series

QUEUE = "railnet_cni_queue"


def test_selectors_labels_and_matchers_are_found() -> None:
    assert named(
        'sum by (node, le) (rate(a_total{x="1",y!~"b|c"}[5m] offset 1h)) / on (job) group_left () b > bool 1e3'
    ) == Named(
        (Selector("a_total", (Matcher("x", "=", "1"), Matcher("y", "!~", "b|c"))), Selector("b", ())),
        frozenset({"node", "le", "job"}),
    )


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("railnet_cni_queues", "railnet_cni_queues is not exported"),
        ("rate(railnet_cni_seconds[5m])", "railnet_cni_seconds is not exported"),
        (f"{QUEUE} or other", "other is not exported"),
        (f"absent({QUEUE}s)", f"{QUEUE}s is not exported"),
        ("ALERTS", "ALERTS is not exported"),
        (f'{QUEUE}{{rail="0"}}', f"{QUEUE} has no label rail"),
        (f"sum by (rail) ({QUEUE})", "no metric of the expression has the label rail"),
        (f"{QUEUE} * on (rail) group_left (pod) railnet_rail_active", "no metric of the expression has the label pod"),
        ('railnet_vfs{state="sick"}', "railnet_vfs has no state=sick"),
        ('railnet_vfs{state!="sick"}', "railnet_vfs has no state=sick"),
        ('railnet_vfs{state=~"free|sick"}', "railnet_vfs has no state=sick"),
        ('railnet_vfs{state!~"free|sick"}', "railnet_vfs has no state=sick"),
        ('railnet_cni_seconds_bucket{stage="ports"}', "railnet_cni_seconds_bucket has no stage=ports"),
        ('up{job="railnet"}', "up has no job=railnet"),
    ],
)
def test_name_that_no_program_exports_is_a_fault(expression: str, fault: str) -> None:
    assert faults(expression, exported()) == [fault]


@pytest.mark.parametrize(
    "expression",
    [
        QUEUE,
        'railnet_vfs{node=~"$node",state!="unhealthy"}',
        'rate(railnet_port_events_total{counter=~"symbol_error|link_downed"}[$__rate_interval])',
        "histogram_quantile(0.5, sum by (le) (rate(railnet_admission_review_seconds_bucket[5m])))",
        'up{job="railnet-node"} unless on (node) railnet_rail_active',
    ],
)
def test_name_that_a_program_exports_is_no_fault(expression: str) -> None:
    assert faults(expression, exported()) == []


def test_promtool_refuses_what_is_no_expression(tmp_path: Path) -> None:
    status, printed = check_expressions(tmp_path, [QUEUE, f"sum by {QUEUE}"])

    assert status
    assert re.search("expression:1.*could not parse expression", printed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "expression", ["railnet_cni_queues", f'{QUEUE}{{rail="0"}}', f"{QUEUE} > 1000", f"0 * {QUEUE} / 0"]
)
def test_expression_that_finds_no_series_is_found(tmp_path: Path, expression: str) -> None:
    status, printed = find_series(tmp_path, [QUEUE, expression], exported())

    assert status
    assert printed.count("expr:") == 1
    assert expression in printed.replace('\\"', '"')
