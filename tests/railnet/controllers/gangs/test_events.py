"""Events about gangs wait until it is known what they are about."""

from typing import Any

from railnet.apiserver.client import StreamingApiServer
from railnet.controllers.gangs.events import GangEvents
from railnet.controllers.gangs.root_objects import GangRoots
from railnet.gangs.planning_result import About, Asked, Said
from railnet.objects.involved_object import InvolvedObject
from railnet.objects.owner_reference import OwnerReference
from tests.railnet.controllers.cluster_in_memory import Cluster

JOB = OwnerReference("batch/v1", "Job", "bert", "uid-of-bert")
ASKED = Asked("ml", JOB)


class Written:
    """Takes the place of JobEvents."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []

    def warning(self, about: InvolvedObject, _: str, text: str) -> None:
        self.texts.append((about.name, text))


def test_what_is_said_again_while_the_root_is_not_known_waits_once() -> None:
    """A pass says what is wrong each time, and an API server that asks for patience may delay the root for minutes."""
    roots, written = GangRoots(StreamingApiServer(Cluster(), lambda: "a-token", "test"), lambda _: None), Written()
    events: Any = written
    gang_events = GangEvents(events, roots)
    about = About(InvolvedObject("v1", "Pod", "ml", "bert-0", "uid-1"), ASKED)
    for _ in range(3):
        for text in ("first", "second"):
            gang_events.say(Said(about, "GangRefused", text, "Warning"))
    assert written.texts == []

    roots.reconcile(ASKED)  # the Job is gone
    gang_events.answered(ASKED)
    assert written.texts == [("bert", "first"), ("bert", "second")]
