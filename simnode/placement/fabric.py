"""Simulated fabrics: how many nodes each leaf switch has, and the gangs that arrive there."""

from dataclasses import dataclass

VFS_PER_NODE = 8


@dataclass(frozen=True, slots=True)
class Fabric:
    """A cluster of equal nodes below leaf switches.

    Attributes:
        leaves: the number of nodes of each leaf switch. Nodes are numbered leaf after leaf.
        pods: sizes of gangs, and the share of the gangs that have each size.
        load: VFs that the arriving gangs need on average, as a share of all VFs.
        with_servers: share of the gangs of two pods or more that have parameter servers, which ask for one VF: one in eight pods, at least one.
    """

    name: str
    leaves: tuple[int, ...]
    pods: tuple[tuple[int, float], ...]
    load: float
    with_servers: float = 0.0

    def leaf_of_node(self) -> list[int]:
        """Return the leaf of each node."""
        return [leaf for leaf, nodes in enumerate(self.leaves) for _ in range(nodes)]

    @property
    def vfs(self) -> int:
        """Return the number of VFs of all nodes."""
        return sum(self.leaves) * VFS_PER_NODE

    @property
    def largest(self) -> int:
        """Return the number of pods of the largest gangs."""
        return max(pods for pods, _ in self.pods)


_PODS = ((1, 0.10), (2, 0.14), (4, 0.20), (8, 0.24), (16, 0.20), (32, 0.12))
# A gang of 32 fits into no leaf of the irregular fabric, and one of 16 only if it asks for half nodes.
_FEWER_PODS = ((1, 0.10), (2, 0.35), (4, 0.30), (8, 0.25))

TEN_BY_64 = Fabric("10 leaves x 64", (64,) * 10, _PODS, load=0.88)
THIRTY_TWO_BY_32 = Fabric("32 leaves x 32", (32,) * 32, _PODS, load=0.84)
# Leaf groups of a real cluster (marin-community/marin#6950).
IRREGULAR = Fabric("15 irregular leaves", (1, 1, 2, 2, 2, 3, 3, 3, 5, 5, 6, 6, 6, 8, 11), _FEWER_PODS, load=0.76)
FABRICS = (TEN_BY_64, THIRTY_TWO_BY_32, IRREGULAR)
