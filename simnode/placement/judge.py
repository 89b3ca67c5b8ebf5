"""Judge a simulated run by the record of its gangs alone: neither the scheduler nor the policy is asked."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from simnode.placement.fabric import VFS_PER_NODE, Fabric
from simnode.placement.gangs import Gang
from simnode.placement.simulation import Result, Run


def violations(fabric: Fabric, gangs: Sequence[Gang], result: Result, *, one_leaf: bool) -> Iterator[str]:
    """Name what must never happen; `one_leaf`: the policy's constraint is one that each gang requires."""
    yield from _not_run_once(gangs, result)
    yield from _over_booked(fabric, result.runs)
    for run in result.runs:
        if run.bound < run.gang.arrives:
            yield f"{run.gang.name} was bound before it had arrived"
        if len(run.nodes) != len(run.gang.vfs):
            yield f"{run.gang.name} has {len(run.gang.vfs)} pods, of which {len(run.nodes)} were bound"
    if one_leaf:
        leaf_of_node = fabric.leaf_of_node()
        for run in result.runs:
            if len(leaves := {leaf_of_node[node] for node in run.nodes}) > 1:
                yield f"{run.gang.name} requires one leaf and was bound in {len(leaves)}"


def _not_run_once(gangs: Sequence[Gang], result: Result) -> Iterator[str]:
    if waiting := [gang.name for gang in result.waiting]:
        yield f"{len(waiting)} gangs wait for ever though nothing runs, the first is {waiting[0]}"
    if sorted([run.gang.name for run in result.runs] + waiting) != sorted(gang.name for gang in gangs):
        yield "the gangs that ran or wait are not the gangs that arrived"


def _over_booked(fabric: Fabric, runs: Sequence[Run]) -> Iterator[str]:
    """Follow each node's VFs through time; what ends at a moment is free for what begins at that moment."""
    changes: dict[int, list[tuple[float, int]]] = {}
    for run in runs:
        for node, vfs in zip(run.nodes, run.gang.vfs, strict=False):
            changes.setdefault(node, []).extend([(run.bound, vfs), (run.ended, -vfs)])
    nodes = sum(fabric.leaves)
    for node, of_node in sorted(changes.items()):
        most = max(accumulate(vfs for _, vfs in sorted(of_node)))
        if most > VFS_PER_NODE:
            yield f"node {node} held {most} VFs at once and has {VFS_PER_NODE}"
        if not 0 <= node < nodes:
            yield f"node {node} does not exist"
