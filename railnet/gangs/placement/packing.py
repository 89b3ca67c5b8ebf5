"""Members put on nodes one by one, as they will really lie there: sums of free resources promise what single nodes do not have."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple

from railnet.gangs.placement.domain_room import MOST_COMPARED, Grouping, Slots, fewest
from railnet.gangs.placement.free_capacity import FreeCapacity
from railnet.gangs.placement.gang import Member
from railnet.gangs.placement.pod_shape import Shape


class Put(NamedTuple):
    """A member that has a place: the number of its leaf and its node's position."""

    member: Member
    leaf: int
    position: int


@dataclass(slots=True)
class _Order:
    """The positions of a leaf's nodes, in the order in which members of a shape fill them. A node without room has none later: rooms only shrink.

    Attributes:
        position: of the node that is being filled; None if all are full.
        later: those after it.
    """

    position: int | None
    later: Iterator[int]


@dataclass(slots=True)
class Packing:
    """Nodes that are being filled.

    Attributes:
        leaves: the smallest domains.
        slots: for each shape, which nodes its members may be on and for how many there is room now.
        room: returns a copy of what is left on the node at a position.
        freed: what leaves the nodes at these positions, if the question is what would fit then.
    """

    leaves: Grouping
    slots: Mapping[Shape, Slots]
    room: Callable[[int], FreeCapacity]
    freed: Mapping[int, Sequence[Shape]] = field(default_factory=dict)
    _rooms: dict[int, FreeCapacity] = field(default_factory=dict)
    _left: Counter[Shape] = field(default_factory=Counter)  # members that are still to be put
    _orders: dict[tuple[int, Shape], _Order] = field(default_factory=dict)

    def slots_in(self, leaf: int, shape: Shape) -> int:
        """Return for how many members of a shape there is room in a leaf before anything is put there."""
        slots = self.slots[shape]
        more = sum(
            self._room(position).slots(shape) - slots.slots[position]
            for position in self.freed
            if self.leaves.of[position] == leaf and slots.eligible[position]
        )
        return slots.level(self.leaves).slots[leaf] + more

    def put(self, member: Member, leaf: int) -> Put | None:
        """Put a member on a node of a leaf that has room for it, so that those that are left take few nodes; None if there is no room."""
        shape, slots = member.shape, self.slots[member.shape]
        order = self._orders.get((leaf, shape)) or self._begin(leaf, shape)
        while (position := order.position) is not None:
            if (slots.slots[position] or self._is_freed(slots, position)) and self._room(position).slots(shape):
                return self._taken(member, leaf, position)
            order.position = next(order.later, None)
        return None

    def put_on(self, member: Member, position: int) -> Put | None:
        """Put a member on one node; None if that has no room for it, or is in no leaf."""
        slots, leaf = self.slots[member.shape], self.leaves.of[position]
        if leaf < 0 or not (slots.slots[position] or self._is_freed(slots, position)):
            return None
        return self._taken(member, leaf, position) if self._room(position).slots(member.shape) else None

    def fill(self, members: Sequence[Member], leaves: Sequence[int]) -> list[Put] | None:
        """Put members into leaves one after the other and never back to one that was left, so neighbours in rank are neighbours.

        Returns:
            None if they do not all fit so.
        """
        puts: list[Put] = []
        self._left = Counter(member.shape for member in members)
        index = 0
        for member in members:
            place = None
            while index < len(leaves) and (place := self.put(member, leaves[index])) is None:
                index += 1
            if place is None:
                return None
            puts.append(place)
        return puts

    def put_all(
        self, members: Sequence[Member], leaves: Callable[[Member], Iterable[int]], *, some: bool = False
    ) -> list[Put] | None:
        """Put each member into the first leaf of its own order that has room.

        Returns:
            None if there is no room for one of them; with `some`, those that there is room for.
        """
        puts: list[Put] = []
        self._left = Counter(member.shape for member in members)
        for member in members:
            place = next((put for leaf in leaves(member) if (put := self.put(member, leaf))), None)
            if place is not None:
                puts.append(place)
            elif not some:
                return None
        return puts

    def put_in(self, members: Sequence[Member], leaves: Sequence[int], *, some: bool = False) -> list[Put] | None:
        """Put each member into the first of these leaves that has room; the result is as in `put_all`."""
        puts: list[Put] = []
        self._left = Counter(member.shape for member in members)
        first: dict[Shape, int] = {}  # leaves before have no room for the shape, and will have none
        for member in members:
            place, index = None, first.get(member.shape, 0)
            while index < len(leaves) and (place := self.put(member, leaves[index])) is None:
                index += 1
            first[member.shape] = index
            if place is not None:
                puts.append(place)
            elif not some:
                return None
        return puts

    def _taken(self, member: Member, leaf: int, position: int) -> Put:
        self._rooms[position].take(member.shape)
        self._left[member.shape] -= 1
        return Put(member, leaf, position)

    def _begin(self, leaf: int, shape: Shape) -> _Order:
        """Return the order of a leaf's nodes for the members of a shape: those that hold the members on few nodes, then all others."""
        slots, nodes = self.slots[shape], self.leaves.nodes[leaf]
        few = [] if self.freed else sorted(self._fewest_nodes(leaf, shape))
        first = 0 if self.freed else slots.level(self.leaves).first_with_room(leaf, slots.slots)
        positions = chain(few, (nodes[index] for index in range(first, len(nodes))))
        order = self._orders[leaf, shape] = _Order(next(positions, None), positions)
        return order

    def _fewest_nodes(self, leaf: int, shape: Shape) -> list[int]:
        """Return the positions of few nodes of a leaf that have room for the members of a shape that are left, or for as many as the leaf has."""
        slots = self.slots[shape]
        with_room = slots.level(self.leaves).nodes_with_room(leaf, slots.slots)
        rooms = [
            (self._rooms[position].slots(shape) if position in self._rooms else room, position)
            for position, room in islice(with_room, MOST_COMPARED)
        ]
        return fewest(rooms, self._left[shape])

    def _is_freed(self, slots: Slots, position: int) -> bool:
        return position in self.freed and slots.eligible[position]

    def _room(self, position: int) -> FreeCapacity:
        if position not in self._rooms:
            room = self._rooms[position] = self.room(position)
            for shape in self.freed.get(position, ()):
                room.take(shape, -1)
        return self._rooms[position]
