"""The host ports that this replica of the webhook may give, from the pods that it has seen and from what it gave a moment ago.

The event loop's thread alone uses it: what another thread sees is handed over (`call_soon_threadsafe`). docs/decisions/0049 says what is
guaranteed, and what only the scheduler guarantees.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

from railnet.admission.host_port_usage import Identity, SeenPod
from railnet.errors import NotReady
from railnet.jobs.host_port_choice import PortRange, PortShare, choose, parse
from railnet.objects.pod import Pod

# A pod is stored at the latest when its request ends (kube-apiserver --request-timeout: 60 s), and seen within seconds of that.
_GIVEN_SECONDS = 90.0
_RESTING_SECONDS = 60.0  # for kube-proxy on all nodes, and for connections to the pod that had the port


def port_range(text: str) -> PortRange:
    """Read a range of ports, such as `20000-29999`.

    Raises:
        Misconfigured: the text is no range.
    """
    return parse(text)


class HostPorts:
    """The free ports of a range, as one replica knows them."""

    def __init__(self, ports: PortRange, replica: str, clock: Callable[[], float]) -> None:
        """Give ports of a range; `replica` is the name of this replica's own pod, `clock` returns seconds."""
        self.ports, self._replica, self._clock = ports, replica, clock
        self._listed = False
        self._used: Counter[int] = Counter()
        self._given: dict[int, float] = {}  # when each port was given to a pod that is not seen yet
        self._resting: dict[int, float] = {}  # when each free port was last seen in use
        self._replicas: set[str] = set()
        self._members: dict[Identity, dict[str, SeenPod]] = {}
        self._waiting: dict[Identity, set[asyncio.Event]] = {}

    def listed(self) -> None:
        """Begin to give ports: all pods that exist have been seen."""
        self._listed = True

    def changed(self, before: SeenPod | None, after: SeenPod | None) -> None:
        """Replace a pod by its newer state; None where it was or is not."""
        if before is not None:
            self._forget(before)
        if after is not None:
            self._remember(after)

    def free_port(self, pod: Pod) -> int:
        """Return a port that no pod has that was seen, and that was given to no other pod.

        Raises:
            NotReady: no port is free, or the pods are not known yet.
        """
        if not self._listed:
            raise NotReady(
                "the host ports in use are not known yet, because the cluster's pods are not listed; try again, and see the log of "
                "railnet-admission if that lasts"
            )
        now = self._clock()
        _forget_older(self._given, now - _GIVEN_SECONDS)
        _forget_older(self._resting, now - _RESTING_SECONDS)
        own = {port.number for container in (*pod.containers, *pod.sidecars) for port in container.ports}
        port = choose(self.ports, (self._used, self._given, own), self._resting, self._share())
        if port is None:
            raise NotReady(
                f"no host port of {self.ports} is free for this pod: pods have {self._in_use()} of {self.ports.size}; wait until pods end, or have the "
                "administrator widen --host-ports"
            )
        self._given[port] = now
        return port

    async def pod(self, identity: Identity, seconds: float) -> SeenPod | None:
        """Return the pod of an identity, and wait for it if it has not been seen yet; None if it is not seen in time."""
        seen = asyncio.Event()
        self._waiting.setdefault(identity, set()).add(seen)
        try:
            async with asyncio.timeout(seconds):
                while identity not in self._members:
                    seen.clear()
                    await seen.wait()
        except TimeoutError:
            return None
        finally:
            self._waiting[identity].discard(seen)
            if not self._waiting[identity]:
                del self._waiting[identity]
        # Two for a moment: an operator makes a pod again under the same labels. The one on the host's network decides.
        return max(self._members[identity].values(), key=lambda pod: pod.port_names is not None)

    def _remember(self, pod: SeenPod) -> None:
        for port in pod.ports:
            self._used[port] += 1
            self._given.pop(port, None)
            self._resting.pop(port, None)
        if pod.replica:
            self._replicas.add(pod.name)
        if pod.identity is not None:
            self._members.setdefault(pod.identity, {})[pod.name] = pod
            for waiting in self._waiting.get(pod.identity, ()):
                waiting.set()

    def _forget(self, pod: SeenPod) -> None:
        for port in pod.ports:
            self._used[port] -= 1
            if not self._used[port]:
                del self._used[port]
                if self.ports.first <= port <= self.ports.last:
                    self._resting[port] = self._clock()
        if pod.replica:
            self._replicas.discard(pod.name)
        if pod.identity is not None:
            of = self._members[pod.identity]
            of.pop(pod.name, None)
            if not of:
                del self._members[pod.identity]

    def _in_use(self) -> int:
        return sum(self.ports.first <= port <= self.ports.last for port in self._used)

    def _share(self) -> PortShare:
        """Return this replica's part of the range; all of it if the replica does not see its own pod."""
        replicas = sorted(self._replicas)
        return (
            PortShare(replicas.index(self._replica), len(replicas)) if self._replica in self._replicas else PortShare()
        )


def _forget_older(times: dict[int, float], limit: float) -> None:
    """Forget the ports whose times, which are in their order, are not after a limit."""
    while times and next(iter(times.values())) <= limit:
        del times[next(iter(times))]
