"""A pod of a gang is parsed once and recognised once, however many controllers reduce it."""

from typing import Any

import pytest

from railnet.controllers.shared_pod_watch import alone, both
from railnet.controllers.training_pod import training_pod
from railnet.gangs.pod import GangPods
from railnet.jobs import reported_pod
from railnet.jobs.reported_pod import ReportedPod
from tests.railnet.controllers.builders import pod

GANG = {"pod-group.scheduling.sigs.k8s.io/name": "ring", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the calls that read a pod, as they are made."""
    made: list[str] = []
    for name in ("parse", "recognise"):
        real = getattr(reported_pod, name)

        def counted(*arguments: Any, name: str = name, real: Any = real) -> Any:
            made.append(name)
            return real(*arguments)

        monkeypatch.setattr(reported_pod, name, counted)
    return made


@pytest.mark.parametrize("spec", [{}, {"schedulingGates": [{"name": "railnet.io/gang"}]}], ids=["bound", "gated"])
def test_event_of_a_gangs_pod_parses_once_and_recognises_once(calls: list[str], spec: dict[str, Any]) -> None:
    kept = both(training_pod, GangPods().reduce)(pod("mnist-0", labels=GANG, rank=0, spec=spec))

    assert kept is not None
    assert kept.one is not None
    assert kept.other is not None
    assert kept.other.request is not None
    assert calls == ["parse", "recognise"]


def test_one_controller_alone_reads_the_pod_once(calls: list[str]) -> None:
    assert alone(training_pod)(pod("mnist-0")) is not None
    assert calls == ["parse", "recognise"]


def test_pod_that_cannot_be_parsed_is_tried_once_and_still_holds_its_node(calls: list[str]) -> None:
    strange = pod("mnist-0", labels={**GANG, "other": 5})

    kept = both(training_pod, GangPods().reduce)(strange)

    assert kept is not None
    assert kept.one is None
    assert kept.other is not None
    assert (kept.other.node, kept.other.role) == ("node-a", "")
    assert kept.other.request is not None
    assert calls == ["parse"]


def test_pod_with_a_malformed_annotation_is_of_no_job_and_its_recognition_is_not_repeated(calls: list[str]) -> None:
    strange = ReportedPod(pod("mnist-0", annotations={"railnet.io/size": "many"}))

    assert (strange.member, strange.member) == (None, None)
    assert strange.pod is not None
    assert calls == ["parse", "recognise"]
