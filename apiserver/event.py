"""Events about pods, as `kubectl describe pod` shows them: one object for each pod and reason, with a count.

Source: kubernetes/api, core/v1 Event. Every API server from 1.20 on takes this kind; `events.k8s.io/v1` has the same objects.
"""

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from apiserver.request import ApiObject, JsonObject, Request, create, merge_patch
from vf.record import Pod

_COMPONENT = "railnet"
_MAX_TEXT = 1024  # what events.k8s.io/v1 allows in `note`, in bytes
_MAX_NAME = 253  # DNS subdomain, RFC 1123
_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class Event:
    """A warning about a pod, seen `count` times. A static pod has kubelet's own UID here: `kubectl describe` looks for that."""

    pod: Pod
    node: str
    reason: str
    text: str
    first: datetime
    last: datetime
    count: int = 1

    def __str__(self) -> str:
        """Name the event in the log."""
        return f"event {self.reason} of pod {self.pod.namespace}/{self.pod.name}"

    @property
    def key(self) -> Hashable:
        """The same for all events of one series: the newest one has the count of all."""
        return ("event", self.pod, self.reason)

    @property
    def name(self) -> str:
        """The object's name: the same for all events of a series, and for no other event."""
        digest = hashlib.sha256(f"{self.pod.uid} {self.reason} {self.first.isoformat()}".encode()).hexdigest()[:16]
        return f"{self.pod.name[: _MAX_NAME - 1 - len(digest)].rstrip('-.')}.{digest}"

    def requests(self) -> Sequence[Request]:
        """Create the object; the second of a series and later ones change it, and create it if it has expired."""
        about = ApiObject("v1", "events", self.name, self.pod.namespace)
        new = create(about, self._whole())
        return (new,) if self.count == 1 else (merge_patch(about, self._changing()), new)

    def _whole(self) -> JsonObject:
        pod = self.pod
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": pod.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
            "type": "Warning",
            "reason": self.reason,
            "source": {"component": _COMPONENT, "host": self.node},
            "firstTimestamp": _time(self.first),
            **self._changing(),
        }

    def _changing(self) -> JsonObject:
        return {"message": _shortened(self.text), "count": self.count, "lastTimestamp": _time(self.last)}


class Series:
    """Counts the warnings of each pod and reason; remembers the latest thousand series."""

    def __init__(self, node: str) -> None:
        """Begin to count; `node` is the node that reports the events."""
        self._node = node
        self._latest: dict[Hashable, Event] = {}

    def warning(self, pod: Pod, reason: str, text: str, now: datetime) -> Event:
        """Return the event of one more warning."""
        event = Event(pod, self._node, reason, text, now, now)
        before = self._latest.pop(event.key, None)
        if before is not None:
            event = replace(event, first=before.first, count=before.count + 1)
        elif len(self._latest) >= _REMEMBERED:
            del self._latest[next(iter(self._latest))]
        self._latest[event.key] = event
        return event


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # metav1.Time has no fractions of a second


def _shortened(text: str) -> str:
    raw = text.encode(errors="replace")  # a pod may give a link a name that is not UTF-8
    return raw.decode() if len(raw) <= _MAX_TEXT else raw[: _MAX_TEXT - 3].decode(errors="ignore") + "…"
