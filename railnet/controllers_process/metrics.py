"""The controllers' metrics. No label names a pod, a namespace or a job."""

import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

from railnet.apiserver.client import Absent, Conflict, RequestFailed, StreamingApiServer, StreamingTransport
from railnet.apiserver.request import JsonObject, Request
from railnet.controllers_process.leader_composition import Leader
from railnet.prometheus_text import Labels, Sample, counted, family


class ControllersMetrics:
    """The metrics of one replica. A replica that waits for the Lease knows no objects, and no key waits there."""

    def __init__(self) -> None:
        """Start with all counters at zero."""
        self._lock = threading.Lock()
        self._requests: Counter[Labels] = Counter()

    def requested(self, request: Request, result: str) -> None:
        """Count a request; any thread may call this."""
        with self._lock:
            self._requests[("verb", request.verb.right), ("resource", request.about.resource), ("result", result)] += 1

    def text(self, leader: Leader | None) -> str:
        """Return the text of /metrics; without a leader, of a replica that waits."""
        return "".join(f"{line}\n" for line in self._lines(leader))

    def _lines(self, leader: Leader | None) -> Iterator[str]:
        with self._lock:
            requests = self._requests.copy()
        yield from family(
            "railnet_controllers_leader", "gauge", "Whether this replica leads.", [("", (), int(leader is not None))]
        )
        yield from family(
            "railnet_controllers_objects",
            "gauge",
            "Known objects by kind.",
            _labelled("kind", leader.objects() if leader else {}),
        )
        yield from family(
            "railnet_controllers_waiting_keys",
            "gauge",
            "Jobs that wait to be looked at, by controller.",
            _labelled("controller", leader.waiting() if leader else {}),
        )
        yield from family(
            "railnet_controllers_requests_total",
            "counter",
            "Requests to the API server by verb, resource and result.",
            counted(requests),
        )
        yield from family(
            "railnet_controllers_lost_events_total",
            "counter",
            "Events that were given up.",
            [("", (), leader.lost() if leader else 0)],
        )
        yield from family(
            "railnet_controllers_writes_left_out_total",
            "counter",
            "Writes that were left out, because the same content had been written again and again.",
            [("", (), leader.left_out() if leader else 0)],
        )
        if leader and (gangs := leader.gangs()):
            yield from self._of_gangs(gangs)

    def _of_gangs(self, gangs: Mapping[str, float]) -> Iterator[str]:
        counts = {name: gangs[name] for name in ("waiting", "placed", "failed")}
        yield from family(
            "railnet_controllers_gangs",
            "gauge",
            "Gangs with pods that wait for a place, gangs that have one, and gangs for which a decision failed.",
            _labelled("state", counts),
        )
        yield from family(
            "railnet_controllers_gang_evictions_total",
            "counter",
            "Pods of gangs that were evicted.",
            [("", (), gangs["evictions"])],
        )
        yield from family(
            "railnet_controllers_gang_plan_seconds",
            "gauge",
            "How long the last decision about all gangs took.",
            [("", (), gangs["plan_seconds"])],
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
