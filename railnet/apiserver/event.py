"""Events, as `kubectl describe` shows them: one object for each object that they are about and each reason, with a count.

Source: kubernetes/api, core/v1 Event. `events.k8s.io/v1` has the same objects.
"""

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from railnet.apiserver.request import ApiObject, JsonObject, Request, create, merge_patch
from railnet.objects.involved_object import InvolvedObject
from railnet.vf.record import SandboxPod

_COMPONENT = "railnet"
_MAX_TEXT = 1024  # what events.k8s.io/v1 allows in `note`, in bytes
_MAX_NAME = 253  # DNS subdomain, RFC 1123
_REMEMBERED = 1024
_DEFAULT = "default"  # the namespace of events about objects that have none: client-go, tools/record/event.go


def involved_pod(pod: SandboxPod) -> InvolvedObject:
    """Return a pod as what an event is about. A static pod has kubelet's own UID here: `kubectl describe` looks for that."""
    return InvolvedObject("v1", "Pod", pod.namespace, pod.name, pod.uid)


def involved_node(name: str) -> InvolvedObject:
    """Return a node as what an event is about. Its UID is its name, as in kubelet's events: `kubectl describe node` looks for that."""
    return InvolvedObject("v1", "Node", None, name, name)


@dataclass(frozen=True, slots=True)
class Event:
    """An event about an object, seen `count` times.

    Attributes:
        series: tells this series from others of the same object and reason.
        node: where it happened; empty for what happens on no node.
        component: the program that reports it.
    """

    about: InvolvedObject
    reason: str
    text: str
    series: str
    first: datetime
    last: datetime
    count: int = 1
    type: Literal["Normal", "Warning"] = "Warning"
    node: str = ""
    component: str = _COMPONENT

    def __str__(self) -> str:
        """Name the event in the log."""
        return f"event {self.reason} of {self.about}"

    @property
    def key(self) -> Hashable:
        """The same for all events of one series: the newest one has the count of all."""
        return ("event", self.about, self.reason, self.series)

    @property
    def name(self) -> str:
        """The object's name: the same for all events of a series, and for no other event."""
        digest = hashlib.sha256(f"{self.about.uid} {self.reason} {self.series}".encode()).hexdigest()[:16]
        return f"{self.about.name[: _MAX_NAME - 1 - len(digest)].rstrip('-.')}.{digest}"

    @property
    def _namespace(self) -> str:
        return _DEFAULT if self.about.namespace is None else self.about.namespace

    def requests(self) -> Sequence[Request]:
        """Create the object; the second of a series and later ones change it, and create it if it has expired."""
        about = ApiObject("v1", "events", self.name, self._namespace)
        new = create(about, self._whole())
        return (new,) if self.count == 1 else (merge_patch(about, self._changing()), new)

    def _whole(self) -> JsonObject:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": self._namespace},
            "involvedObject": self.about.reference(),
            "type": self.type,
            "reason": self.reason,
            "source": {"component": self.component, **({"host": self.node} if self.node else {})},
            "firstTimestamp": _time(self.first),
            **self._changing(),
        }

    def _changing(self) -> JsonObject:
        return {"message": _shortened(self.text), "count": self.count, "lastTimestamp": _time(self.last)}


class Series:
    """Counts the events of each object and reason; remembers the latest thousand series."""

    def __init__(self, node: str) -> None:
        """Begin to count; `node` is the node that reports the events."""
        self._node = node
        self._latest: dict[Hashable, Event] = {}

    def warning(self, pod: SandboxPod, reason: str, text: str, now: datetime) -> Event:
        """Return the event of one more warning about a pod."""
        return self.event(involved_pod(pod), reason, text, now)

    def event(
        self,
        about: InvolvedObject,
        reason: str,
        text: str,
        now: datetime,
        kind: Literal["Normal", "Warning"] = "Warning",
    ) -> Event:
        """Return one more event about an object."""
        event = Event(about, reason, text, now.isoformat(), now, now, type=kind, node=self._node)
        before = self._latest.pop((about, reason), None)
        if before is not None:
            event = replace(event, series=before.series, first=before.first, count=before.count + 1)
        elif len(self._latest) >= _REMEMBERED:
            del self._latest[next(iter(self._latest))]
        self._latest[about, reason] = event
        return event


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # metav1.Time has no fractions of a second


def _shortened(text: str) -> str:
    raw = text.encode(errors="replace")  # a pod may give a link a name that is not UTF-8
    return raw.decode() if len(raw) <= _MAX_TEXT else raw[: _MAX_TEXT - 3].decode(errors="ignore") + "…"
