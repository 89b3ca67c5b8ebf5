"""The daemon's metrics, in Prometheus's text format at /metrics. docs/decisions/0026 says why no library writes it.

Every label has few values: no label names a sandbox. Pods that have a rail, and VFs, are named by `railnet.daemon.rail_counters` alone.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from deviceplugin.devices import OfferedVf
from railnet.prometheus_text import Histogram, Labels, Sample, counted, family
from railnet.vf.inventory import VirtualFunction

# From the fastest stage to `timeouts.add`.
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LARGEST_CODE = 199  # CNI's and Railnet's own; a delegate may answer any number


@dataclass(frozen=True, slots=True)
class Gauges:
    """The functions that are called when the text of /metrics is requested.

    Attributes:
        vfs: returns the VFs that each pool offers, by resource, and whether a sandbox has them.
        registrations: returns how often kubelet took each pool's socket, by resource.
        queue: returns how many requests wait for a delegate slot.
        hung_reads: returns how many threads wait for a read of hardware that does not return, by card.
        hung_writes: the same of writes.
        rails: returns whether the port of each rail that pods can have is ACTIVE; empty while the rails' numbers are not known.
        lost: returns how many rails of pods are lost, by the number of the rail.
        counters: returns the families of `railnet.daemon.rail_counters`, as text.
    """

    vfs: Callable[[], Mapping[str, Iterable[tuple[OfferedVf, bool]]]]
    registrations: Callable[[], Mapping[str, int]]
    queue: Callable[[], int]
    hung_reads: Callable[[], Mapping[str, int]]
    hung_writes: Callable[[], Mapping[str, int]]
    rails: Callable[[], Mapping[int, bool]]
    lost: Callable[[], Mapping[int, int]]
    counters: Callable[[], str]


class Metrics:
    """Counts what is reported, from before the node's parts are there."""

    def __init__(self, restarts: int = 0) -> None:
        """Start with all counters at zero, but `restarts`: how often the supervisor has started the daemon again."""
        self._restarts = restarts
        self._requests: Counter[Labels] = Counter()
        self._leaks: Counter[Labels] = Counter()
        self._seconds: dict[Labels, Histogram] = {}

    def served(self, verb: str, code: int | None, seconds: float) -> None:
        """Count a request (`cni.request_handler.RequestMetrics`)."""
        self._requests[("verb", verb), ("code", _code(code))] += 1
        self.stage(verb, "all", seconds)

    def stage(self, verb: str, name: str, seconds: float) -> None:
        """Count one stage of a request (`cni.request_handler.RequestMetrics`)."""
        labels = (("verb", verb), ("stage", name))
        self._seconds.setdefault(labels, Histogram(_BUCKETS)).observe(seconds)

    def took_back(self, kind: str) -> None:
        """Count a leaked resource that the sweep or GC has reclaimed (`cni.rail_observers.TookBack`)."""
        self._leaks[("kind", kind),] += 1

    def text(self, gauges: Gauges) -> str:
        """Return the text of /metrics."""
        return "".join(f"{line}\n" for line in self._lines(gauges)) + gauges.counters()

    def _lines(self, gauges: Gauges) -> Iterator[str]:
        yield from family("railnet_cni_seconds", "histogram", "Time of a request's stages.", self._histograms())
        yield from family("railnet_cni_requests_total", "counter", "Requests that have ended.", counted(self._requests))
        yield from family(
            "railnet_cni_queue", "gauge", "Requests that wait for a delegate slot.", [("", (), gauges.queue())]
        )
        yield from family("railnet_vfs", "gauge", "VFs by state.", counted(_vfs(gauges)))
        active: Counter[Labels] = Counter(
            {(("rail", str(rail)),): int(is_active) for rail, is_active in gauges.rails().items()}
        )
        yield from family(
            "railnet_rail_active", "gauge", "Whether the port of a rail is ACTIVE: 1 or 0.", counted(active)
        )
        lost: Counter[Labels] = Counter({(("rail", str(rail)),): count for rail, count in gauges.lost().items()})
        yield from family("railnet_lost_rails", "gauge", "Rails that running pods have lost.", counted(lost))
        for what, hung in (("read", gauges.hung_reads()), ("write", gauges.hung_writes())):
            cards: Counter[Labels] = Counter({(("card", card),): count for card, count in hung.items()})
            words = f"{what.capitalize()}s of hardware that do not return."
            yield from family(f"railnet_hung_{what}s", "gauge", words, counted(cards))
        yield from family(
            "railnet_leaks_total", "counter", "Leaked resources that were reclaimed.", counted(self._leaks)
        )
        yield from family(
            "railnet_daemon_restarts_total",
            "counter",
            "How often the supervisor started the daemon again in this container.",
            [("", (), self._restarts)],
        )
        registrations: Counter[Labels] = Counter(
            {(("resource", name),): count for name, count in gauges.registrations().items()}
        )
        yield from family(
            "railnet_registrations_total", "counter", "How often kubelet took a pool's socket.", counted(registrations)
        )

    def _histograms(self) -> Iterator[Sample]:
        for labels, histogram in sorted(self._seconds.items()):
            yield from histogram.samples(labels)


def _vfs(gauges: Gauges) -> Counter[Labels]:
    return Counter(
        (("pool", pool), ("state", offer.state(owned=attached)), ("reason", _reason(offer)))
        for pool, offers in gauges.vfs().items()
        for offer, attached in offers
    )


def _code(code: int | None) -> str:
    if code is None:
        return "gone"
    return str(code) if 0 <= code <= _LARGEST_CODE else "other"


def _reason(offer: OfferedVf) -> str:
    """Return one word for why a VF is unhealthy; the log and `railnet status` have the whole reason."""
    if offer.reason is not None and offer.rail is None:
        return "rail"
    return "" if offer.reason is None else _lacks(offer.vf, rdma=offer.rdma) or "port"


def _lacks(vf: VirtualFunction, *, rdma: bool) -> str:
    if vf.fault is not None:
        return "fault"
    if vf.driver is None:
        return "driver"
    if rdma and vf.rdma is None:
        return "rdma"
    if rdma and vf.rdma is not None and not vf.rdma.node_guid.usable:
        return "guid"
    return "netdev" if vf.netdev is None else ""
