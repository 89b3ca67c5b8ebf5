"""A stand-in for the kube-scheduler: it binds a pod to the emptiest node that its pin allows and that has room.

The real one scores nodes by LeastAllocated, among other things, and takes one of the best at random (plugins/noderesources, least_allocated.go;
schedule_one.go, selectHost). Here VFs are all that counts.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from simnode.placement.fabric import VFS_PER_NODE, Fabric

_ANYWHERE = -1


class Pin(NamedTuple):
    """Where a pod may be.

    Attributes:
        leaf: the leaf that its node selector names; None: any.
        preferred: the node that its node affinity prefers, if that has room; None: none.
    """

    leaf: int | None = None
    preferred: int | None = None


class Scheduler:
    """Nodes and the VFs that are free on them."""

    def __init__(self, fabric: Fabric, seed: int) -> None:
        self.leaves = range(len(fabric.leaves))
        self.leaf_of_node = fabric.leaf_of_node()
        self._free = [VFS_PER_NODE] * len(self.leaf_of_node)
        self._random = Random(seed)  # noqa: S311 - a simulation, repeated by its seed
        self._with_free = [[_Nodes() for _ in range(VFS_PER_NODE + 1)] for _ in (*self.leaves, _ANYWHERE)]
        self._slots = {
            vfs: [nodes * (VFS_PER_NODE // vfs) for nodes in (*fabric.leaves, len(self._free))]
            for vfs in range(1, VFS_PER_NODE + 1)
        }
        for node in range(len(self._free)):
            self._insert(node)

    def slots(self, leaf: int | None, vfs: int) -> int:
        """Return how many pods that ask for so many VFs have room in a leaf, or anywhere."""
        return self._slots[vfs][_ANYWHERE if leaf is None else leaf]

    def choose(self, pin: Pin, vfs: int) -> int | None:
        """Return the node that a pod would be bound to."""
        if pin.preferred is not None and self._free[pin.preferred] >= vfs:
            return pin.preferred
        with_free = self._with_free[_ANYWHERE if pin.leaf is None else pin.leaf]
        for free in range(VFS_PER_NODE, vfs - 1, -1):
            if with_free[free]:
                return with_free[free].any(self._random)
        return None

    def bind(self, vfs: Sequence[int], pins: Sequence[Pin]) -> list[int] | None:
        """Bind pods, one after another, each in the leaf of its pin; bind none if one has no room."""
        nodes: list[int] = []
        for asked, pin in zip(vfs, pins, strict=True):
            node = self.choose(pin, asked)
            if node is None:
                self.release(vfs[: len(nodes)], nodes)
                return None
            self._set_free(node, self._free[node] - asked)
            nodes.append(node)
        return nodes

    def release(self, vfs: Sequence[int], nodes: Sequence[int]) -> None:
        """Free what pods hold."""
        for held, node in zip(vfs, nodes, strict=True):
            self._set_free(node, self._free[node] + held)

    def _set_free(self, node: int, free: int) -> None:
        before, leaf = self._free[node], self.leaf_of_node[node]
        for place in (leaf, _ANYWHERE):
            self._with_free[place][before].remove(node)
        self._free[node] = free
        self._insert(node)
        for vfs, slots in self._slots.items():
            more = free // vfs - before // vfs
            slots[leaf] += more
            slots[_ANYWHERE] += more

    def _insert(self, node: int) -> None:
        for place in (self.leaf_of_node[node], _ANYWHERE):
            self._with_free[place][self._free[node]].add(node)


class _Nodes:
    """A set of which any member can be drawn, repeatably."""

    def __init__(self) -> None:
        self._members: list[int] = []
        self._position: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._members)

    def add(self, node: int) -> None:
        self._position[node] = len(self._members)
        self._members.append(node)

    def remove(self, node: int) -> None:
        last = self._members.pop()
        position = self._position.pop(node)
        if last != node:
            self._members[position] = last
            self._position[last] = position

    def any(self, random: Random) -> int:
        return random.choice(self._members)
