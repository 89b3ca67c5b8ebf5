"""Counts for how many members of a shape each node and each domain has room: once, then only what changes."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from railnet.gangs.placement.free_capacity import FreeCapacity
from railnet.gangs.placement.gang import Domain, domain
from railnet.gangs.placement.natural_order import natural_order
from railnet.gangs.placement.pod_shape import Shape

MOST_COMPARED = 256  # nodes of one domain whose room is compared; a cluster without topology is one domain of thousands

_Values = tuple[str | None, ...]


class Grouping:
    """The nodes that have the first few labels of a list, grouped by the values of some of the labels: the domains of one level.

    Attributes:
        of: the number of each node's domain, by the node's position; -1 for a node without one of the labels that it must have.
        nodes: the positions of each domain's nodes. Domains are numbered in the order of the fabric: by values, the larger level's first. Nodes
            without a label are a domain for themselves, the last one.
        values: those of each domain; None for a label that its nodes lack.
    """

    __slots__ = ("_domains", "_keys", "nodes", "of", "values")

    def __init__(self, labels: Sequence[Mapping[str, str]], keys: tuple[str, ...], depth: int, needed: int) -> None:
        """Group nodes by the first `depth` keys; they must have the first `needed` ones."""
        by_values: dict[_Values, list[int]] = {}
        for position, of_node in enumerate(labels):
            values = tuple(map(of_node.get, keys))
            if None not in values[:needed]:
                by_values.setdefault(values[:depth], []).append(position)
        self.values = sorted(by_values, key=_in_the_fabric)
        self.nodes = [by_values[values] for values in self.values]
        self.of = [-1] * len(labels)
        for number, positions in enumerate(self.nodes):
            for position in positions:
                self.of[position] = number
        self._keys = keys[:depth]
        self._domains: dict[int, Domain] = {}

    def number(self, labels: Mapping[str, str]) -> int | None:
        """Return the domain with these labels, of which there may be more; None if there is none."""
        try:
            return self.values.index(tuple(map(labels.get, self._keys)))
        except ValueError:
            return None

    def domain(self, number: int) -> Domain:
        """Return a domain's labels: those that its nodes have."""
        if number not in self._domains:
            labels = zip(self._keys, self.values[number], strict=True)
            self._domains[number] = domain({key: value for key, value in labels if value is not None})
        return self._domains[number]


def _in_the_fabric(values: _Values) -> tuple[tuple[bool, object], ...]:
    return tuple((value is None, natural_order(value or "")) for value in values)


