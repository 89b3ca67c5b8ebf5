"""Jobs that come while a run on idle nodes holds devices: the part that asks the API server."""

from collections.abc import Iterable, Iterator

from railnet.apiserver.client import ApiServer
from railnet.apiserver.object_watch import pages
from railnet.apiserver.request import Collection, JsonObject
from railnet.validate.failure import JobComes
from railnet.validate.idle.idle_nodes import WaitingPod, busy_nodes, waiting_pods
from railnet.validate.probe.probe_objects import Run

_NEW_SECONDS = 3600.0


class JobArrivals:
    """Ends a run as soon as a pod waits for devices that did not wait before, or has devices of a node that is tried.

    A scheduler preempts the tries for most jobs by itself. It does so neither for a gang behind a gate, which gets its place only where there
    is room, nor for a job of a class that preempts nothing, nor for one that finds room beside the try: a node has more VFs than a try takes.
    """

    def __init__(self, api: ApiServer, run: Run) -> None:
        """Ask an API server about other pods than those of a run."""
        self._api, self._run = api, run
        self._before, self._nodes = frozenset[str](), tuple[str, ...]()

    def begin(self, now: float) -> str:
        """Return which pod has begun to wait within an hour of `now`, so that no run may begin; empty for none.

        One that waits for longer waits for more than the nodes that are tried: it must not switch the tries off for good.

        Raises:
            RequestFailed: the API server does not answer.
        """
        waiting = list(self._waiting())
        self._before = frozenset(pod.uid for pod in waiting)
        return next((pod.words for pod in waiting if now - pod.created < _NEW_SECONDS), "")

    def keep_to(self, nodes: Iterable[str]) -> None:
        """Say which nodes the run tries."""
        self._nodes = tuple(sorted(nodes))

    def check(self) -> None:
        """Return if no job has come since the beginning.

        Raises:
            JobComes: one has.
            RequestFailed: the API server does not answer.
        """
        for pod in self._waiting():
            if pod.uid not in self._before:
                raise JobComes(pod.words)
        for why in self.taken().values():
            raise JobComes(why)

    def taken(self) -> dict[str, str]:
        """Return the nodes of the run where a pod has devices that is none of the run's, with that pod in words.

        Each node is asked about by itself: all pods of a cluster are too many for a look before each round.

        Raises:
            RequestFailed: the API server does not answer.
        """
        return {
            node: f"{why} of node {node}"
            for each in self._nodes
            for node, why in busy_nodes(self._pods(f"spec.nodeName={each}"), self._run)
        }

    def _waiting(self) -> Iterator[WaitingPod]:
        return waiting_pods(self._pods("spec.nodeName="), self._run)

    def _pods(self, fields: str) -> Iterator[JsonObject]:
        return (pod for page in pages(self._api, Collection("v1", "pods", fields=fields)) for pod in page.found)
