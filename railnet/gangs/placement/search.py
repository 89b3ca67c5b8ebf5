"""The search for a gang's domain: level by level, from the smallest domains up."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate

from railnet.gangs.placement.cluster import Cluster
from railnet.gangs.placement.domain_room import Grouping, Level, Slots
from railnet.gangs.placement.gang import Domain, Gang, GangKey, Member, Placement, Seat, ring_order
from railnet.gangs.placement.packing import Packing, Put
from railnet.gangs.placement.pod_shape import Shape
from railnet.jobs.gang.request import Constraint

_Seats = dict[Member, tuple[int, ...]]  # the positions of the nodes that a member may have before others, in this order


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of domains that a gang may have.

    Attributes:
        keys: all labels, from the largest domain to the smallest; the smallest domains, called leaves, have their own values of all of them.
        depths: how many of the keys make each level's domains, in the order in which the levels are tried.
    """

    keys: tuple[str, ...]
    depths: tuple[int, ...]


def known(cluster: Cluster, constraint: Constraint) -> Constraint:
    """Return a constraint without the preferred labels that no node has: these say nothing of where a gang should be."""
    unknown = cluster.unknown(constraint.preferred)
    if not unknown:
        return constraint
    return replace(constraint, preferred=tuple(key for key in constraint.preferred if key not in unknown))


def levels(constraint: Constraint, *, relaxed: bool) -> Levels:
    """Return the levels that a constraint permits."""
    return _levels(constraint.required, constraint.preferred, relaxed)


@lru_cache(maxsize=256)  # gangs name few different labels; not by the constraint: its nodes may take 80 KB
def _levels(required: tuple[str, ...], preferred_keys: tuple[str, ...], relaxed: bool) -> Levels:
    preferred = tuple(key for key in reversed(preferred_keys) if key not in required)
    keys, least = (*required, *preferred), len(required)
    lowest = least if relaxed or not preferred else least + 1
    return Levels(keys, tuple(range(len(keys), lowest - 1, -1)))


@dataclass(frozen=True, slots=True)
class WantedMembers:
    """The members of a gang, by what is known of their places.

    Attributes:
        bound: the nodes that members are bound to.
        pinned: those that have a domain and no node.
        loose: those that have neither, in the order of their ranks.
        optional: how many of `loose`, counted from the end, are beyond what must start together.
    """

    bound: tuple[Member, ...]
    pinned: tuple[Member, ...]
    loose: tuple[Member, ...]
    optional: int


def wanted(cluster: Cluster, gang: Gang) -> WantedMembers:
    """Sort a gang's members. Those that nothing is known of yet are added, with the biggest shape."""
    members = gang.members
    if not gang.started and gang.needed in (0, len(members)):
        return WantedMembers((), (), members, 0)
    if len(members) < gang.needed and members:
        members += _strangers(cluster, gang)
    bound = tuple(member for member in members if member.node)
    pinned = tuple(member for member in members if not member.node and member.pinned is not None)
    loose = [member for member in members if not member.node and member.pinned is None]
    optional = min(len(loose), max(0, len(members) - gang.needed)) if gang.needed else 0
    if optional:
        loose.sort(key=lambda member: not member.name)
    return WantedMembers(bound, pinned, tuple(loose), optional)


def placement_of(gang: GangKey, seats: tuple[Seat, ...]) -> Placement:
    """Return the placement with these seats."""
    domains = {seat.domain for seat in seats} or {()}
    common = next(iter(domains)) if len(domains) == 1 else tuple(sorted(set.intersection(*map(set, domains))))
    return Placement(gang, common, seats, len(domains))


def place_seated(cluster: Cluster, gang: Gang) -> Placement | None:
    """Find the pinned members of a gang that still have room on the nodes that they were given; None if none has."""
    search, want = Search(cluster, gang, relaxed=True), wanted(cluster, gang)
    puts = search.keep_seats(want)
    return search.placement(puts, search.lowest) if puts else None


def place_pinned(cluster: Cluster, gang: Gang) -> Placement | None:
    """Find places for the pinned members of a gang that there is room for; None if there is none for any of them."""
    return _place_some(Search(cluster, gang, relaxed=True), replace(wanted(cluster, gang), loose=(), optional=0))


def place_some(cluster: Cluster, gang: Gang, *, relaxed: bool) -> Placement | None:
    """Find places for those members of a gang that has started that there is room for: pinned ones first."""
    return _place_some(Search(cluster, gang, relaxed=relaxed), wanted(cluster, gang)) or place_pinned(cluster, gang)


