"""Figures of a run: how long gangs waited, how far they are spread, and which GPUs were idle for nothing."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from benches.gang_load.gangs import Fabric, Gang
from benches.gang_load.record import PodTimes

_STEP_SECONDS = 0.5


class Span(NamedTuple):
    """Where the pods of a gang are, and the least that they need.

    Attributes:
        leaves, nodes: that it uses.
        least_leaves, least_nodes: that would hold it by their number of GPUs.
    """

    leaves: int
    nodes: int
    least_leaves: int
    least_nodes: int


class Waiting(NamedTuple):
    """A gang that waits: how many GPUs it lacks, and whether they must be in one leaf."""

    gpus: int
    required: bool


class Usage(NamedTuple):
    """Shares of all GPUs, the means of a time: those in use, and those that were idle although a gang that they would hold waited."""

    used: float
    idle: float


def placed(fabric: Fabric, gang: Gang, pods: Iterable[PodTimes], leaf_of: Mapping[str, int]) -> Span:
    """Compare the nodes of a gang's pods with the least that would do."""
    nodes = {pod.node for pod in pods}
    return Span(
        len({leaf_of[node] for node in nodes}),
        len(nodes),
        ceil(gang.pods / fabric.leaf_gpus),
        ceil(gang.pods / fabric.node_gpus),
    )


def bound_at(gang: Gang, pods: Sequence[PodTimes]) -> float | None:
    """Return when all pods of a gang were bound: the first so many that were not lost; None if they never were."""
    times = sorted(pod.bound for pod in pods if pod.bound is not None and not pod.lost)
    return times[gang.pods - 1] if len(times) >= gang.pods else None


def fitting(free: Sequence[int], waiting: Iterable[Waiting]) -> int:
    """Return how many of the free GPUs of the leaves the waiting gangs could have, of which each takes what it needs before the next one.

    A gang that must be in one leaf takes the fullest one that holds it, another the emptiest ones.
    """
    left = sorted(free)
    for gang in waiting:
        if gang.required:
            index = next((index for index, gpus in enumerate(left) if gpus >= gang.gpus), None)
            if index is not None:
                left[index] -= gang.gpus
        elif sum(left) >= gang.gpus:
            _take(left, gang.gpus)
        left.sort()
    return sum(free) - sum(left)


def _take(left: list[int], gpus: int) -> None:
    for index in reversed(range(len(left))):
        taken = min(gpus, left[index])
        left[index] -= taken
        gpus -= taken


def usage(
    fabric: Fabric,
    gangs: Mapping[str, Gang],
    created: Mapping[str, float],
    pods: Iterable[PodTimes],
    leaf_of: Mapping[str, int],
    between: tuple[float, float],
) -> Usage:
    """Look at the cluster each half second between two times. A gang that has had a node for each pod waits no more."""
    changes: list[tuple[float, int, int]] = []
    bound: dict[str, list[float]] = defaultdict(list)
    for pod in pods:
        if pod.bound is not None:
            changes.append((pod.bound, leaf_of[pod.node], -1))
            bound[pod.gang].append(pod.bound)
            if pod.ended is not None:
                changes.append((pod.ended, leaf_of[pod.node], 1))
    changes.sort()
    for times in bound.values():
        times.sort()
    free, used, idle, looks, done = _all_free(fabric), 0, 0, 0, 0
    at = between[0]
    while at < between[1]:
        while done < len(changes) and changes[done][0] <= at:
            free[changes[done][1]] += changes[done][2]
            done += 1
        used += fabric.gpus - sum(free)
        idle += fitting(free, _waiting(gangs, created, bound, at))
        looks += 1
        at += _STEP_SECONDS
    return Usage(used / looks / fabric.gpus, idle / looks / fabric.gpus)


def _all_free(fabric: Fabric) -> list[int]:
    rest = fabric.nodes % fabric.leaf_nodes
    free = [fabric.leaf_gpus] * fabric.leaves
    if rest:
        free[-1] = rest * fabric.node_gpus
    return free


def _waiting(
    gangs: Mapping[str, Gang], created: Mapping[str, float], bound: Mapping[str, Sequence[float]], at: float
) -> Iterable[Waiting]:
    """Yield the gangs that have been created and lack nodes, the oldest first."""
    for name, when in created.items():
        if when <= at and (lacking := gangs[name].pods - bisect_right(bound.get(name, ()), at)) > 0:
            yield Waiting(lacking, gangs[name].required)
