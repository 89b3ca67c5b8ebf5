"""Railnet's planner as a policy: `railnet.gangs.placement` decides, and is informed of nodes, bound pods and pods that are gone."""

from collections.abc import Iterator, Sequence
from functools import cache

from railnet.gangs.placement.cluster import Cluster
from railnet.gangs.placement.gang import Gang as PlannedGang
from railnet.gangs.placement.gang import Member, Reason, Seat
from railnet.gangs.placement.node import Node
from railnet.gangs.placement.pod_shape import Shape, shape
from railnet.gangs.placement.scheduling_pass import Pass, Rules, schedule
from railnet.jobs.gang.request import Constraint
from simnode.placement.fabric import VFS_PER_NODE
from simnode.placement.gangs import Gang
from simnode.placement.policy import Decision
from simnode.placement.scheduler import Pin, Scheduler

LEAF = "railnet.io/leaf"
_NAMESPACE = "ml"
_BOUND_SECONDS = 1.0
_GIB = 1 << 30


class Planner:
    """The planner, with the same constraint for all gangs.

    Attributes:
        last: its last pass.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        constraint: Constraint,
        rules: Rules,
        *,
        prefers_nodes: bool = False,
        pins_leaf: bool = True,
    ) -> None:
        """Make it.

        Args:
            scheduler: for the leaves of its nodes.
            constraint: what all gangs ask for.
            rules: what each pass goes by.
            prefers_nodes: whether pods prefer the node on which the planner keeps room for them.
            pins_leaf: whether pods are pinned to its leaf. Those of a PodGroup are not: they are nominated for the node alone.
        """
        self.last = Pass()
        self._constraint, self._rules = constraint, rules
        self._prefers_nodes, self._pins_leaf = prefers_nodes, pins_leaf
        self._leaves = {_leaf_name(leaf): leaf for leaf in scheduler.leaves}
        self._nodes = {_node_name(number): number for number in range(len(scheduler.leaf_of_node))}
        self._cluster = Cluster(leaf_nodes(scheduler.leaf_of_node))
        self._waiting: dict[str, PlannedGang] = {}
        self._again: float | None = None

    def decide(self, waiting: Sequence[Gang], now: float) -> Iterator[Decision]:
        """Yield what one pass places."""
        self._waiting = {
            gang.name: self._waiting.get(gang.name) or planned_gang(gang, self._constraint) for gang in waiting
        }
        gangs = {gang.name: gang for gang in waiting}
        self.last = schedule(self._cluster, self._waiting.values(), now, self._rules, self.last)
        waits_for_others = any(one.reason is Reason.BINDING for one in self.last.shortfalls)
        self._again = min(
            (
                time
                for time in (self.last.again, now + _BOUND_SECONDS if waits_for_others else None)
                if time is not None
            ),
            default=None,
        )
        for placement in self.last.placements:
            yield Decision(gangs[placement.gang[1]], [self._pin(seat) for seat in placement.seats])

    def again(self) -> float | None:
        """Return what the last pass said, or when its pods are bound if another gang waits for that."""
        return self._again

    def bound(self, gang: Gang, nodes: Sequence[int]) -> None:
        """Report bound pods."""
        for rank, (vfs, node) in enumerate(zip(gang.vfs, nodes, strict=True)):
            self._cluster.hold((_NAMESPACE, _pod_name(gang, rank)), _node_name(node), worker_shape(vfs))

    def ended(self, gang: Gang) -> None:
        """Report pods that are gone."""
        for rank in range(len(gang.vfs)):
            self._cluster.release((_NAMESPACE, _pod_name(gang, rank)))

    def _pin(self, seat: Seat) -> Pin:
        leaf = dict(seat.domain).get(LEAF)
        return Pin(
            leaf=self._leaves[leaf] if leaf is not None and self._pins_leaf else None,
            preferred=self._nodes[seat.node] if self._prefers_nodes else None,
        )


def planned_gang(gang: Gang, constraint: Constraint) -> PlannedGang:
    """Return a gang as the planner sees it, with pods that all exist and wait."""
    return PlannedGang(
        namespace=_NAMESPACE,
        name=gang.name,
        members=tuple(
            Member(_pod_name(gang, rank), worker_shape(vfs), "worker", rank) for rank, vfs in enumerate(gang.vfs)
        ),
        needed=len(gang.vfs),
        constraint=constraint,
        priority=gang.priority,
        since=gang.arrives,
    )


@cache
def worker_shape(vfs: int) -> Shape:
    """Return the shape of a worker with as many GPUs as VFs, and its share of the node."""
    requests = {"cpu": f"{11 * vfs}", "memory": f"{112 * vfs}Gi", "nvidia.com/gpu": str(vfs), "rdma/ib_vf": str(vfs)}
    return shape({"containers": [{"name": "main", "resources": {"requests": requests, "limits": requests}}]})


def leaf_nodes(leaf_of_node: Sequence[int]) -> Iterator[Node]:
    """Yield nodes with the leaves of these numbers."""
    for number, leaf in enumerate(leaf_of_node):
        yield _node(number, leaf)


def _node(number: int, leaf: int) -> Node:
    name = _node_name(number)
    return Node(
        name=name,
        labels={"kubernetes.io/hostname": name, LEAF: _leaf_name(leaf)},
        allocatable={
            "pods": 110,
            "cpu": 96_000,
            "memory": 1000 * _GIB,
            "nvidia.com/gpu": VFS_PER_NODE,
            "rdma/ib_vf": VFS_PER_NODE,
        },
    )


def _node_name(number: int) -> str:
    return f"node-{number}"


def _leaf_name(leaf: int) -> str:
    return f"leaf-{leaf}"


def _pod_name(gang: Gang, rank: int) -> str:
    return f"{gang.name}-worker-{rank}"
