"""Events about pods, as `kubectl describe pod` shows them: one object for each pod and reason, which counts.

Source: kubernetes/api, core/v1 Event. Of the two kinds it is the one that every API server from 1.20 on takes from anybody;
`events.k8s.io/v1` has the same objects.
"""

import hashlib
import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from apiserver.client import Request, path
from vf.record import Pod

_COMPONENT = "railnet"
_MAX_TEXT = 1024  # what events.k8s.io/v1 allows in `note`, in bytes
_MAX_NAME = 253  # DNS subdomain, RFC 1123
_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class Event:
    """A warning about a pod, seen `count` times. For a static pod kubelet's own UID is right: describe looks for it."""

    pod: Pod
    node: str
    reason: str
    text: str
    first: datetime
    last: datetime
    count: int = 1

    def __str__(self) -> str:
        """Name it in the log."""
        return f"event {self.reason} of pod {self.pod.namespace}/{self.pod.name}"

    @property
    def key(self) -> Hashable:
        """The newest counts those before it."""
        return ("event", self.pod, self.reason)

    @property
    def name(self) -> str:
        """Name the object: the same for all of a series, and for no other."""
        digest = hashlib.sha256(f"{self.pod.uid} {self.reason} {self.first.isoformat()}".encode()).hexdigest()[:16]
        return f"{self.pod.name[: _MAX_NAME - 1 - len(digest)].rstrip('-.')}.{digest}"

    def requests(self) -> Sequence[Request]:
        """Make the object; one of a series changes it, and makes it if it has expired."""
        events = path("namespaces", self.pod.namespace, "events")
        make = Request("POST", events, "application/json", json.dumps(self._whole()).encode())
        if self.count == 1:
            return (make,)
        change = json.dumps(self._changing()).encode()
        return (
            Request(
                "PATCH",
                path("namespaces", self.pod.namespace, "events", self.name),
                "application/merge-patch+json",
                change,
            ),
            make,
        )

    def _whole(self) -> dict[str, object]:
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

    def _changing(self) -> dict[str, object]:
        return {"message": _shortened(self.text), "count": self.count, "lastTimestamp": _time(self.last)}


class Series:
    """Counts how often each pod was warned for each reason; remembers the latest thousand."""

    def __init__(self, node: str) -> None:
        """Begin to count; `node` is where the events come from."""
        self._node = node
        self._latest: dict[Hashable, Event] = {}

    def warning(self, pod: Pod, reason: str, text: str, now: datetime) -> Event:
        """Count one more."""
        event = Event(pod, self._node, reason, text, now, now)
        before = self._latest.pop(event.key, None)
        if before is not None:
            event = replace(event, first=before.first, count=before.count + 1)
        elif len(self._latest) >= _REMEMBERED:
            del self._latest[next(iter(self._latest))]
        self._latest[event.key] = event
        return event


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # metav1.Time knows no fractions


def _shortened(text: str) -> str:
    raw = text.encode(errors="replace")  # a name that a pod gave to a link may be no UTF-8
    return raw.decode() if len(raw) <= _MAX_TEXT else raw[: _MAX_TEXT - 3].decode(errors="ignore") + "…"