def _place_some(search: "Search", want: WantedMembers) -> Placement | None:
    depth = search.depths(want)[-1]
    fixed = search.fixed(want, depth)
    puts = search.pack(want, depth, fixed.pop(), {}, some=True) if len(fixed) == 1 else None
    return search.placement(puts, depth) if puts else None


def place(cluster: Cluster, gang: Gang, before: Sequence[Seat] = (), *, relaxed: bool = False) -> Placement | None:
    """Find a place for a gang; None if there is none. `before` are the seats that it had, which it keeps where that is possible."""
    want = wanted(cluster, gang)
    search = Search(cluster, gang, before, relaxed=relaxed)
    if not want.optional:
        return search.place(want)
    return _most(search, want)


def _most(search: "Search", want: WantedMembers) -> Placement | None:
    """Place as many of the members beyond `needed` as possible: the search halves, because fewer always fit where more do."""
    most, least = len(want.loose), len(want.loose) - want.optional

    def first(count: int) -> Placement | None:
        return search.place(replace(want, loose=tuple(sorted(want.loose[:count], key=ring_order))))

    best = first(most)
    if best is not None or (best := first(least)) is None:
        return best
    while most - least > 1:
        middle = (most + least) // 2
        placement = first(middle)
        if placement is None:
            most = middle
        else:
            best, least = placement, middle
    return best


def _strangers(cluster: Cluster, gang: Gang) -> tuple[Member, ...]:
    """Return the members that nothing is known of yet; of those that an empty cluster has no room for, one is enough to find no place.

    Their number is the author's word: a pod that says a million must not cost every pass a million members.
    """

    def slots(member: Member) -> int:
        return sum(cluster.slots_at_best(member.shape, gang.constraint.nodes).slots)

    biggest = min({member.shape: member for member in gang.members}.values(), key=slots)
    first = max(member.rank for member in gang.members) + 1
    count = min(gang.needed - len(gang.members), slots(biggest) + 1)
    return tuple(Member("", biggest.shape, biggest.role, first + index) for index in range(count))


