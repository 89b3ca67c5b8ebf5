"""The rule for parameter servers, which never end by themselves: when no worker of their job needs them any more.

They go when every worker has ended without failure. They stay while one worker goes on, has failed, or is missing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from railnet.jobs.clean_up_verdict import Action, Verdict
from railnet.jobs.operators import Operator, Part
from railnet.jobs.railnet_labels import PS_CLEANUP
from railnet.jobs.recogniser import marked

PARAMETER_SERVER = "ps"  # the role, in lower case
SWITCH_VALUES = ("true", "false")
# A job of which no object says how many workers it has may still be in the making: `kubectl apply` creates one object after the other.
SETTLED_SECONDS = 30.0
_MOST_NAMES = 5

Rank = tuple[int, ...]


class State(Enum):
    """The state of a worker, or of the object that a job began with, as far as it is known."""

    GOES_ON = "goes on"
    COMPLETE = "is complete"
    FAILED = "has failed"


class TaskPosition(NamedTuple):
    """One position in a job; `rank` is empty if it has none."""

    role: str
    rank: Rank

    def __str__(self) -> str:
        """Name the task in a message: `worker 1`."""
        return f"{self.role} {'.'.join(map(str, self.rank))}".rstrip()


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker, or the workers that one Job makes.

    Attributes:
        tasks: its positions in the job.
        maker: the object that says its state, for messages: `Job mnist-worker-0`.
    """

    tasks: frozenset[TaskPosition]
    state: State
    maker: str


@dataclass(frozen=True, slots=True)
class Group:
    """A job with parameter servers. A fact that is None has not been asked for yet; `verdict` takes it as one that forbids nothing.

    Attributes:
        workers: those that are there, or of which a Job is there.
        servers: the ranks of the parameter servers' pods.
        size: how many pods the job has, parameter servers included; None if no pod says it.
        switches: the values of `PS_CLEANUP` at the job's pods and at its namespace.
        youngest_seconds: since the youngest of the workers was created.
        named: the workers that a Service names.
        replicas: how many workers each role has, as the job's own object says; empty if it does not, or there is no such object.
        root: the state of the object that would make deleted parameter servers again.
    """

    workers: tuple[Worker, ...]
    servers: frozenset[Rank]
    size: int | None
    switches: frozenset[str]
    youngest_seconds: float
    named: frozenset[TaskPosition] | None = None
    replicas: Mapping[str, int] | None = None
    root: State | None = None


def trains(operator: Operator, role: str, part: Part) -> bool:
    """Return whether a pod is a worker: it needs the parameter servers, and its end counts."""
    return part is Part.TRAINS and not serves(role) and operator.roles.get(role) is not Part.LAUNCHES


def serves(role: str) -> bool:
    """Return whether a role is that of the parameter servers."""
    return role.lower() == PARAMETER_SERVER


def verdict(group: Group) -> Verdict:
    """Decide about the parameter servers of a job."""
    unknown = sorted(group.switches.difference(SWITCH_VALUES))
    if unknown:
        return Verdict(
            Action.KEEP, f"{PS_CLEANUP} is {unknown[0]!r:.80}; it should be one of: {', '.join(SWITCH_VALUES)}"
        )
    if "false" in group.switches or not group.workers or any(worker.state is State.GOES_ON for worker in group.workers):
        return Verdict(Action.WAIT)
    needed = _needed(group)
    if needed:
        return Verdict(Action.KEEP, needed)
    if group.root is State.GOES_ON:
        return Verdict(Action.WAIT, seconds=0.0)
    return _settled(group)


def _needed(group: Group) -> str:
    """Return why the parameter servers of a job in which no worker goes on may still be needed; empty if they are not."""
    failed = sorted(worker.maker for worker in group.workers if worker.state is State.FAILED)
    if failed:
        return f"{_listed(failed)} failed; start the worker again, or delete the job"
    if group.root is State.FAILED:
        return "the job has failed; delete it, or start it again"
    missing = sorted(set(_missing(group)))
    return f"{_listed(missing)}; start the pods that the job lacks, or delete it" if missing else ""


def _settled(group: Group) -> Verdict:
    left = SETTLED_SECONDS - max(group.youngest_seconds, 0.0)
    asked = group.named is not None and group.replicas is not None
    if asked and left > 0 and not (group.named or group.replicas or _size_counts(group)):
        return Verdict(Action.WAIT, seconds=left)
    workers = _worker_count(group)
    return Verdict(Action.DELETE, "its worker is complete" if workers == 1 else f"all {workers} workers are complete")


def _missing(group: Group) -> Iterator[str]:
    """Yield what is missing, in words."""
    there = frozenset(task for worker in group.workers for task in worker.tasks)
    ranks, replicas = _by_role(there), group.replicas or {}
    if ranks is None:
        if not _size_counts(group):
            yield "nothing says how many workers there are: they have neither a rank (label railnet.io/rank) nor railnet.io/size"
        ranks = {}
    for role in ranks.keys() | replicas.keys():
        numbers = ranks.get(role, set())
        count = max(max(numbers, default=-1) + 1, replicas.get(role, 0))
        yield from (f"{role} {number} is missing" for number in range(count) if number not in numbers)
    yield from (f"{task} is missing" for task in (group.named or frozenset()) - there)
    if _size_counts(group) and (known := _worker_count(group) + _server_count(group)) < (group.size or 0):
        yield f"only {known} of the job's {group.size} pods are known"


def _by_role(tasks: frozenset[TaskPosition]) -> dict[str, set[int]] | None:
    """Return the ranks of each role; None if a worker has none, or one of several numbers, which no range shows to be complete."""
    ranks: dict[str, set[int]] = {}
    for task in tasks:
        if len(task.rank) != 1:
            return None
        ranks.setdefault(task.role, set()).add(task.rank[0])
    return ranks


def _size_counts(group: Group) -> bool:
    """Return whether the size can be compared with what is there.

    Parameter servers are deleted one after the other, the highest rank last: so it still says how many there were. Without ranks,
    a leader that goes on where another one died would find too few.
    """
    return group.size is not None and bool(group.servers) and all(len(rank) == 1 for rank in group.servers)


def _worker_count(group: Group) -> int:
    ranked = {task for worker in group.workers for task in worker.tasks if task.rank}
    return len(ranked) + sum(not task.rank for worker in group.workers for task in worker.tasks)


def _server_count(group: Group) -> int:
    return max((rank[0] + 1 for rank in group.servers), default=0)


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def service_task(operator: Operator, job: str, selector: Mapping[str, str]) -> TaskPosition | None:
    """Return the task whose pods a Service selects; None if it selects others as well, or those of no single task.

    Only operators whose job, role and rank are marks have such Services: the plain templates' `name`, `job` and `task`.
    """
    names = [field.key for field in (operator.job, operator.role, *operator.rank)]
    if not operator.marks.keys() >= set(names):
        return None
    if (
        not all(marked(selector.get(key), values) for key, values in operator.marks.items())
        or selector[names[0]] != job
    ):
        return None
    numbers = [selector[name] for name in names[2:]]
    return TaskPosition(selector[names[1]], tuple(map(int, numbers))) if all(map(_is_number, numbers)) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
