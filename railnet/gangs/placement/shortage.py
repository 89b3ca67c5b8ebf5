"""Says why a gang has no place, in the figures that an event needs."""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import replace

from railnet.gangs.placement.cluster import Cluster
from railnet.gangs.placement.domain_room import Level
from railnet.gangs.placement.free_capacity import FreeCapacity
from railnet.gangs.placement.gang import Gang, Reason, Shortfall
from railnet.gangs.placement.pod_shape import Shape
from railnet.gangs.placement.search import Search, WantedMembers, known, wanted

_ENOUGH = 1024  # most gangs are smaller


class Shortages:
    """Says why gangs have no place, while the cluster stays as it is: what it counted for one gang, it knows for the next."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._counted: dict[tuple[Level, int, Shape, int], dict[str, int]] = {}
        self._packed: dict[Hashable, int] = {}

    def shortfall(self, gang: Gang, *, relaxed: bool) -> Shortfall:
        """Say why a gang has no place."""
        want = must_start(wanted(self._cluster, gang))
        search = Search(self._cluster, gang, relaxed=relaxed)
        seen = sum([1 for member in gang.members if member.name])
        needed = gang.needed or len(gang.members)
        ignored = self._cluster.unknown(gang.constraint.preferred)
        shortfall = Shortfall(
            gang.key, Reason.NO_ROOM, seen, needed, generation=self._cluster.generation, ignored=ignored
        )
        if keys := self._unknown_keys(gang, search):
            return replace(shortfall, reason=Reason.UNKNOWN_KEY, keys=keys)
        counts = Counter(member.shape for member in (*want.bound, *want.pinned, *want.loose))
        if (reason := self._permanent(gang, search, want, counts)) is not None:
            return replace(shortfall, reason=reason)
        return self._with_best(shortfall, search, want)

    def _unknown_keys(self, gang: Gang, search: Search) -> tuple[str, ...]:
        keys = gang.constraint.required
        if not self._cluster.nodes or search.grouping(len(keys)).nodes:
            return ()
        return self._cluster.unknown(keys) or keys

    def _permanent(self, gang: Gang, search: Search, want: WantedMembers, counts: Counter[Shape]) -> Reason | None:
        least = len(gang.constraint.required)
        if len(search.fixed(want, least)) > 1:
            return Reason.SPLIT
        terms = gang.constraint.nodes
        at_best = {shape: self._cluster.slots_at_best(shape, terms) for shape in counts}
        if not all(slots.has_nodes for slots in at_best.values()):
            return Reason.NO_NODE
        each = [(slots.level(search.grouping(least)), counts[shape]) for shape, slots in at_best.items()]
        first, most = each[0]
        holds = (all(level.slots[number] >= count for level, count in each) for number in first.best_fits(most))
        return None if any(holds) else Reason.TOO_LARGE

    def _with_best(self, shortfall: Shortfall, search: Search, want: WantedMembers) -> Shortfall:
        """Add the best domain: what there is room for, and what is missing."""
        counts = Counter(member.shape for member in (*want.pinned, *want.loose))
        depths = search.depths(want)
        tried = sum(len(search.grouping(depth).nodes) for depth in depths)
        levels = {shape: search.slots(shape).level(search.grouping(depths[-1])) for shape in counts}
        number = self._best(search, want, depths[-1], levels)
        if number is None:
            return replace(shortfall, tried=tried)
        if len(counts) == 1 and not want.pinned:
            ((shape, count),) = counts.items()
            room = min(levels[shape].slots[number], count)
        else:
            room = self._room(search, want, depths[-1], number, counts)
        return replace(
            shortfall,
            tried=tried,
            best=search.grouping(depths[-1]).domain(number),
            room=room,
            lacks=self._lacks(number, levels, counts),
        )

    def _room(self, search: Search, want: WantedMembers, depth: int, number: int, counts: Counter[Shape]) -> int:
        """Return how many members of several shapes there is room for; it is the same for all gangs of which none has its place."""
        grouping = search.grouping(depth)
        key = (grouping, number, search.terms, search.exclusions, frozenset(counts.items()))
        if want.bound or want.pinned:
            return len(search.pack(want, depth, number, {}, some=True) or ())
        if key not in self._packed:
            self._packed[key] = len(search.pack(want, depth, number, {}, some=True) or ())
        return self._packed[key]

    @staticmethod
    def _best(search: Search, want: WantedMembers, depth: int, levels: dict[Shape, Level]) -> int | None:
        fixed = search.fixed(want, depth)
        if fixed:
            return min(fixed)
        level = min(levels.values(), key=lambda level: sum(level.slots))
        permitted = (
            number for number in level.largest_first() if not search.excluded(search.grouping(depth).domain(number))
        )
        return next(permitted, None)

    def _lacks(self, number: int, levels: dict[Shape, Level], counts: Counter[Shape]) -> tuple[tuple[str, int], ...]:
        lacking: Counter[str] = Counter()
        for shape, level in levels.items():
            fits = self._fits(number, level, shape, max(counts[shape], _ENOUGH))
            for resource, amount in (*shape.requests, *((f"host port {port.port}", 1) for port in shape.ports)):
                missing = counts[shape] - fits[resource]
                lacking[resource] += max(0, missing) * amount
        return _largest_first((lack for lack in lacking.items() if lack[1] > 0), counts)

    def _fits(self, number: int, level: Level, shape: Shape, enough: int) -> dict[str, int]:
        """Return for how many members each resource of a domain would be enough by itself; it is not counted further than `enough`."""
        key = (level, number, shape, enough)
        if key not in self._counted:
            positions = (position for position in level.grouping.nodes[number] if level.eligible[position])
            rooms = [self._cluster.look(position) for position in positions]
            fits = {resource: _count(rooms, resource, amount, enough) for resource, amount in shape.requests}
            for port in shape.ports:
                taken = sum(room.has_in_use(port) for room in rooms)
                fits[f"host port {port.port}"] = len(rooms) - taken
            self._counted[key] = fits
        return self._counted[key]


def _count(rooms: Iterable[FreeCapacity], resource: str, amount: int, enough: int) -> int:
    members = 0
    for room in rooms:
        have = room.free.get(resource, 0)
        if have > 0:
            members += have // amount
            if members >= enough:
                break
    return members


def prefers_in_vain(cluster: Cluster, gang: Gang) -> bool:
    """Return whether no preferred domain could ever have a gang that prefers some, while there are nodes without the labels that it prefers."""
    required = gang.constraint.required
    if not cluster.lacks(required, gang.constraint.preferred):  # the common case, in one look
        return False
    preferred = known(cluster, gang.constraint).preferred
    if preferred and not cluster.lacks(required, preferred):
        return False
    return not (preferred and Search(cluster, gang).holds_at_best(must_start(wanted(cluster, gang))))


def must_start(want: WantedMembers) -> WantedMembers:
    """Leave out the members beyond those that must start together."""
    return replace(want, loose=want.loose[: len(want.loose) - want.optional], optional=0)


def _largest_first(lacking: Iterable[tuple[str, int]], counts: Counter[Shape]) -> tuple[tuple[str, int], ...]:
    """Sort by the part of the whole gang's request that is missing."""
    whole: Counter[str] = Counter()
    for shape, count in counts.items():
        for resource, amount in shape.requests:
            whole[resource] += amount * count
    return tuple(sorted(lacking, key=lambda lack: (-lack[1] / (whole[lack[0]] or lack[1]), lack[0])))
