"""The controller that says by an event on a job that two of its pods do not reach each other over net1.

What `railnet validate --publish` has left says which rails reach each other. It is read while a job has pods with unlike rails, at most
once a minute: on a fabric with a spine such a job is an ordinary one.
"""

import logging
import time
from collections.abc import Callable, Sequence

from railnet.apiserver import rail_reach
from railnet.apiserver.client import ApiServer
from railnet.controllers.events import JobEvents
from railnet.controllers.job_pods import JobPods
from railnet.controllers.net1_names.name_claims import claims
from railnet.controllers.owners import Owners
from railnet.controllers.training_pod import Job, TrainingPod
from railnet.controllers.work_queue import WorkQueue
from railnet.fabric.published_reach import UNPUBLISHED, PublishedReach
from railnet.jobs.rails_apart import REASON, RailsApart, RailsOfPod, rails_apart, words

_log = logging.getLogger(__name__)
# The pods of a job get their rails one after the other; an event of each step would name other pods.
_GATHER_SECONDS = 10.0
_LOOK_AGAIN_SECONDS = 60.0


class RailsApartEvents:
    """The controller.

    Attributes:
        queue: the jobs that are to be looked at, by one thread.
    """

    def __init__(
        self,
        api: ApiServer,
        pods: JobPods,
        owners: Owners,
        events: JobEvents,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Reconcile by an API server; `clock` returns seconds."""
        self._api, self._pods, self._owners, self._events, self._clock = api, pods, owners, events, clock
        self._published, self._asked = UNPUBLISHED, float("-inf")
        self.queue: WorkQueue[Job] = WorkQueue()
        pods.watch(self._changed)

    def _changed(self, job: Job) -> None:
        self.queue.add(job, _GATHER_SECONDS)

    def reconcile(self, job: Job) -> float | None:
        """Say what is wrong; return the seconds after which to look again, None if a change of a pod will be reported.

        Raises:
            RequestFailed: a request was not done.
        """
        pods = [pod for pod in self._pods.of(job) if pod.rails and not pod.ended and not pod.leaving]
        if len({pod.rails for pod in pods}) < 2:  # noqa: PLR2004 - two pods with unlike rails
            return None
        published = self._reach()
        if _apart(pods, published) is not None:  # who owns the job is asked only then
            for claim in claims(self._owners, job, pods):
                apart = _apart(claim.pods, published)
                if apart is not None:
                    self._events.warning(claim.about, REASON, words(apart))
        return _LOOK_AGAIN_SECONDS

    def _reach(self) -> PublishedReach:
        if self._clock() - self._asked > _LOOK_AGAIN_SECONDS:
            published = rail_reach.read(self._api)
            if published.trouble and published.trouble != self._published.trouble:
                _log.warning("%s", published.trouble)
            self._published, self._asked = published, self._clock()
        return self._published


def _apart(pods: Sequence[TrainingPod], published: PublishedReach) -> RailsApart | None:
    return rails_apart((RailsOfPod(pod.name, pod.rails) for pod in pods), published)
