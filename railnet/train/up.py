"""`railnet train up`: creates a job, and shows how far it has come until all of it runs."""

import sys
import time
from collections.abc import Iterator
from typing import Any

from railnet.apiserver.client import StreamingApiServer
from railnet.cli.messages import say, tell
from railnet.cli.table import Column, aligned
from railnet.jobs.pod_progress import Stage
from railnet.jobs.train_job.operator_objects import pods_as
from railnet.jobs.train_job.task_states import TaskState, refusals_of, summary, task_states
from railnet.jobs.train_job.train_job import Kind, TrainingJob
from railnet.train import job_file
from railnet.train.creation import Creation, CreationOutcome, JobFile
from railnet.train.interruption import ended_by_sigterm, uninterrupted
from railnet.train.job_lookup import CONFIG_MAPS, DEPLOYMENTS, JOBS, PODS, collection, everything
from railnet.train.screen import Screen
from railnet.train.watched_objects import LiveObjects

_REDRAW_SECONDS = 1.0
_COLUMNS = (Column("TASK"), Column("STATE"), Column("RESTARTS", number=True), Column("NODE"), Column("WAITS FOR"))
_ENDINGS = frozenset({"failed", "completed", "running"})
_MOST_LINES = 8  # of tasks that wait, where the output is no terminal
_SAYS = {
    CreationOutcome.CREATED: "job {} is created in namespace {}",
    CreationOutcome.COMPLETED: "job {} in namespace {} was half made; the rest of it is created",
    CreationOutcome.UNCHANGED: "job {} is up in namespace {} already: nothing to change",
}


def read(file: str, made_as: str | None = None) -> JobFile:
    """Read and check a job's file; `-` is stdin. Nothing is asked of a cluster.

    `made_as` names the operator's object that the job is to be; None for plain Jobs.

    Raises:
        Misconfigured: the file is broken; the message has all that is wrong with it.
    """
    text = job_file.text_of(file)
    job = job_file.job_of(text, "stdin" if file == "-" else file, made_as)
    if job.kind != Kind.MPI or made_as is not None:
        return JobFile(text, job, made_as)
    from railnet.train.ssh_keys import ssh_keys  # noqa: PLC0415 - other jobs do not need the package `cryptography`

    return JobFile(text, job, made_as, ssh_keys())


def up(api: StreamingApiServer, file: JobFile, *, wait: bool) -> bool:
    """Create the job of a file, and wait until it runs; return whether it does. Ctrl-C before all is created takes it back.

    Raises:
        CreationRefused: there is another job of that name.
        RequestFailed: the API server refuses an object, and nothing is left of the others.
    """
    job = file.job
    creation = Creation(api, file, tell)
    with ended_by_sigterm():
        try:
            outcome = creation.run()
        except BaseException:
            _take_back(creation, job)
            raise
        tell(_SAYS[outcome].format(job.name, job.in_namespace))
        return not wait or _wait(api, job, pods_of(file))


def pods_of(file: JobFile) -> int:
    """Return how many pods the job must have before it may be called running; 0 where each pod has a Job of its own."""
    if file.made_as is not None:
        return pods_as(file.job)
    return file.job.workers if file.keys is not None else 0


def _take_back(creation: Creation, job: TrainingJob) -> None:
    with uninterrupted():
        left = creation.take_back()
    for line in left:
        say(line)
    if left:
        say(f"railnet train down {job.name} -n {job.in_namespace} removes it")


def _wait(api: StreamingApiServer, job: TrainingJob, least: int) -> bool:
    """Wait until at least so many tasks run, which an operator makes when it likes, and all that there are."""
    namespace, name = job.in_namespace, job.name
    collections: dict[str, Any] = {
        resource: (collection(resource, namespace, name), lambda document: document)
        for resource in (CONFIG_MAPS, DEPLOYMENTS, JOBS, PODS)
    }
    collections["events"] = (everything("events", namespace, "reason=FailedCreate"), lambda document: document)
    screen, began = Screen(sys.stdout), time.monotonic()
    try:
        with LiveObjects(api, collections) as live:
            while True:
                live.wait(_REDRAW_SECONDS)
                if live.listed and not live.of(CONFIG_MAPS):
                    screen.show([f"job {name} has been deleted"])
                    return False
                states = _states(live)
                word = summary(states)
                if live.listed:
                    screen.show(list(shown(states, live.trouble, live=screen.live)))
                    if is_over(word, len(states), least, job.kind):
                        tell(f"job {name}: {word} after {time.monotonic() - began:.0f} s")
                        return word != "failed"
                elif live.trouble:
                    screen.show([live.trouble])
    except KeyboardInterrupt:
        place = "" if name == namespace else f" -n {namespace}"
        print(file=sys.stderr)
        say(f"job {name} goes on without this command: railnet train ls, logs {name}{place}, down {name}{place}")
        raise


def is_over(word: str, tasks: int, least: int, kind: str) -> bool:
    """Return whether a job of so many tasks, of which there should be at least so many, needs no more waiting.

    The workers of an MPI job only serve mpirun: when that has succeeded, the operator or Kubernetes deletes their pods.
    """
    if word == "failed" or (word == "completed" and kind == Kind.MPI):
        return True
    return word in _ENDINGS and tasks >= least


def shown(states: tuple[TaskState, ...], trouble: str, *, live: bool) -> Iterator[str]:
    """Yield the lines: a table for a terminal; else the numbers, and a line for each of the first tasks that wait for something."""
    counts = {stage: sum(task.stage is stage for task in states) for stage in Stage}
    numbers = ", ".join(f"{count} {stage}" for stage, count in counts.items() if count)
    if live and states:
        rows = [(task.name, str(task.stage), str(task.restarts), task.node, task.why) for task in states]
        yield from aligned(_COLUMNS, rows)
    else:
        waiting = [task for task in states if not task.runs and task.why]
        for task in waiting[:_MOST_LINES]:
            yield f"{task.name} is {task.stage}: {task.why}"
        if len(waiting) > _MOST_LINES:
            yield f"{len(waiting) - _MOST_LINES} more tasks wait"
    yield f"{len(states)} tasks: {numbers}" if states else "no task yet"
    if trouble:
        yield trouble


def _states(live: LiveObjects) -> tuple[TaskState, ...]:
    return task_states([*live.of(DEPLOYMENTS), *live.of(JOBS)], live.of(PODS), refusals_of(live.of("events")))
