"""Many gangs at once on a large, empty cluster: how long the planner takes for one pass over all of them."""

import time
from dataclasses import dataclass, replace
from statistics import median

from railnet.gangs.placement.cluster import Cluster
from railnet.gangs.placement.scheduling_pass import Pass, Rules, schedule
from railnet.jobs.gang.request import Constraint
from simnode.placement.fabric import TEN_BY_64, Fabric
from simnode.placement.gangs import VFS_OF_A_POD, Gang, arriving
from simnode.placement.planner import LEAF, leaf_nodes, planned_gang

_NODES_OF_A_LEAF = 64


@dataclass(frozen=True, slots=True)
class Burst:
    """One pass over many gangs.

    Attributes:
        placed: gangs that got a place.
        pods: their pods.
        median_ms: a pass that decides on all gangs; what room nodes have is known from the pass before.
        fastest_ms: the fastest such pass, which other load of the machine delayed least.
        next_ms: the pass after it, in which nothing has changed and the others still wait.
    """

    placed: int
    pods: int
    median_ms: float
    fastest_ms: float
    next_ms: float


def burst(nodes: int, gangs: int, runs: int) -> Burst:
    """Let gangs with the sizes of `TEN_BY_64` arrive at the same moment; repeat the pass so many times."""
    fabric = Fabric("burst", (_NODES_OF_A_LEAF,) * (nodes // _NODES_OF_A_LEAF), TEN_BY_64.pods, TEN_BY_64.load)
    constraint = Constraint(preferred=(LEAF,), relax_after=30.0)
    all_gangs = [planned_gang(replace(gang, arrives=0.0), constraint) for gang in arriving(fabric, 0, gangs)]
    one_of_each = [planned_gang(Gang(f"one-of-{vfs}", 0.0, 0.0, (vfs,)), constraint) for vfs in VFS_OF_A_POD]
    cluster = Cluster(leaf_nodes(fabric.leaf_of_node()))
    times, next_times, done = [], [], Pass()
    for _ in range(runs):
        schedule(cluster, one_of_each, 0.0, Rules(), Pass())  # what the others have reserved is given back, and counted
        began = time.thread_time()
        done = schedule(cluster, all_gangs, 0.0, Rules(), Pass())
        times.append(time.thread_time() - began)
        began = time.thread_time()
        schedule(cluster, all_gangs, 1.0, Rules(), done)
        next_times.append(time.thread_time() - began)
    return Burst(
        placed=len(done.placements),
        pods=sum(len(placement.seats) for placement in done.placements),
        median_ms=1000 * median(times),
        fastest_ms=1000 * min(times),
        next_ms=1000 * median(next_times),
    )
