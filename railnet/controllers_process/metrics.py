"""The controllers' metrics. No label names a pod, a namespace or a job."""

import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

from railnet.apiserver.client import Absent, Conflict, RequestFailed, StreamingApiServer, StreamingTransport
from railnet.apiserver.request import JsonObject, Request
from railnet.prometheus_text import Labels, Sample, counted, family


class ControllersMetrics:
    """The metrics of one replica. A replica that waits for the Lease knows no objects, and no key waits there.

    Attributes:
        leads: whether the replica leads.
        objects: returns how many objects of each kind it knows.
        waiting: returns how many keys of each controller wait, or are being looked at.
        lost: returns how many events were given up.
        gangs: returns the figures of the gangs; empty if none are placed.
    """

    def __init__(self) -> None:
        """Start with all counters at zero."""
        self._lock = threading.Lock()
        self._requests: Counter[Labels] = Counter()
        self.leads = False
        self.objects: Callable[[], Mapping[str, int]] = dict
        self.waiting: Callable[[], Mapping[str, int]] = dict
        self.lost: Callable[[], int] = int
        self.gangs: Callable[[], Mapping[str, float]] = dict

    def requested(self, request: Request, result: str) -> None:
        """Count a request; any thread may call this."""
        with self._lock:
            self._requests[("verb", request.verb.right), ("resource", request.about.resource), ("result", result)] += 1

    def text(self) -> str:
        """Return the text of /metrics."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        with self._lock:
            requests = self._requests.copy()
        yield from family(
            "railnet_controllers_leader", "gauge", "Whether this replica leads.", [("", (), int(self.leads))]
        )
        yield from family(
            "railnet_controllers_objects", "gauge", "Known objects by kind.", _labelled("kind", self.objects())
        )
        yield from family(
            "railnet_controllers_waiting_keys",
            "gauge",
            "Jobs that wait to be looked at, by controller.",
            _labelled("controller", self.waiting()),
        )
        yield from family(
            "railnet_controllers_requests_total",
            "counter",
            "Requests to the API server by verb, resource and result.",
            counted(requests),
        )
        yield from family(
            "railnet_controllers_lost_events_total", "counter", "Events that were given up.", [("", (), self.lost())]
        )
        yield from self._of_gangs()

    def _of_gangs(self) -> Iterator[str]:
        found = self.gangs()
        if not found:
            return
        counts = {name: found[name] for name in ("waiting", "placed")}
        yield from family(
            "railnet_controllers_gangs",
            "gauge",
            "Gangs with pods that wait for a place, and gangs that have one.",
            _labelled("state", counts),
        )
        yield from family(
            "railnet_controllers_gang_evictions_total",
            "counter",
            "Pods of gangs that were evicted.",
            [("", (), found["evictions"])],
        )
        yield from family(
            "railnet_controllers_gang_plan_seconds",
            "gauge",
            "How long the last decision about all gangs took.",
            [("", (), found["plan_seconds"])],
        )


class CountingApiServer(StreamingApiServer):
    """A client that counts its requests; a watch counts when it begins."""

    def __init__(
        self, transport: StreamingTransport, token: Callable[[], str], name: str, metrics: ControllersMetrics
    ) -> None:
        """Send through a transport; as `ApiServer`."""
        super().__init__(transport, token, name)
        self._metrics = metrics

    def send(self, request: Request) -> JsonObject:
        """Send a request; as `ApiServer.send`."""
        try:
            answer = super().send(request)
        except RequestFailed as error:
            self._metrics.requested(request, _result(error))
            raise
        self._metrics.requested(request, "done")
        return answer

    def lines(self, request: Request, accepted: Callable[[], object] = lambda: None) -> Generator[bytes]:
        """Send a request and yield its lines; as `StreamingApiServer.lines`."""
        self._metrics.requested(request, "begun")
        return super().lines(request, accepted)


def _labelled(label: str, counts: Mapping[str, float]) -> Iterable[Sample]:
    return [("", ((label, name),), count) for name, count in sorted(counts.items())]


def _result(error: RequestFailed) -> str:
    if isinstance(error, Absent):
        return "absent"
    return "conflict" if isinstance(error, Conflict) else "failed"
