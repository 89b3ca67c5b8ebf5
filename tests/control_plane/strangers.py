"""Other pods that take the place that a gang was given."""

from collections.abc import Callable
from typing import Self

from tests.cluster.process import wait_until
from tests.control_plane.api import JsonObject
from tests.control_plane.controllers import Controllers
from tests.control_plane.gang_cluster import LEAF, SECONDS, is_gated, occupy
from tests.control_plane.gang_jobs import GangJob
from tests.control_plane.server import ApiServer


class Strangers:
    """Take a VF of the leaf that a gang was given, before the scheduler looks at the gang's pods.

    The scheduler is ended, and started anew when another pod is there: so it comes too late each time, not by chance.

    Attributes:
        leaves: where others were put.
    """

    def __init__(self, server: ApiServer, job: GangJob, most: int, leader: Controllers | None = None) -> None:
        """Do so in `most` leaves; for more than one, `leader` is the process that evicts the gang."""
        self.leaves: list[str] = []
        self._server, self._job, self._most, self._leader = server, job, most, leader
        self._scheduler = server.plane.scheduler
        self._away = False

    def __enter__(self) -> Self:
        self._stop()
        return self

    def __exit__(self, *_: object) -> None:
        self._start()

    def act(self) -> None:
        """Do what the moment requires."""
        pods = self._pods()
        if self._away and len(pods) == self._job.count and not any(is_gated(one) for one in pods):
            self._take(pods[0]["spec"]["nodeSelector"][LEAF])

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 4 * SECONDS) -> None:
        """Wait for something, and act meanwhile."""

        def look() -> bool:
            self.act()
            return condition()

        wait_until(look, seconds, what)

    def _take(self, leaf: str) -> None:
        if leaf not in self.leaves and len(self.leaves) < self._most:
            self.leaves.append(leaf)
            occupy(self._server, f"{leaf}-0", "1")
        if len(self.leaves) < self._most:
            self._refuse_while_leader_is_frozen()
        else:
            self._start()

    def _refuse_while_leader_is_frozen(self) -> None:
        """Have the scheduler find no node for the gang, and be away again before the leader admits the gang elsewhere."""
        assert self._leader is not None, "name the leader, which evicts the gang"
        with self._leader.frozen():
            self._start()
            wait_until(lambda: any(map(_is_unschedulable, self._pods())), SECONDS, "the scheduler to find no node")
            self._stop()

    def _pods(self) -> list[JsonObject]:
        return [one for one in self._job.pods() if not one["metadata"].get("deletionTimestamp")]

    def _stop(self) -> None:
        self._scheduler.stop()
        self._away = True

    def _start(self) -> None:
        if self._away:
            self._scheduler.start()
            self._away = False


def _is_unschedulable(pod: JsonObject) -> bool:
    return any(one.get("reason") == "Unschedulable" for one in pod["status"].get("conditions", ()))
