"""One watch of pods for two controllers: each sees the changes of its own reduction, and no fault of the other's."""

import itertools
import logging
from typing import Any

import pytest

from railnet.apiserver.request import JsonObject
from railnet.controllers.shared_pod_watch import both, each
from railnet.jobs.reported_pod import ReportedPod

Change = tuple[Any, Any]


def label(found: ReportedPod) -> str | None:
    value: str | None = found.document["metadata"].get("label")
    return value


def node(found: ReportedPod) -> str | None:
    value: str | None = found.document["spec"].get("node")
    return value


def pod(metadata: JsonObject, **spec: str) -> JsonObject:
    return {"metadata": metadata, "spec": spec}


def test_each_is_told_of_its_own_changes_only() -> None:
    labels: list[Change] = []
    nodes: list[Change] = []
    keep = both(label, node)
    changed = each(lambda *change: labels.append(change), lambda *change: nodes.append(change))
    states = [None, keep(pod({"label": "a"})), keep(pod({"label": "a"}, node="n")), keep(pod({}, node="n")), None]
    for before, after in itertools.pairwise(states):
        changed(before, after)

    assert labels == [(None, "a"), ("a", None)]
    assert nodes == [(None, "n"), ("n", None)]


def test_pod_that_concerns_neither_is_not_kept() -> None:
    assert both(label, node)(pod({})) is None


def test_pod_that_one_cannot_read_is_the_others(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        kept = both(label, node)({"metadata": {"name": "w-0", "label": "a"}})

    assert kept == ("a", None)
    assert "pod w-0 cannot be read" in caplog.text


def test_error_in_one_does_not_cost_the_other_the_change() -> None:
    nodes: list[Change] = []

    def fail(before: object, after: object) -> None:
        raise RuntimeError("at this change")

    changed = each(fail, lambda *change: nodes.append(change))
    with pytest.raises(RuntimeError):
        changed(None, both(label, node)(pod({"label": "a"}, node="n")))

    assert nodes == [(None, "n")]
