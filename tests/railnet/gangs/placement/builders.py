"""Small clusters and gangs for the planner's tests."""

from collections.abc import Iterable, Mapping
from typing import Any

from railnet.gangs.placement.cluster import Cluster
from railnet.gangs.placement.gang import Gang, Member, Placement
from railnet.gangs.placement.node import Node
from railnet.gangs.placement.pod_shape import Shape
from railnet.gangs.placement.scheduling_pass import Pass, Rules, schedule
from railnet.jobs.gang.request import Constraint

LEAF, SPINE = "railnet.io/leaf", "railnet.io/spine"
IN_ONE_LEAF = Constraint(required=(LEAF,))
BEST_IN_ONE_LEAF = Constraint(preferred=(LEAF,), relax_after=30)
WORKER = Shape((("cpu", 4000), ("pods", 1), ("rdma/ib_vf", 4)))
SMALL = Shape((("cpu", 1000), ("pods", 1), ("rdma/ib_vf", 1)))
SERVER = Shape((("cpu", 8000), ("pods", 1)))


def a_node(name: str, leaf: str = "", labels: Mapping[str, str] | None = None, **amounts: int) -> Node:
    """Return a node with 8 VFs and 16 cores, as long as `amounts` does not say otherwise (`vfs`, `cpu`, `pods`)."""
    allocatable = {
        "cpu": amounts.get("cpu", 16) * 1000,
        "pods": amounts.get("pods", 110),
        "rdma/ib_vf": amounts.get("vfs", 8),
    }
    return Node(name, {**({LEAF: leaf} if leaf else {}), **(labels or {})}, allocatable)


def leaves(*sizes: int, **amounts: int) -> Cluster:
    """Return a cluster with so many nodes in each leaf: nodes `a-0`, `a-1`, `b-0` and so on, in leaves `a`, `b`, `c`."""
    return Cluster(
        a_node(f"{chr(97 + leaf)}-{index}", chr(97 + leaf), **amounts)
        for leaf, size in enumerate(sizes)
        for index in range(size)
    )


def members(count: int, shape: Shape = WORKER, role: str = "worker", gang: str = "bert") -> tuple[Member, ...]:
    """Return pods with their gate."""
    return tuple(Member(f"{gang}-{role}-{rank}", shape, role, rank) for rank in range(count))


def to_come(count: int, shape: Shape = WORKER, role: str = "worker") -> tuple[Member, ...]:
    """Return members that do not exist yet."""
    return tuple(Member("", shape, role, rank) for rank in range(count))


def a_gang(count: int = 2, constraint: Constraint = IN_ONE_LEAF, name: str = "bert", **fields: Any) -> Gang:
    """Return a gang of workers with their gates."""
    return Gang("ml", name, fields.pop("members", members(count, gang=name)), constraint=constraint, **fields)


def occupy(cluster: Cluster, node: str, count: int = 1, shape: Shape = WORKER) -> None:
    """Put pods of no gang on a node."""
    for index in range(count):
        cluster.hold(("other", f"on-{node}-{shape.requests[0][1]}-{index}"), node, shape)


def leaf_of(placement: object) -> str:
    """Return the leaf of a placement that is in one."""
    assert isinstance(placement, Placement), placement
    return dict(placement.domain)[LEAF]


def nodes_of(placement: object) -> list[str]:
    """Return the nodes of a placement's seats, in the order of the ranks."""
    assert isinstance(placement, Placement), placement
    return [seat.node for seat in placement.seats]


def a_pass(cluster: Cluster, gangs: Iterable[Gang], now: float = 0.0, before: Pass | None = None, **rules: Any) -> Pass:
    """Return one pass over gangs."""
    return schedule(cluster, gangs, now, Rules(**rules), before or Pass())