class Search:
    """The search for one gang.

    Attributes:
        terms: the constraint's, of which one must hold for each node.
        exclusions: the domains that the gang must not have.
    """

    def __init__(self, cluster: Cluster, gang: Gang, before: Sequence[Seat] = (), *, relaxed: bool = False) -> None:
        self._cluster = cluster
        self._gang = gang
        self._before = before
        self._by_name = {seat.member: seat for seat in before if seat.member} if before else {}
        self._levels = levels(known(cluster, gang.constraint), relaxed=relaxed)
        self._keys = self._levels.keys
        self.terms = gang.constraint.nodes
        self.exclusions = gang.excluded
        self._larger = [set(domain) for domain in gang.excluded if len(domain) < len(self._keys)]

    def place(self, want: WantedMembers) -> Placement | None:
        """Find a place for these members."""
        if not want.loose and not want.pinned:
            return Placement(self._gang.key, (), ())
        kept = self._kept(want)
        for attempt in (kept, want) if kept is not want else (want,):
            for depth in self.depths(attempt):
                placement = self._at(attempt, depth)
                if placement is not None:
                    return placement
        return None

    def depths(self, want: WantedMembers) -> tuple[int, ...]:
        """Return the levels to try; a gang that is spread already may stay so."""
        depths, least = self._levels.depths, len(self._gang.constraint.required)
        if depths[-1] > least and self._gang.started and self._is_spread(want, depths[-1]):
            return (*depths, least)
        return depths

    @property
    def lowest(self) -> int:
        """The last level to try: that of the largest domains."""
        return self._levels.depths[-1]

    def grouping(self, depth: int) -> Grouping:
        """Return the domains of a level. Nodes that lack the labels of smaller levels are in them, too."""
        return self._cluster.grouping(self._keys, depth, depth)

    def leaves(self, depth: int) -> Grouping:
        """Return the smallest domains within those of a level."""
        return self._cluster.grouping(self._keys, len(self._keys), depth)

    @property
    def smallest(self) -> Grouping:
        """The domains of the smallest level."""
        return self.grouping(len(self._keys))

    def holds_at_best(self, want: WantedMembers) -> bool:
        """Return whether a domain of one of the levels could have these members if it were empty."""
        shapes = Counter(member.shape for member in (*want.bound, *want.pinned, *want.loose))
        at_best = [(self._cluster.slots_at_best(shape, self.terms), count) for shape, count in shapes.items()]
        for depth in self._levels.depths:
            rooms = [(slots.level(self.grouping(depth)).slots, count) for slots, count in at_best]
            if any(
                all(room[number] >= count for room, count in rooms) for number in range(len(self.grouping(depth).nodes))
            ):
                return True
        return False

    def fixed(self, want: WantedMembers, depth: int) -> set[int]:
        """Return the domains that members are in already."""
        if not (want.bound or want.pinned):
            return set()
        return set(_places(self._cluster, self.grouping(depth), (*want.bound, *want.pinned)).values())

    def excluded(self, domain: Domain) -> bool:
        """Return whether the gang must not have a domain."""
        return domain in self.exclusions or any(larger <= set(domain) for larger in self._larger)

    def slots(self, shape: Shape) -> Slots:
        """Return the room for a shape."""
        return self._cluster.slots(shape, self.terms)

    def pack(
        self, want: WantedMembers, depth: int, number: int, freed: Mapping[int, Sequence[Shape]], *, some: bool = False
    ) -> list[Put] | None:
        """Put members really on the nodes of one domain; None if they do not fit.

        Args:
            want: the members.
            depth: the level.
            number: the domain.
            freed: what leaves the nodes before.
            some: put only those that there is room for.
        """
        leaves = self.leaves(depth)
        within = self._leaves(leaves, depth, number)
        places = _places(self._cluster, leaves, (*want.bound, *want.pinned))
        packing = self._packing(want, leaves, freed)
        return packed(want, packing, within, places, self._seats(want.pinned), some=some)

    def keep_seats(self, want: WantedMembers) -> list[Put]:
        """Put pinned members on the nodes that they were given, as far as these have room."""
        leaves = self.leaves(self.lowest)
        places = _places(self._cluster, leaves, want.pinned)
        return _put_back(self._packing(want, leaves, {})(), want.pinned, places, self._seats(want.pinned))

    def _packing(
        self, want: WantedMembers, leaves: Grouping, freed: Mapping[int, Sequence[Shape]]
    ) -> Callable[[], Packing]:
        slots = {member.shape: self.slots(member.shape) for member in (*want.loose, *want.pinned)}
        return lambda: Packing(leaves, slots, lambda position: self._cluster.look(position).copy(), freed)

    def _seats(self, pinned: Iterable[Member]) -> _Seats:
        """Return the nodes to try for each pinned member before others: the one that its pod was told, then the one that is reserved for it."""
        seats: _Seats = {}
        for member in pinned:
            before = self._by_name.get(member.name)
            nodes = (member.seat, "" if before is None else before.node)
            positions = tuple(
                position for node in dict.fromkeys(nodes) if (position := self._cluster.position(node)) is not None
            )
            if positions:
                seats[member] = positions
        return seats

    def placement(self, puts: Iterable[Put], depth: int) -> Placement:
        """Return members that were put into the smallest domains of a level as a placement."""
        names, grouping = self._cluster.names(), self.leaves(depth)
        seats = tuple(
            Seat(member.name, member.role, member.rank, member.shape, grouping.domain(leaf), names[position])
            for member, leaf, position in puts
        )
        return placement_of(self._gang.key, seats)

    def _is_spread(self, want: WantedMembers, depth: int) -> bool:
        """Return whether members are in several domains of a level, or on nodes that are in none."""
        if len(self.fixed(want, depth)) > 1:
            return True
        keys, grouping = {*self._keys[:depth]}, self.grouping(depth)
        positions = [self._cluster.position(member.node) for member in want.bound]
        return any(position is not None and grouping.of[position] < 0 for position in positions) or any(
            not keys <= dict(member.pinned or ()).keys() for member in want.pinned
        )

    def _kept(self, want: WantedMembers) -> WantedMembers:
        """Let members have the seats that were kept for them: those that exist only by now, and those whose pod is not told yet."""
        if not self._before:
            return want
        seats = self._seats_of(want.loose)
        if not seats:
            return want
        kept = [replace(want.loose[at], pinned=seat.domain, seat=seat.node) for at, seat in sorted(seats.items())]
        loose = tuple(member for at, member in enumerate(want.loose) if at not in seats)
        return replace(want, pinned=(*want.pinned, *kept), loose=loose)

    def _seats_of(self, members: Sequence[Member]) -> dict[int, Seat]:
        """Return the seats that were kept for members, by their number: by name, then for their rank, then for any member like them."""
        seats = {at: self._by_name[member.name] for at, member in enumerate(members) if member.name in self._by_name}
        nameless = [seat for seat in self._before if not seat.member]
        for kind in (_rank_and_shape, _role_and_shape):
            left: defaultdict[Hashable, deque[Seat]] = defaultdict(deque)
            for seat in nameless:
                left[kind(seat)].append(seat)
            for at, member in enumerate(members):
                if at not in seats and (like := left.get(kind(member))):
                    seats[at] = like.popleft()
            nameless = [seat for like in left.values() for seat in like]
        return seats

    def _at(self, want: WantedMembers, depth: int) -> Placement | None:
        """Find a place at one level."""
        if want.bound or want.pinned or len(self._gang.shapes) > 1:
            puts = self._mixed(want, depth)
            return None if puts is None else self.placement(puts, depth)
        return self._alike(want.loose, depth)

    def _alike(self, members: Sequence[Member], depth: int) -> Placement | None:
        """Place members of one shape, of which none has a place: sums of slots say exactly what fits."""
        slots = self.slots(members[0].shape)
        leaves = slots.level(self.leaves(depth))
        level = leaves if depth == len(self._keys) else slots.level(self.grouping(depth))
        for number in level.best_fits(len(members)):
            if self.exclusions and self.excluded(level.grouping.domain(number)):
                continue
            if level is leaves:
                seats = self._seated(members, leaves, ((number, len(members)),), slots.slots)
                return Placement(self._gang.key, level.grouping.domain(number), seats)
            if counts := _fewest(leaves, self._leaves(leaves.grouping, depth, number), len(members)):
                return placement_of(self._gang.key, self._seated(members, leaves, counts, slots.slots))
        return None

    def _seated(
        self, members: Sequence[Member], leaves: Level, counts: Iterable[tuple[int, int]], slots: Sequence[int]
    ) -> tuple[Seat, ...]:
        """Put members of one shape into leaves, of which each gets so many, node by node."""
        names, seats, start = self._cluster.names(), [], 0
        for leaf, count in counts:
            end, domain = start + count, leaves.grouping.domain(leaf)
            for position, room in leaves.nodes_to_fill(leaf, slots, count):
                node, stop = names[position], min(start + room, end)
                seats += [
                    Seat(member.name, member.role, member.rank, member.shape, domain, node)
                    for member in members[start:stop]
                ]
                start = stop
                if start == end:
                    break
        return tuple(seats)

    def _mixed(self, want: WantedMembers, depth: int) -> list[Put] | None:
        """Place members of several shapes, or beside others that have their places: they are really packed."""
        shapes = Counter(member.shape for member in (*want.loose, *want.pinned))
        grouping = self.grouping(depth)
        fixed = self.fixed(want, depth)
        if len(fixed) > 1:
            return None
        by_shape = {shape: self.slots(shape).level(grouping) for shape in shapes}
        biggest = min(shapes, key=lambda shape: (sum(by_shape[shape].slots), shape.requests))
        for number in fixed or by_shape[biggest].best_fits(shapes[biggest]):
            if any(level.slots[number] < shapes[shape] for shape, level in by_shape.items()):
                continue
            if not fixed and self.excluded(grouping.domain(number)):
                continue
            if (puts := self.pack(want, depth, number, {})) is not None:
                return puts
        return None

    def _leaves(self, leaves: Grouping, depth: int, number: int) -> Sequence[int]:
        """Return the leaves of a domain that are not excluded, in the order of the fabric."""
        if depth == len(self._keys):
            return [number]
        within = self._cluster.within(self._keys, depth, number)
        if not self.exclusions:
            return within
        return [leaf for leaf in within if not self.excluded(leaves.domain(leaf))]


