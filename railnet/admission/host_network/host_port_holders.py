"""The namespaces that hold the host ports of a range: by pods that were seen, and by ports that were given to pods that are not seen yet.

One tenant cannot take all ports. A port is kept from others by the pod that has a node and that a review gave the port. All other ports are held
only for as long as another one is free: those of pods without a node, those that a pod's author wrote, and those that were given and whose pod
does not come. kube-scheduler keeps two pods with one port on two nodes.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple, TypeVar

from railnet.admission.host_network.host_port_usage import SeenPod
from railnet.jobs.host_port_choice import PortRange

# A pod is stored at the latest when its request ends (kube-apiserver --request-timeout: 60 s), and seen within seconds of that.
GIVEN_SECONDS = 90.0
# A pod whose review was answered is mostly seen within a second. A port whose pod has not come for longer may become another namespace's.
_AWAITED_SECONDS = 2.0
_Key = TypeVar("_Key")


class GivenPort(NamedTuple):
    """When a port was given, and to a pod of which namespace."""

    since: float
    namespace: str


class PortHolders:
    """All holders of the ports of one range."""

    def __init__(self, ports: PortRange) -> None:
        """Begin without holders."""
        self._ports = ports
        self.used: Counter[int] = Counter()
        self._kept: Counter[int] = Counter()
        self._yielding: dict[str, Counter[int]] = {}  # by namespace
        self._given: dict[int, GivenPort] = {}
        self._unseen: Counter[str] = Counter()  # how many ports were given to each namespace, and are not seen yet

    @property
    def given(self) -> Collection[int]:
        """The ports that were given to pods that are not seen yet."""
        return self._given.keys()

    def unseen(self, namespace: str) -> int:
        """Return how many ports were given to a namespace for pods that are not seen yet."""
        return self._unseen[namespace]

    def give(self, port: int, namespace: str, now: float) -> None:
        """Hold a port for a pod that a review is about."""
        self._take_back(port)
        self._given[port] = GivenPort(now, namespace)
        self._unseen[namespace] += 1

    def take_back_older(self, limit: float) -> None:
        """Forget the ports that were given not after a limit."""
        while self._given and next(iter(self._given.values())).since <= limit:
            self._take_back(next(iter(self._given)))

    def remember(self, pod: SeenPod) -> Iterator[int]:
        """Take in a pod, and return its ports in the range."""
        for port in self._in_range(pod):
            self.used[port] += 1
            if port == pod.kept_port:
                self._kept[port] += 1
            else:
                self._yielding.setdefault(pod.namespace, Counter())[port] += 1
            self._take_back(port)
            yield port

    def forget(self, pod: SeenPod) -> Iterator[int]:
        """Drop a pod, and return the ports that no pod has any more."""
        for port in self._in_range(pod):
            if port == pod.kept_port:
                _decrease(self._kept, port)
            else:
                of_namespace = self._yielding[pod.namespace]
                _decrease(of_namespace, port)
                if not of_namespace:
                    del self._yielding[pod.namespace]
            _decrease(self.used, port)
            if port not in self.used:
                yield port

    def yielded(self, namespace: str, own: Collection[int], now: float) -> int | None:
        """Return a port that another namespace holds without need; None if there is none.

        First the port that was given to a pod that does not come, the oldest one. Then one of the namespace that holds the most ports without
        need, if those are more than the namespace holds that asks. `own` are ports that the pod cannot have.
        """
        impossible = {*own, *self._kept, *self._yielding.get(namespace, ())}
        return next((port for port in self._not_needed(namespace, now) if port not in impossible), None)

    def _not_needed(self, namespace: str, now: float) -> Iterator[int]:
        for port, given in self._given.items():
            if given.since > now - _AWAITED_SECONDS:
                break
            if given.namespace != namespace:
                yield port
        for other in sorted(self._yielding, key=self._holds, reverse=True):
            if self._holds(other) <= self._holds(namespace):
                return
            held = (port for port in self._yielding[other] if port not in self._given)
            yield from sorted(held, key=lambda port: (self.used[port], port))

    def _holds(self, namespace: str) -> int:
        return len(self._yielding.get(namespace, ())) + self._unseen[namespace]

    def _in_range(self, pod: SeenPod) -> Iterator[int]:
        return (port for port in pod.ports if self._ports.first <= port <= self._ports.last)

    def _take_back(self, port: int) -> None:
        given = self._given.pop(port, None)
        if given is not None:
            _decrease(self._unseen, given.namespace)


def _decrease(counts: Counter[_Key], key: _Key) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
