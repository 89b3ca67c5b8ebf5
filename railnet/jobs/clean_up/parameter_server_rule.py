"""The rule for parameter servers, which never end by themselves: when no worker of their job needs them any more.

They go when every worker has ended without failure. They stay while one worker goes on, has failed, or is missing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import NamedTuple

from railnet.jobs.clean_up.verdict import Action, Verdict
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


class TaskRange(NamedTuple):
    """The positions from 0 to `size` - 1 of a role: those of an Indexed Job, whose author may write two thousand million completions."""

    role: str
    size: int


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker, or the workers that one Job makes.

    Attributes:
        tasks: its position in the job, or its positions.
        maker: the object that says its state, for messages: `Job mnist-worker-0`.
    """

    tasks: TaskPosition | TaskRange
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
    missing = _listed(_missing(group))
    return f"{missing}; start the pods that the job lacks, or delete it" if missing else ""


def _settled(group: Group) -> Verdict:
    left = SETTLED_SECONDS - max(group.youngest_seconds, 0.0)
    asked = group.named is not None and group.replicas is not None
    if asked and left > 0 and not (group.named or group.replicas or _size_counts(group)):
        return Verdict(Action.WAIT, seconds=left)
    workers = _worker_count(group)
    return Verdict(Action.DELETE, "its worker is complete" if workers == 1 else f"all {workers} workers are complete")


def _missing(group: Group) -> Iterator[str]:
    """Yield what is missing, in words. A rank of a million, or as many replicas, cost no more than the words that are taken."""
    there, replicas = _tasks(group), group.replicas or {}
    if not there.are_ranked and not _size_counts(group):
        yield "nothing says how many workers there are: they have neither a rank (label railnet.io/rank) nor railnet.io/size"
    by_role = there.by_role if there.are_ranked else {}
    counts: dict[str, int] = {}
    for role in sorted(by_role.keys() | replicas.keys()):
        ranks = by_role.get(role, _Ranks())
        counts[role] = max(ranks.count, replicas.get(role, 0))
        yield from (f"{role} {number} is missing" for number in ranks.missing(counts[role]))
    for task in sorted(group.named or ()):
        is_counted = len(task.rank) == 1 and task.rank[0] < counts.get(task.role, 0)
        if not (is_counted or there.has(task)):
            yield f"{task} is missing"
    if _size_counts(group) and (known := _worker_count(group) + _server_count(group)) < (group.size or 0):
        yield f"only {known} of the job's {group.size} pods are known"


@dataclass(slots=True)
class _Ranks:
    """The ranks of one role: all below a number, and others."""

    below: int = 0
    others: set[int] = field(default_factory=set)

    @property
    def count(self) -> int:
        """How many there are at least, if none is missing."""
        return max(self.below, max(self.others, default=-1) + 1)

    def missing(self, count: int) -> Iterator[int]:
        """Yield the ranks below `count` that are not there."""
        return (number for number in range(self.below, count) if number not in self.others)


@dataclass(slots=True)
class _Tasks:
    """The positions of all workers of a group.

    Attributes:
        by_role: those with one number.
        further: those with none, or with several.
    """

    by_role: dict[str, _Ranks] = field(default_factory=dict)
    further: set[TaskPosition] = field(default_factory=set)

    @property
    def are_ranked(self) -> bool:
        """Whether ranges can show that all are there."""
        return not self.further

    def has(self, task: TaskPosition) -> bool:
        """Return whether a position is one of a worker's."""
        ranks = self.by_role.get(task.role, _Ranks())
        if len(task.rank) != 1:
            return task in self.further
        return task.rank[0] < ranks.below or task.rank[0] in ranks.others

    def add(self, tasks: TaskPosition | TaskRange) -> None:
        """Add those of a worker."""
        if isinstance(tasks, TaskRange):
            ranks = self.by_role.setdefault(tasks.role, _Ranks())
            ranks.below = max(ranks.below, tasks.size)
        elif len(tasks.rank) == 1:
            self.by_role.setdefault(tasks.role, _Ranks()).others.add(tasks.rank[0])
        else:
            self.further.add(tasks)


def _tasks(group: Group) -> _Tasks:
    tasks = _Tasks()
    for worker in group.workers:
        tasks.add(worker.tasks)
    return tasks


def _size_counts(group: Group) -> bool:
    """Return whether the size can be compared with what is there.

    Parameter servers are deleted one after the other, the highest rank last: so it still says how many there were. Without ranks,
    a leader that goes on where another one died would find too few.
    """
    return group.size is not None and bool(group.servers) and all(len(rank) == 1 for rank in group.servers)


def _worker_count(group: Group) -> int:
    tasks = _tasks(group)
    with_one_number = sum(
        ranks.below + sum(rank >= ranks.below for rank in ranks.others) for ranks in tasks.by_role.values()
    )
    without = sum(isinstance(worker.tasks, TaskPosition) and not worker.tasks.rank for worker in group.workers)
    return with_one_number + sum(bool(task.rank) for task in tasks.further) + without


def _server_count(group: Group) -> int:
    return max((rank[0] + 1 for rank in group.servers), default=0)


def _listed(names: Iterable[str]) -> str:
    """Return the first names, and whether there are more; empty if there are none."""
    first = list(islice(names, _MOST_NAMES + 1))
    return ", ".join(first[:_MOST_NAMES]) + (" and more" if len(first) > _MOST_NAMES else "")


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
