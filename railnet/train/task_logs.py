"""The log of one task, line by line: also over restarts of its container, over new pods, and over lost connections."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http import HTTPStatus

from railnet.apiserver.client import Absent, RequestFailed, StreamingApiServer
from railnet.apiserver.request import ApiObject, get, log
from railnet.jobs.pod_progress import Stage
from railnet.jobs.train_job.task_states import TaskState, task_states
from railnet.jobs.train_job.train_job import PS
from railnet.train.job_lookup import DEPLOYMENTS, JOBS, PODS, collection, listed, named

_PAUSE_SECONDS = 1.0
_ENDED = frozenset({Stage.SUCCEEDED, Stage.FAILED})


def states(api: StreamingApiServer, name: str, namespace: str) -> tuple[TaskState, ...]:
    """Return the tasks of a job."""
    objects = {resource: listed(api, collection(resource, namespace, name)) for resource in (DEPLOYMENTS, JOBS, PODS)}
    return task_states([*objects[DEPLOYMENTS], *objects[JOBS]], objects[PODS], {})


def whole(
    api: StreamingApiServer, job: str, namespace: str, task: TaskState, *, previous: bool = False
) -> Iterator[bytes]:
    """Yield the lines that a task's container has written so far; `previous` is the container before its last restart."""
    parameters = {"container": task.container or f"{job}-{task.name}", **({"previous": "true"} if previous else {})}
    return api.lines(log(_log_of(namespace, task.pod), **parameters))


class FollowedLog:
    """The log of one task, as it is written."""

    def __init__(
        self,
        api: StreamingApiServer,
        job: str,
        namespace: str,
        task: TaskState,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Follow a task of a job."""
        self._api, self._job, self._namespace, self._task, self._sleep = api, job, namespace, task, sleep
        self._pod, self._container, self._restarts = "", "", 0
        # Lines are asked for by whole seconds, so those that were read already are known by their own times.
        self._last, self._at_last = b"", 0

    def lines(self) -> Iterator[bytes]:
        """Yield each line until the task has ended, or the job is deleted."""
        while True:
            pod, restarts, over = self._look()
            if pod:
                if pod != self._pod:
                    self._pod, self._restarts, self._last, self._at_last = pod, restarts, b"", 0
                elif restarts > self._restarts:
                    yield from self._read(previous="true")  # what was written after the last line that came
                    self._restarts = restarts
                yield from self._read(follow="true")
            if over:
                return
            self._sleep(_PAUSE_SECONDS)

    def _read(self, **parameters: str) -> Iterator[bytes]:
        """Yield the lines after the last one. `lines` looks at what has ended the stream."""
        # The container is named, because a webhook may have put others beside it.
        parameters["container"] = self._container
        if self._last:
            parameters["sinceTime"] = _second(self._last)
        last, seen, met = self._last, self._at_last, 0
        try:
            for line in self._api.lines(log(_log_of(self._namespace, self._pod), timestamps="true", **parameters)):
                at, _, text = line.partition(b" ")
                if at < last:
                    continue
                if at == last:  # several lines may have one time
                    met += 1
                    if met <= seen:
                        continue
                self._at_last = self._at_last + 1 if at == self._last else 1
                self._last = at
                yield text
        except RequestFailed as error:
            if not (error.temporary or error.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND)):
                raise  # 400: the container has not started, or has no previous one

    def _look(self) -> tuple[str, int, bool]:
        """Return the task's pod, its restarts, and whether nothing more will come after what its log has now."""
        task = self._task
        maker = named(DEPLOYMENTS if task.role == PS else JOBS, f"{self._job}-{task.name}", self._namespace)
        try:
            makers = [self._api.send(get(maker))]
        except Absent:
            makers = []
        pods = listed(self._api, collection(PODS, self._namespace, self._job))
        state = next((state for state in task_states((), pods, {}) if state.name == task.name), None)
        if state is None:
            return "", 0, not makers or task_states(makers, (), {})[0].ended
        self._container = state.container
        # An operator's pod has no Job of its own, and its end is the task's.
        over = task_states(makers, pods, {}) if makers else ()
        ended = next((known.ended for known in over if known.name == task.name), state.stage in _ENDED)
        return state.pod, state.restarts, ended


def _log_of(namespace: str, pod: str) -> ApiObject:
    return ApiObject("v1", PODS, pod, namespace, "log")


def _second(at: bytes) -> str:
    """Return a line's time without the part of a second, in UTC, as the API takes it."""
    try:
        return datetime.fromisoformat(at.decode()).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return "1970-01-01T00:00:00Z"
