"""`railnet train logs`: what the tasks of a job have written, as lines or as an archive."""

import io
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from queue import SimpleQueue

from railnet.apiserver.client import RequestFailed, StreamingApiServer
from railnet.cli.messages import say, tell
from railnet.jobs.train_job.task_states import TaskState
from railnet.train.failure import TrainFailed
from railnet.train.job_lookup import find
from railnet.train.task_logs import FollowedLog, states, whole

_MOST_FOLLOWED = 100
_IN_MEMORY_BYTES = 8 << 20


class NoSuchTask(TrainFailed):
    """The job has no such task; the message names its tasks."""


def logs(
    api: StreamingApiServer, name: str, namespace: str | None, wanted: Sequence[str], *, follow: bool, pack: Path | None
) -> bool:
    """Print, follow or pack the logs of a job's tasks; return whether all of them could be read.

    Raises:
        NoSuchJob, NoSuchTask: there is no such job, or no such task.
        RequestFailed: the API server does not answer.
    """
    place = find(api, name, namespace)["metadata"]["namespace"]
    tasks = _chosen(states(api, name, place), name, wanted)
    if pack is not None:
        return _pack(api, name, place, tasks, pack)
    if follow:
        return _follow(api, name, place, tasks)
    failures = 0
    for task in tasks:
        prefix = b"" if len(tasks) == 1 else _prefix(task, tasks)
        try:
            for line in whole(api, name, place, task) if task.pod else ():
                _write(prefix + line)
        except RequestFailed as error:
            failures += 1
            _complain(task, error)
    return not failures


def _chosen(tasks: Sequence[TaskState], name: str, wanted: Sequence[str]) -> list[TaskState]:
    by_name = {task.name: task for task in tasks}
    for task_name in wanted:
        if task_name not in by_name:
            raise NoSuchTask(f"job {name} has no task {task_name}; its tasks are: {', '.join(by_name) or 'none'}")
    return [by_name[task_name] for task_name in wanted] if wanted else list(tasks)


def _follow(api: StreamingApiServer, name: str, namespace: str, tasks: Sequence[TaskState]) -> bool:
    if len(tasks) > _MOST_FOLLOWED:
        raise NoSuchTask(
            f"job {name} has {len(tasks)} tasks, and {_MOST_FOLLOWED} can be followed; choose some with --task"
        )
    lock, ended = threading.Lock(), SimpleQueue[tuple[TaskState, Exception | None]]()

    def follow(task: TaskState) -> None:
        prefix = b"" if len(tasks) == 1 else _prefix(task, tasks)
        try:
            for line in FollowedLog(api, name, namespace, task).lines():
                with lock:
                    _write(prefix + line)
        except Exception as error:  # noqa: BLE001 - the main thread takes it: a closed pipe ends the command
            ended.put((task, error))
        else:
            ended.put((task, None))

    for task in tasks:
        threading.Thread(target=follow, args=(task,), daemon=True).start()
    return _all_could_be_followed(ended.get() for _ in tasks)


def _all_could_be_followed(ended: Iterable[tuple[TaskState, Exception | None]]) -> bool:
    failures = 0
    for task, error in ended:
        if isinstance(error, RequestFailed):
            failures += 1
            _complain(task, error)
        elif error is not None:
            raise error
    return not failures


def _pack(api: StreamingApiServer, name: str, namespace: str, tasks: Sequence[TaskState], into: Path) -> bool:
    """Write an archive with a file for each task; it has its name when it is whole."""
    failures, count = 0, 0
    part = into.with_name(f".{into.name}.part")
    try:
        with tarfile.open(part, "w:gz") as archive:
            for task in tasks:
                for previous in (True, False):
                    if not task.pod or (previous and not task.restarts):
                        continue
                    try:
                        _add(api, archive, namespace, task, name, previous=previous)
                        count += 1
                    except RequestFailed as error:
                        failures += 1
                        _complain(task, error)
        part.replace(into)
    finally:
        part.unlink(missing_ok=True)
    tell(f"{into} has {count} logs of {len(tasks)} tasks of job {name}")
    return not failures


def _add(
    api: StreamingApiServer, archive: tarfile.TarFile, namespace: str, task: TaskState, name: str, *, previous: bool
) -> None:
    with tempfile.SpooledTemporaryFile(
        max_size=_IN_MEMORY_BYTES
    ) as file:  # an archive has a file's size before the file
        for line in whole(api, name, namespace, task, previous=previous):
            file.write(line + b"\n")
        entry = tarfile.TarInfo(f"{name}/{task.name}{'.previous' if previous else ''}.log")
        entry.size = file.tell()
        file.seek(0, io.SEEK_SET)
        archive.addfile(entry, file)


def _prefix(task: TaskState, tasks: Sequence[TaskState]) -> bytes:
    return f"{task.name.ljust(max(len(any_task.name) for any_task in tasks))} | ".encode()


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def _complain(task: TaskState, error: RequestFailed) -> None:
    say(f"{task.name}: {error}")
