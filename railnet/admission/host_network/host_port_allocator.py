"""The host ports that this replica of the webhook may give, from the pods that it has seen and from what it gave a moment ago.

The event loop's thread alone uses it: what another thread sees is handed over (`call_soon_threadsafe`). docs/decisions/0049 says what is
guaranteed, and what only the scheduler guarantees.
"""

import asyncio
from collections.abc import Callable

from railnet.admission.host_network.host_port_holders import GIVEN_SECONDS, PortHolders
from railnet.admission.host_network.host_port_usage import Identity, SeenPod
from railnet.errors import NotReady
from railnet.jobs.host_port_choice import PortRange, PortShare, choose, parse
from railnet.objects.pod import Pod

# Of the range, for the pods of one namespace that are not seen yet; but not fewer ports than the second number, for a small range. A thousand
# pods that are made at the same moment are seen within some seconds.
_UNSEEN_SHARE, _FEWEST_UNSEEN = 4, 64
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
        self._holders = PortHolders(ports)
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
        """Return a port that no pod has that was seen, and that was given to no other pod; if none is free, one that another namespace holds without need.

        The port stays free until `give`: a review may still refuse the pod, and a dry run makes none.

        Raises:
            NotReady: no port is free, the namespace has too many ports whose pods do not come, or the pods are not known yet.
        """
        if not self._listed:
            raise NotReady(
                "the host ports in use are not known yet, because the cluster's pods are not listed; try again, and see the log of "
                "railnet-admission if that lasts"
            )
        now = self._clock()
        self._holders.take_back_older(now - GIVEN_SECONDS)
        _forget_older(self._resting, now - _RESTING_SECONDS)
        self._check_unseen(pod.namespace)
        return self._chosen(pod, now)

    def give(self, port: int, namespace: str) -> None:
        """Hold a port for a pod of a namespace, because a review has given it the port."""
        self._holders.give(port, namespace, self._clock())

    def _check_unseen(self, namespace: str) -> None:
        most = max(self.ports.size // _UNSEEN_SHARE, _FEWEST_UNSEEN)
        if self._holders.unseen(namespace) >= most:
            raise NotReady(
                f"namespace {namespace:.63} has {most} host ports that were given to pods which do not exist yet, and gets no more before these "
                f"pods are seen, or {GIVEN_SECONDS:g} s have passed; see what refuses the pods, such as a quota, and try again"
            )

    def _chosen(self, pod: Pod, now: float) -> int:
        held = self._holders
        own = {port.number for container in (*pod.containers, *pod.sidecars) for port in container.ports}
        port = choose(self.ports, (held.used, held.given, own), self._resting, self._share())
        if port is None:
            port = held.yielded(pod.namespace, own, now)
        if port is None:
            raise NotReady(
                f"no host port of {self.ports} is free for this pod: pods have {len(held.used)} of {self.ports.size}; wait until pods end, or have the "
                "administrator widen --host-ports"
            )
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
        for port in self._holders.remember(pod):
            self._resting.pop(port, None)
        if pod.replica:
            self._replicas.add(pod.name)
        if pod.identity is not None:
            self._members.setdefault(pod.identity, {})[pod.name] = pod
            for waiting in self._waiting.get(pod.identity, ()):
                waiting.set()

    def _forget(self, pod: SeenPod) -> None:
        for port in self._holders.forget(pod):
            self._resting[port] = self._clock()
        if pod.replica:
            self._replicas.discard(pod.name)
        if pod.identity is not None:
            of = self._members[pod.identity]
            of.pop(pod.name, None)
            if not of:
                del self._members[pod.identity]

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