def _rank_and_shape(of: Member | Seat) -> Hashable:
    return (of.role, of.rank, of.shape)


def _role_and_shape(of: Member | Seat) -> Hashable:
    return (of.role, of.shape)


def _places(cluster: Cluster, grouping: Grouping, members: Iterable[Member]) -> dict[Member, int]:
    """Return the domains of members that have a node or are pinned; nodes may have got labels since these were pinned."""
    numbers: dict[Member, int] = {}
    for member in members:
        number = None if member.node else grouping.number(dict(member.pinned or ()))
        if number is None:
            position = cluster.position(member.node or member.seat)
            number = None if position is None else grouping.of[position]
        if number is not None and number >= 0:
            numbers[member] = number
    return numbers


def _fewest(leaves: Level, among: Sequence[int], members: int) -> list[tuple[int, int]] | None:
    """Return the fewest leaves that hold so many members, in the order of the fabric, each with how many it gets; None if all do not.

    The largest are filled first. The last one is the smallest that holds the rest.
    """
    by_room = sorted((-leaves.slots[leaf], leaf) for leaf in among)
    counts: dict[int, int] = {}
    for less, leaf in by_room:
        if -less >= members:
            _, last = min(
                (leaves.slots[other_leaf], other_leaf)
                for other_leaf in among
                if other_leaf not in counts and leaves.slots[other_leaf] >= members
            )
            return sorted((counts | {last: members}).items())
        if not less:
            return None
        counts[leaf] = -less
        members += less
    return None


