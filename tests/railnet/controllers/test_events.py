"""Events of controllers: each object, reason and text once, and the same object after a restart."""

from railnet.apiserver.event import Event
from railnet.controllers.events import JobEvents
from railnet.objects.involved_object import InvolvedObject

JOB = InvolvedObject("kubeflow.org/v1", "TFJob", "ml", "mnist", "uid-1")
OTHER = InvolvedObject("kubeflow.org/v1", "TFJob", "ml", "mnist", "uid-2")


class Said:
    def __init__(self) -> None:
        self.queued: list[Event] = []
        self.now = 0.0
        self.events = JobEvents(self.queued.append, lambda: self.now)  # type: ignore[arg-type]


def test_what_was_said_is_not_said_again() -> None:
    said = Said()
    for _ in range(3):
        said.events.warning(JOB, "Refused", "rename it")

    assert [(one.about, one.reason, one.text, one.type) for one in said.queued] == [
        (JOB, "Refused", "rename it", "Warning")
    ]


def test_another_object_reason_or_text_is_another_event() -> None:
    said = Said()
    said.events.warning(JOB, "Refused", "rename it")
    said.events.warning(OTHER, "Refused", "rename it")
    said.events.warning(JOB, "Late", "rename it")
    said.events.normal(JOB, "Refused", "rename that")

    assert len({one.name for one in said.queued}) == len(said.queued) == 4
    assert said.queued[-1].type == "Normal"


def test_next_leader_creates_the_object_of_the_same_name() -> None:
    first, second = Said(), Said()
    for leader in (first, second):
        leader.events.warning(JOB, "Refused", "rename it")

    assert [one.name for one in first.queued] == [one.name for one in second.queued]
    assert [len(one.requests()) for one in second.queued] == [1]


def test_what_is_still_true_is_said_again_when_the_event_has_expired() -> None:
    said = Said()
    for said.now in (0.0, 3599.0, 3600.0, 3601.0):
        said.events.warning(JOB, "Refused", "rename it")

    assert len(said.queued) == 2
