"""The nodes, what pods hold on them, and what is reserved for members of gangs that are placed and not bound yet.

The caller reports what it sees: a node that is new or changed, a pod that is bound or gone. Each report costs microseconds; the room of nodes
and domains is kept for each shape that was asked for, and only what changed is counted again.

A pod holds its resources until it is gone or has ended: also while it is Terminating (kueue#10076). A gang's reservation for a pod is given
back when the pod is reported as bound, on any node, so a pod counts once (kueue#14570).
"""

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from railnet.gangs.placement.domain_room import Grouping, Slots
from railnet.gangs.placement.free_capacity import FreeCapacity
from railnet.gangs.placement.gang import Gang, GangKey, Placement, Seat, SeatLoss
from railnet.gangs.placement.natural_order import natural_order
from railnet.gangs.placement.node import Node, tolerated
from railnet.gangs.placement.pod_shape import Shape
from railnet.jobs.gang.node_terms import NodeTerm

PodKey = tuple[str, str]  # namespace and name

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_Terms = tuple[NodeTerm, ...]
_MOST_SHAPES = 256  # the rooms that are kept; each is a few numbers for each node
_MOST_GROUPINGS = 256  # the levels that are kept: users may name any labels, in any order
_MOST_BEST_ROOMS = 10_000
_MOST_CHANGES = 200_000
_MOST_GROWN = 32  # more are not told apart: to plan a gang again costs less than to compare so many nodes


