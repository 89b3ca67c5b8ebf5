"""Figures of simulated runs: how close gangs are, and how long they waited."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from simnode.placement.fabric import VFS_PER_NODE, Fabric
from simnode.placement.simulation import Result, Run


@dataclass(frozen=True, slots=True)
class Figures:
    """Of all gangs of some runs of the simulation.

    Attributes:
        one_leaf: share of the gangs with two pods or more that are in one leaf.
        ring_edges: edges between leaves in the ring of a gang's ranks; the mean of the same gangs.
        wait_mean: seconds from arrival until all pods are bound.
        wait_p95: of the same.
        wait_p95_largest: of the gangs with the most pods.
        utilisation: VF seconds of running gangs, as a share of all VF seconds from the first arrival until the last gang has ended.
        refused: how often the scheduler found no room where a policy had pinned a gang.
    """

    one_leaf: float
    ring_edges: float
    wait_mean: float
    wait_p95: float
    wait_p95_largest: float
    utilisation: float
    refused: int


def figures(fabric: Fabric, results: Sequence[Result]) -> Figures:
    """Put the gangs of all results together."""
    runs = [run for result in results for run in result.runs]
    leaf_of_node = fabric.leaf_of_node()
    edges = [cross_leaf_edges([leaf_of_node[node] for node in run.nodes]) for run in runs if len(run.nodes) > 1]
    waits = [wait(run) for run in runs]
    return Figures(
        one_leaf=mean(not crossing for crossing in edges),
        ring_edges=mean(edges),
        wait_mean=mean(waits),
        wait_p95=percentile(waits, 95),
        wait_p95_largest=percentile([wait(run) for run in runs if len(run.nodes) == fabric.largest], 95),
        utilisation=mean(utilisation(fabric, result.runs) for result in results),
        refused=sum(result.refused for result in results),
    )


def wait(run: Run) -> float:
    """Return how long a gang waited."""
    return run.bound - run.gang.arrives


def cross_leaf_edges(leaves: Sequence[int]) -> int:
    """Count the edges between two leaves in the ring of ranks; a ring of two has two edges."""
    return sum(leaf != leaves[rank - 1] for rank, leaf in enumerate(leaves))


def utilisation(fabric: Fabric, runs: Sequence[Run]) -> float:
    """Return the used share of all VF seconds."""
    used = sum(sum(run.gang.vfs) * run.gang.runs for run in runs)
    seconds = max(run.ended for run in runs) - min(run.gang.arrives for run in runs)
    return used / (sum(fabric.leaves) * VFS_PER_NODE * seconds)


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest value that so many percent do not exceed (nearest rank)."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]