class Level:
    """The room of each domain of a grouping, for one shape.

    Attributes:
        slots: for how many members each domain has room.
        sizes: how many nodes of each domain may have members.
        eligible: whether each node may have members, by its position.
    """

    __slots__ = ("_full_before", "_ordered", "eligible", "grouping", "sizes", "slots")

    def __init__(self, grouping: Grouping, eligible: Sequence[bool], slots: Sequence[int]) -> None:
        self.grouping = grouping
        self.eligible = eligible
        self.slots = [sum(slots[position] for position in nodes) for nodes in grouping.nodes]
        self.sizes = [sum(eligible[position] for position in nodes) for nodes in grouping.nodes]
        self._ordered = sorted(map(self._entry, range(len(self.slots))))
        self._full_before = [0] * len(
            self.slots
        )  # nodes of lower positions have no room; a hint, not always the highest

    def first_with_room(self, number: int, slots: Sequence[int]) -> int:
        """Return the index of a domain's first node that has room; the number of its nodes if none has."""
        nodes = self.grouping.nodes[number]
        index = bisect_left(nodes, self._full_before[number])
        while index < len(nodes) and not slots[nodes[index]]:
            index += 1
        self._full_before[number] = nodes[index] if index < len(nodes) else nodes[-1]
        return index

    def nodes_with_room(self, number: int, slots: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield the positions of a domain's nodes that have room, in order, each with its slots."""
        nodes = self.grouping.nodes[number]
        for index in range(self.first_with_room(number, slots), len(nodes)):
            position = nodes[index]
            if room := slots[position]:
                yield position, room

    def nodes_to_fill(self, number: int, slots: Sequence[int], count: int) -> Iterator[tuple[int, int]]:
        """Yield the positions of few nodes of a domain that have room for `count` equal members, in order, each with its slots."""
        compared = dict(islice(self.nodes_with_room(number, slots), MOST_COMPARED))
        for position in sorted(fewest([(room, position) for position, room in compared.items()], count)):
            yield position, compared[position]
        yield from islice(self.nodes_with_room(number, slots), MOST_COMPARED, None)

    def change(self, differences: Iterable[tuple[int, int]]) -> None:
        """Count slots that came or went, each with its node's position, and put the domains back in order."""
        of, slots, full_before = self.grouping.of, self.slots, self._full_before
        before: dict[int, tuple[int, int, int]] = {}
        for position, difference in differences:
            number = of[position]
            if number < 0:
                continue
            if number not in before:
                before[number] = (slots[number], self.sizes[number], number)
            slots[number] += difference
            if position < full_before[number]:  # noqa: PLR1730 - `min` would cost three times as much
                full_before[number] = position
        for number, entry in before.items():
            del self._ordered[bisect_left(self._ordered, entry)]
            insort(self._ordered, (slots[number], entry[1], number))

    def best_fits(self, members: int) -> Iterator[int]:
        """Yield the domains with room for so many members: least room left first, then fewest nodes, then in the order of the fabric."""
        for index in range(bisect_left(self._ordered, (members,)), len(self._ordered)):
            yield self._ordered[index][2]

    def largest_first(self) -> Iterator[int]:
        """Yield the domains with the most room first; of equal ones the larger, then the last in the order of the fabric."""
        for _, _, number in reversed(self._ordered):
            yield number

    def _entry(self, number: int) -> tuple[int, int, int]:
        return (self.slots[number], self.sizes[number], number)


class Slots:
    """For how many members of one shape each node has room.

    Attributes:
        eligible: whether each node may have members at all, by its position.
        slots: the numbers, by position.
        has_nodes: whether there is a node that may.
        seen: how many of the cluster's changes are counted here.
    """

    __slots__ = ("_levels", "_rooms", "_shape", "eligible", "has_nodes", "seen", "slots")

    def __init__(self, shape: Shape, eligible: Sequence[bool], rooms: Sequence[FreeCapacity], seen: int) -> None:
        self._shape = shape
        self.eligible = eligible
        self.has_nodes = any(eligible)
        self._rooms = rooms
        once = {room: room.slots(shape) for room, may in zip(rooms, eligible, strict=True) if may}
        self.slots = [once[room] if may else 0 for room, may in zip(rooms, eligible, strict=True)]
        self._levels: dict[Grouping, Level] = {}
        self.seen = seen

    def level(self, grouping: Grouping) -> Level:
        """Return the room of a grouping's domains."""
        level = self._levels.get(grouping)
        if level is None:
            level = self._levels[grouping] = Level(grouping, self.eligible, self.slots)
        return level

    def forget(self, grouping: Grouping) -> None:
        """Keep the room of a grouping's domains no longer."""
        self._levels.pop(grouping, None)

    def refresh(self, changed: Iterable[int]) -> None:
        """Count the nodes at these positions again."""
        shape, eligible, rooms, slots = self._shape, self.eligible, self._rooms, self.slots
        differences = []
        for position in set(changed):
            if eligible[position]:
                now = rooms[position].slots(shape)
                if now != slots[position]:
                    differences.append((position, now - slots[position]))
                    slots[position] = now
        if differences:
            for level in self._levels.values():
                level.change(differences)


def fewest(rooms: Iterable[tuple[int, int]], count: int) -> list[int]:
    """Return the positions of as few nodes as have room for `count` equal members; all nodes if these have less.

    The emptiest nodes are taken, but the last one is the fullest that will do: what is left of nodes stays together.

    Args:
        rooms: for how many members there is room on a node, and the node's position.
        count: how many members there are.
    """
    emptiest_first = sorted(rooms, key=lambda room: (-room[0], room[1]))
    chosen: list[int] = []
    for slots, position in emptiest_first:
        if slots >= count:
            enough = [room for room in emptiest_first[len(chosen) :] if room[0] >= count]
            return [*chosen, min(enough)[1]]
        chosen.append(position)
        count -= slots
    return chosen