class Cluster:
    """Nodes, and what is taken of them.

    Attributes:
        generation: counts the times that room may have grown anywhere.
    """

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.generation = 0
        self._nodes: dict[str, Node] = {}
        self._rooms: dict[str, FreeCapacity] = {}
        self._best_rooms: dict[Hashable, FreeCapacity] = {}  # nodes of one kind share it
        self._best_of: dict[str, FreeCapacity] = {}
        self._best_stale: set[str] = set()
        self._staying: dict[str, dict[PodKey, Shape]] = {}
        self._plain: dict[str, dict[PodKey, Shape]] = {}
        self._beside_plain: dict[tuple[Shape, _Terms], list[int]] = {}
        self._held: dict[PodKey, tuple[str, Shape]] = {}
        self._on: dict[str, dict[PodKey, Shape]] = {}
        self._reserved: dict[GangKey, tuple[Seat, ...]] = {}
        self._gang_of: dict[PodKey, GangKey] = {}
        self._order: list[str] | None = None
        self._rooms_in_order: list[FreeCapacity] = []
        self._positions: dict[str, int] = {}
        self._groupings: dict[tuple[tuple[str, ...], int, int | None], Grouping] = {}
        self._unknown: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._lacking: dict[tuple[tuple[str, ...], tuple[str, ...]], bool] = {}
        self._slots: dict[tuple[Shape, _Terms, bool], Slots] = {}
        self._changed: list[int] = []
        self._grown: deque[str] = deque(maxlen=_MOST_GROWN)
        self._kept_free: frozenset[str] = frozenset()
        self._suspects: set[str] = set()
        for node in nodes:
            self.set_node(node)

    # What the caller reports.

    def set_node(self, node: Node) -> None:
        """Report a node that is new, or as it is now. Costs little if nothing changed that counts."""
        before = self._nodes.get(node.name)
        if before == node:
            return
        self._nodes[node.name] = node
        room = self._rooms[node.name] = self._room(node)
        self._best_stale.add(node.name)
        if before and (before.labels, before.taints, before.ready) == (node.labels, node.taints, node.ready):
            if node.name in self._positions:
                self._rooms_in_order[self._positions[node.name]] = room
            self._note_change(node.name)
        else:
            self._forget_layout()
        self._suspects.add(node.name)
        self._note_growth(node.name)

    def remove_node(self, name: str) -> None:
        """Report a node that is gone. The resources that its pods hold are remembered until the pods are reported as gone."""
        if self._nodes.pop(name, None):
            del self._rooms[name]
            self._best_of.pop(name, None)
            self._suspects.add(name)
            self._forget_layout()

    def hold(self, pod: PodKey, node: str, shape: Shape, *, stays: bool = False, plain: bool = False) -> None:
        """Report a bound pod, of a gang or not, Terminating or not. The gang's reservation for the pod is given back.

        One that `stays`, because a DaemonSet or a file of the node makes it, is on the node also when that is empty for gangs. One that is
        `plain`, of no gang, may stay for ever, too: no room is held for a gang that needs the place of such pods.
        """
        if self._held.get(pod) == (node, shape):
            return
        self.release(pod)
        self._give_back(pod)
        self._held[pod] = (node, shape)
        self._on.setdefault(node, {})[pod] = shape
        if stays:
            self._staying.setdefault(node, {})[pod] = shape
            self._best_stale.add(node)
        elif plain:
            self._plain.setdefault(node, {})[pod] = shape
            self._beside_plain.clear()
        self._take(node, shape)
        self._suspects.add(node)

    def release(self, pod: PodKey) -> None:
        """Report a pod that is gone, or Succeeded or Failed."""
        if pod not in self._held:
            return
        node, shape = self._held.pop(pod)
        del self._on[node][pod]
        if self._staying.get(node, {}).pop(pod, None) is not None:
            self._best_stale.add(node)
        if self._plain.get(node, {}).pop(pod, None) is not None:
            self._beside_plain.clear()
        self._take(node, shape, -1)
        self._note_growth(node)

    # What is reserved: by the queue step, or by a caller of `plan`.

    def reserve(self, placement: Placement) -> None:
        """Keep the seats of a gang that was placed, in place of those that it had."""
        self.unreserve(placement.gang)
        self._seat(placement.gang, placement.seats)

    def unreserve(self, gang: GangKey) -> None:
        """Give back what a gang has reserved; for a gang without seats nothing happens."""
        for seat in self._unseat(gang):
            self._note_growth(seat.node)

    def seats(self, gang: GangKey) -> tuple[Seat, ...]:
        """Return what a gang has reserved."""
        return self._reserved.get(gang, ())

    @property
    def reserving(self) -> tuple[GangKey, ...]:
        """The gangs that have something reserved."""
        return tuple(self._reserved)

    def lost_seats(self) -> frozenset[Seat]:
        """Return the seats on nodes that no longer have room for them, or may no longer have them; each is reported once."""
        suspects, self._suspects = self._suspects, set()
        if not self._reserved:
            return frozenset()
        full = {name for name in suspects if name not in self._rooms or self._rooms[name].overfull()}
        return frozenset(
            seat
            for seats in self._reserved.values()
            for seat in seats
            if seat.node in suspects and (seat.node in full or not self._admits(self._nodes[seat.node], seat.shape, ()))
        )

    def loss(self, seat: Seat) -> SeatLoss | None:
        """Return why a node cannot be a seat any more; None if it can, as long as it has room."""
        node = self._nodes.get(seat.node)
        if node is None:
            return SeatLoss.GONE
        return None if self._admits(node, seat.shape, ()) else SeatLoss.CLOSED

    def keep_free(self, nodes: Iterable[str]) -> None:
        """Show no room on these nodes: they are held for the gang at the head of the queue. Replaces what was kept free before."""
        wanted = frozenset(nodes)
        for name in wanted ^ self._kept_free:
            if name in self._rooms:
                self._rooms[name].kept = name in wanted
                self._note_change(name)
        self._kept_free = wanted

    # What the planner asks.

    @property
    def nodes(self) -> dict[str, Node]:
        """The nodes by name."""
        return self._nodes

    def look(self, position: int) -> FreeCapacity:
        """Return what is left on the node at a position, which is not to be changed."""
        self.names()
        return self._rooms_in_order[position]

    def held_on(self, pod: PodKey) -> str:
        """Return the node that a bound pod is on; empty if it is not known."""
        return self._held[pod][0] if pod in self._held else ""

    def position(self, node: str) -> int | None:
        """Return the position of a node; None if there is no such node."""
        self.names()
        return self._positions.get(node)

    def names(self) -> list[str]:
        """Return the nodes in the order of their positions, which is the order of their names with numbers by value."""
        if self._order is None:
            self._order = sorted(self._nodes, key=natural_order)
            self._positions = {name: position for position, name in enumerate(self._order)}
            self._rooms_in_order = [self._rooms[name] for name in self._order]
        return self._order

    def unknown(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of some labels that no node has; none while there are no nodes."""
        unknown = self._unknown.get(keys)
        if unknown is None:
            labels = [node.labels for node in self._nodes.values()]
            unknown = tuple(key for key in keys if labels and not any(key in of_node for of_node in labels))
            self._unknown = {**_few(self._unknown), keys: unknown}
        return unknown

    def lacks(self, needed: tuple[str, ...], others: tuple[str, ...]) -> bool:
        """Return whether a node that has some labels lacks one of the others."""
        lacks = self._lacking.get((needed, others))
        if lacks is None:
            labels = [node.labels.keys() for node in self._nodes.values()]
            lacks = any(of_node >= {*needed} and not of_node >= {*others} for of_node in labels)
            self._lacking = {**_few(self._lacking), (needed, others): lacks}
        return lacks

    def grouping(self, keys: tuple[str, ...], depth: int, needed: int | None = None) -> Grouping:
        """Return the domains of one level: see `Grouping`; without `needed`, of nodes that have all of the labels."""
        grouping = self._groupings.get((keys, depth, needed))
        if grouping is None:
            grouping = self._groupings[keys, depth, needed] = self._grouped(keys, depth, needed)
            if len(self._groupings) > _MOST_GROUPINGS:
                forgotten = self._groupings.pop(next(iter(self._groupings)))
                for slots in self._slots.values():
                    slots.forget(forgotten)
        return grouping

    def _grouped(self, keys: tuple[str, ...], depth: int, needed: int | None) -> Grouping:
        if needed is not None and not self.lacks(keys[:needed], keys[needed:]):
            return self.grouping(keys, depth)  # the same nodes, and their room is known
        labels = [self._nodes[name].labels for name in self.names()]
        return Grouping(labels, keys, depth, len(keys) if needed is None else needed)

    def within(self, keys: tuple[str, ...], depth: int, number: int) -> range:
        """Return the smallest domains of a larger one, that of nodes without the smaller labels included. They are numbered by the larger one's values first, so they are neighbours."""
        leaves = self.grouping(keys, len(keys), depth)
        if not depth:
            return range(len(leaves.nodes))
        numbers = [leaves.of[position] for position in self.grouping(keys, depth, depth).nodes[number]]
        return range(min(numbers), max(numbers) + 1)

    def slots(self, shape: Shape, terms: _Terms) -> Slots:
        """Return for how many more pods of a shape each node has room; one of `terms` must hold for a node, if there are any."""
        return self._index(shape, terms, at_best=False)

    def slots_at_best(self, shape: Shape, terms: _Terms) -> Slots:
        """Return the same for nodes that are all ready, and empty but for pods that stay."""
        for name in self._best_stale & self._nodes.keys():
            self._set_best(name)
        self._best_stale.clear()
        return self._index(shape, terms, at_best=True)

    def grew(self, gang: Gang, generation: int) -> bool:
        """Return whether a node that this gang may use got more room since a generation: otherwise planning it again is useless.

        If many nodes got more room, they are not looked at closely.
        """
        names = self._grown_since(generation)
        if names is None:
            return True
        shapes = {member.shape for member in gang.members}
        return any(
            name in self._nodes and self._admits(self._nodes[name], shape, gang.constraint.nodes)
            for name in names
            for shape in shapes
        )

    def _grown_since(self, generation: int) -> set[str] | None:
        """Return the nodes that grew; None if they are many."""
        missed = self.generation - generation
        if missed > len(self._grown):
            return None
        return {self._grown[-1 - index] for index in range(missed)}

    def slots_beside_plain(self, shape: Shape, terms: _Terms) -> Sequence[int]:
        """Return the same, by the nodes' positions, for nodes on which the pods of no gang stay."""
        best = self.slots_at_best(shape, terms).slots
        slots = self._beside_plain.get((shape, terms))
        if slots is None:
            slots = list(best)
            for position, name in enumerate(self.names()):
                if slots[position] and (plain := self._plain.get(name)):
                    room = self._best_of[name].copy()
                    for plain_shape in plain.values():
                        room.take(plain_shape)
                    slots[position] = room.slots(shape)
            self._beside_plain[shape, terms] = slots
            if len(self._beside_plain) > _MOST_SHAPES:
                del self._beside_plain[next(iter(self._beside_plain))]
        return slots

    def _index(self, shape: Shape, terms: _Terms, *, at_best: bool) -> Slots:
        key = (shape, terms, at_best)
        slots = self._slots.get(key)
        if slots is None:
            slots = self._slots[key] = self._counted(shape, terms, at_best=at_best)
            if len(self._slots) > _MOST_SHAPES:
                del self._slots[next(iter(self._slots))]
        elif slots.seen != len(self._changed):
            if not at_best:
                slots.refresh(self._changed[slots.seen :])
            slots.seen = len(self._changed)
        return slots

    def _counted(self, shape: Shape, terms: _Terms, *, at_best: bool) -> Slots:
        nodes = [self._nodes[name] for name in self.names()]
        eligible = self._eligible(nodes, shape, terms, unready=at_best)
        rooms = [self._best_of[node.name] for node in nodes] if at_best else self._rooms_in_order
        return Slots(shape, eligible, rooms, len(self._changed))

    def _eligible(self, nodes: list[Node], shape: Shape, terms: _Terms, *, unready: bool) -> list[bool]:
        if not (
            shape.selector or shape.affinity is not None or terms
        ):  # the common case, quickly: then only the taints count
            admitted = {taints: tolerated(taints, shape.tolerations) for taints in {node.taints for node in nodes}}
            return [(node.ready or unready) and admitted[node.taints] for node in nodes]
        return [self._admits(node, shape, terms, unready=unready) for node in nodes]

    def _admits(self, node: Node, shape: Shape, terms: _Terms, *, unready: bool = False) -> bool:
        return (
            (node.ready or unready)
            and (not node.taints or tolerated(node.taints, shape.tolerations))
            and shape.may_be_on(node.name, node.labels)
            and (not terms or any(term.holds(node.labels) for term in terms))
        )

    def _room(self, node: Node) -> FreeCapacity:
        room = FreeCapacity(node.allocatable)
        for shape in self._on.get(node.name, {}).values():
            room.take(shape)
        for seats in self._reserved.values():
            for seat in seats:
                if seat.node == node.name:
                    room.take(seat.shape)
        room.kept = node.name in self._kept_free
        return room

    def _seat(self, gang: GangKey, seats: tuple[Seat, ...]) -> None:
        if not seats:
            return
        self._reserved[gang] = seats
        namespace = gang[0]
        for seat in seats:
            if seat.member:
                self._gang_of[namespace, seat.member] = gang
        for node, shape, pods in _together(seats):
            self._take(node, shape, pods)

    def _unseat(self, gang: GangKey) -> tuple[Seat, ...]:
        seats = self._reserved.pop(gang, ())
        for seat in seats:
            self._gang_of.pop((gang[0], seat.member), None)
        for node, shape, pods in _together(seats):
            self._take(node, shape, -pods)
        return seats

    def _give_back(self, pod: PodKey) -> None:
        gang = self._gang_of.pop(pod, None)
        if gang is None:
            return
        seats = self._reserved[gang]
        left = tuple(seat for seat in seats if seat.member != pod[1])
        for seat in seats:
            if seat.member == pod[1]:
                self._take(seat.node, seat.shape, -1)
                self._note_growth(seat.node)
        if left:
            self._reserved[gang] = left
        else:
            del self._reserved[gang]

    def _take(self, node: str, shape: Shape, pods: int = 1) -> None:
        room = self._rooms.get(node)
        if room is not None:
            room.take(shape, pods)
            self._note_change(node)

    def _note_change(self, name: str) -> None:
        if self._slots and name in self._positions:
            self._changed.append(self._positions[name])
            if len(self._changed) > _MOST_CHANGES:
                self._slots.clear()
                self._changed.clear()

    def _note_growth(self, name: str) -> None:
        self.generation += 1
        self._grown.append(name)

    def _set_best(self, name: str) -> None:
        node = self._nodes[name]
        room = FreeCapacity(node.at_best or node.allocatable)
        for shape in self._staying.get(name, {}).values():
            room.take(shape)
        if len(self._best_rooms) >= _MOST_BEST_ROOMS:
            self._best_rooms.clear()
        best = self._best_rooms.setdefault((frozenset(room.free.items()), frozenset(room.ports)), room)
        if best is not self._best_of.get(name):
            self._best_of[name] = best
            self._forget_best()

    def _forget_best(self) -> None:
        self._beside_plain.clear()
        for key in [key for key in self._slots if key[2]]:
            del self._slots[key]

    def _forget_layout(self) -> None:
        self._order = None
        self._positions.clear()
        self._groupings.clear()
        self._unknown.clear()
        self._lacking.clear()
        self._slots.clear()
        self._beside_plain.clear()
        self._changed.clear()


def _few(remembered: dict[_Key, _Value]) -> dict[_Key, _Value]:
    return remembered if len(remembered) < _MOST_GROUPINGS else {}


def _together(seats: Iterable[Seat]) -> Iterator[tuple[str, Shape, int]]:
    """Yield the nodes of seats with how many of one shape follow each other on it."""
    node, shape, pods = "", None, 0
    for seat in seats:
        if seat.node == node and seat.shape is shape:
            pods += 1
            continue
        if shape is not None:
            yield node, shape, pods
        node, shape, pods = seat.node, seat.shape, 1
    if shape is not None:
        yield node, shape, pods