def packed(
    want: WantedMembers,
    packing: Callable[[], Packing],
    leaves: Sequence[int],
    places: dict[Member, int],
    seats: _Seats,
    *,
    some: bool = False,
) -> list[Put] | None:
    """Pack members into leaves: first those that have a seat, then those that are pinned to a leaf, then the others, the biggest first."""
    shapes, untouched = {member.shape for member in (*want.loose, *want.pinned)}, packing()
    totals = dict.fromkeys(shapes, 0)
    if len(shapes) > 1:
        totals = {shape: sum(untouched.slots_in(leaf, shape) for leaf in leaves) for shape in shapes}

    def biggest_first(members: Iterable[Member]) -> list[Member]:
        return sorted(members, key=lambda member: (totals[member.shape], member.shape.requests))

    def try_with(choose: Callable[[Packing], list[Put] | None]) -> list[Put] | None:
        nodes = packing()
        seated = _put_back(nodes, want.pinned, places, seats)
        have = {id(put.member) for put in seated}
        pinned = nodes.put_all(
            biggest_first(member for member in want.pinned if id(member) not in have),
            lambda member: (places[member],) if member in places else (),
            some=some,
        )
        loose = None if pinned is None else choose(nodes)
        if pinned is None or loose is None:
            return None
        return sorted(seated + pinned + loose, key=lambda put: ring_order(put.member))

    if len(leaves) == 1 or (some and not places):
        return try_with(lambda nodes: nodes.put_in(biggest_first(want.loose), leaves, some=some))
    if places:
        order = _near(places, leaves)
        return try_with(lambda nodes: nodes.put_all(biggest_first(want.loose), order, some=some))

    def spread(chosen: Sequence[int]) -> list[Put] | None:
        return try_with(lambda nodes: nodes.fill(want.loose, chosen)) or try_with(
            lambda nodes: nodes.put_in(biggest_first(want.loose), chosen)
        )

    main = min(shapes, key=lambda shape: (totals[shape], shape.requests))
    room = {leaf: untouched.slots_in(leaf, main) for leaf in leaves}
    by_room = sorted(leaves, key=lambda leaf: -room[leaf])
    enough = sum(member.shape == main for member in want.loose)
    sums = accumulate(room[leaf] for leaf in by_room)
    least = next((count for count, total in enumerate(sums, 1) if total >= enough), len(by_room) + 1)
    tries = (spread(sorted(by_room[:count])) for count in range(least, len(by_room) + 1))
    return next((puts for puts in tries if puts is not None), None)


def _put_back(nodes: Packing, pinned: Iterable[Member], places: Mapping[Member, int], seats: _Seats) -> list[Put]:
    """Put members on the nodes that were given to them, as far as these are in their leaves and have room."""
    puts: list[Put] = []
    left = [member for member in pinned if member in seats]
    for choice in range(max(map(len, seats.values()), default=0)):
        without: list[Member] = []
        for member in left:
            positions = [at for at in seats[member][choice : choice + 1] if nodes.leaves.of[at] == places.get(member)]
            put = nodes.put_on(member, positions[0]) if positions else None
            if put is None:
                without.append(member)
            else:
                puts.append(put)
        left = without
    return puts


def _near(places: dict[Member, int], leaves: Sequence[int]) -> Callable[[Member], list[int]]:
    """Return the order in which leaves are tried for a late member: that of its nearest rank, then those that the gang is in."""
    used = sorted({*places.values()} & {*leaves})
    others = [leaf for leaf in leaves if leaf not in used]

    def order(late: Member) -> list[int]:
        if not used:
            return others
        nearest = min(places, key=lambda member: (member.role != late.role, abs(member.rank - late.rank), member.rank))
        first = [places[nearest]] if places[nearest] in used else []
        return [*first, *(leaf for leaf in used if leaf not in first), *others]

    return order
