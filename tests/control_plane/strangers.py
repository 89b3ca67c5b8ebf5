"""Other pods that take the place that a gang was given."""

from collections.abc import Callable
from typing import Self

from tests.cluster.process import wait_until
from tests.control_plane.api import JsonObject
from tests.control_plane.gang_cluster import LEAF, SECONDS, is_gated, occupy
from tests.control_plane.gang_jobs import GangJob
from tests.control_plane.server import ApiServer


class Strangers:
    """Take a VF of the leaf that a gang was given, before the scheduler looks at the gang's pods.

    The scheduler is ended, and started anew when another pod is there: so it comes too late each time, not by chance.

    Attributes:
        leaves: where others were put.
    """

    def __init__(self, server: ApiServer, job: GangJob, most: int) -> None:
        """Do so in `most` leaves."""
        self.leaves: list[str] = []
        self._server, self._job, self._most = server, job, most
        self._scheduler = server.plane.scheduler
        self._away = False

    def __enter__(self) -> Self:
        self._stop()
        return self

    def __exit__(self, *_: object) -> None:
        self._start()

    def act(self) -> None:
        """Do what the moment requires."""
        pods = [one for one in self._job.pods() if not one["metadata"].get("deletionTimestamp")]
        if self._away and len(pods) == self._job.count and not any(is_gated(one) for one in pods):
            self._take(pods[0]["spec"]["nodeSelector"][LEAF])
        elif not self._away and len(self.leaves) < self._most and any(map(_is_unschedulable, pods)):
            self._stop()  # before the leader gives up, and admits them elsewhere

    def until(self, condition: Callable[[], bool], what: str, evictions: int = 1) -> None:
        """Wait for something that so many evictions come before, and act meanwhile.

        A gang is evicted when its pods have been unschedulable for half a minute.
        """

        def look() -> bool:
            self.act()
            return condition()

        wait_until(look, 2 * SECONDS * evictions, what)

    def _take(self, leaf: str) -> None:
        if len(self.leaves) < self._most and leaf not in self.leaves:
            self.leaves.append(leaf)
            occupy(self._server, f"{leaf}-0", "1")
        self._start()

    def _stop(self) -> None:
        self._scheduler.stop()
        self._away = True

    def _start(self) -> None:
        if self._away:
            self._scheduler.start()
            self._away = False


def _is_unschedulable(pod: JsonObject) -> bool:
    return any(one.get("reason") == "Unschedulable" for one in pod["status"].get("conditions", ()))
