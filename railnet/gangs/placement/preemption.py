"""Chooses the gangs that go, so that a gang of higher priority gets a place: whole gangs, as few as possible, the youngest first.

They go only for a place that the scheduler would take. So a gang takes the place of others only if the planner sees all that its pods require.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace

from railnet.gangs.placement.cluster import Cluster
from railnet.gangs.placement.domain_room import Grouping
from railnet.gangs.placement.gang import Domain, Gang, GangKey, Placement
from railnet.gangs.placement.pod_shape import Shape
from railnet.gangs.placement.search import Search, wanted
from railnet.gangs.placement.shortage import must_start

_Freed = dict[int, list[Shape]]  # what leaves each node, by its position
_NO_VICTIM = -(1 << 31) - 1  # lower than any priority


@dataclass(frozen=True, slots=True)
class Preemption:
    """A gang that gets a place when others are gone.

    Attributes:
        gang: the gang that waits.
        domain: where it will be; its nodes are kept free until then.
        victims: the gangs that are to be evicted; empty if those that leave already are enough.
        place: the seats that it would have.
    """

    gang: GangKey
    domain: Domain
    victims: tuple[GangKey, ...]
    place: Placement


class Preemptions:
    """The preemptions of one pass: the nodes of each gang are looked up once."""

    def __init__(self, cluster: Cluster, running: Iterable[Gang]) -> None:
        self._cluster = cluster
        self._running = {gang.key: gang for gang in running}
        priorities = (_NO_VICTIM if gang.leaving else gang.priority for gang in self._running.values())
        self._lowest = min(priorities, default=1 << 31)
        self._taken = {gang.key: _taken(cluster, gang) for gang in self._running.values()}
        self._there: dict[Grouping, dict[int, list[GangKey]]] = {}
        self._in_vain: set[Hashable] = set()

    def preempt(self, gang: Gang, *, relaxed: bool) -> Preemption | None:
        """Choose victims for a gang that has no place; from now on they count as leaving."""
        if not self.may_help(gang, relaxed=relaxed):
            return None
        choice = _Choice(self._cluster, gang, self, relaxed=relaxed)
        preemption = next((preemption for depth in choice.depths if (preemption := choice.at(depth))), None)
        if preemption is None:
            self._in_vain.add(_kind(gang, relaxed=relaxed))
            return None
        for key in preemption.victims:
            self._running[key] = replace(self._running[key], leaving=True)
        return preemption

    def may_help(self, gang: Gang, *, relaxed: bool) -> bool:
        """Return whether looking for victims is worth while: not if it was in vain for a gang like this one."""
        if not gang.preempts or gang.priority <= self._lowest:
            return False
        return gang.started or _kind(gang, relaxed=relaxed) not in self._in_vain

    def taken(self, gang: GangKey) -> _Freed:
        """Return what a gang has, by the positions of the nodes."""
        return self._taken[gang]

    def there(self, grouping: Grouping) -> Iterator[tuple[int, list[Gang]]]:
        """Yield the domains of a level that gangs are in, each with those gangs."""
        if grouping not in self._there:
            by_domain: defaultdict[int, dict[GangKey, None]] = defaultdict(dict)
            for key, taken in self._taken.items():
                for number in {grouping.of[position] for position in taken}:
                    by_domain[number][key] = None
            by_domain.pop(-1, None)
            self._there[grouping] = {number: list(by_domain[number]) for number in sorted(by_domain)}
        for number, keys in self._there[grouping].items():
            yield number, [self._running[key] for key in keys]


@dataclass(frozen=True, slots=True)
class _Option:
    """A domain, and the gangs that could leave it.

    Attributes:
        number: the domain.
        leaving: the gangs that leave already.
        victims: those that may be chosen, the youngest first.
        priority: the highest priority of a victim that cannot be avoided.
    """

    number: int
    leaving: tuple[Gang, ...]
    victims: tuple[Gang, ...]
    priority: int


class _Choice:
    """The choice of a domain and its victims for one gang."""

    def __init__(self, cluster: Cluster, gang: Gang, running: Preemptions, *, relaxed: bool) -> None:
        self._cluster = cluster
        self._gang = gang
        self._running = running
        self._search = Search(cluster, gang, relaxed=relaxed)
        self._want = must_start(wanted(cluster, gang))
        self._shapes = Counter(member.shape for member in (*self._want.pinned, *self._want.loose))
        self._depth = 0
        self.depths = self._search.depths(self._want)

    def at(self, depth: int) -> Preemption | None:
        """Choose among the domains of one level."""
        self._depth = depth
        options = [option for number, gangs in self._domains() if (option := self._option(number, gangs))]
        lowest = min((option.priority for option in options), default=0)
        cheapest = [option for option in options if option.priority == lowest]
        if not cheapest:
            return None
        option, victims = self._none(cheapest) or self._one(cheapest) or self._several(cheapest)
        puts = self._search.pack(self._want, depth, option.number, self._freed((*option.leaving, *victims)))
        if puts is None:
            return None
        place = self._search.placement(puts, depth)
        domain = self._search.grouping(depth).domain(option.number)
        return Preemption(self._gang.key, domain, tuple(victim.key for victim in victims), place)

    def _domains(self) -> Iterator[tuple[int, list[Gang]]]:
        """Yield the domains that are large enough, each with the gangs that have something there."""
        grouping, terms = self._search.grouping(self._depth), self._gang.constraint.nodes
        fixed = self._search.fixed(self._want, self._depth)
        at_best = [
            (self._cluster.slots_at_best(shape, terms).level(grouping).slots, count)
            for shape, count in self._shapes.items()
        ]
        for number, gangs in self._running.there(grouping):
            permitted = fixed == {number} or not (fixed or self._search.excluded(grouping.domain(number)))
            if permitted and all(slots[number] >= count for slots, count in at_best):
                yield number, gangs

    def _option(self, number: int, gangs: list[Gang]) -> _Option | None:
        """Return what it would take to have a domain; None if not even all gangs of lower priority are enough."""
        others = [gang for gang in gangs if gang.key != self._gang.key]
        leaving = tuple(gang for gang in others if gang.leaving)
        lower = sorted(
            (gang for gang in others if not gang.leaving and gang.priority < self._gang.priority),
            key=lambda gang: (-gang.since, gang.key),
        )
        if leaving and self._fits(number, leaving):
            return _Option(number, leaving, (), _NO_VICTIM)
        for priority in sorted({gang.priority for gang in lower}):
            victims = tuple(gang for gang in lower if gang.priority <= priority)
            if self._fits(number, (*leaving, *victims)):
                return _Option(number, leaving, victims, priority)
        return None

    def _none(self, options: list[_Option]) -> tuple[_Option, list[Gang]] | None:
        return next(((option, []) for option in options if option.priority == _NO_VICTIM), None)

    def _one(self, options: list[_Option]) -> tuple[_Option, list[Gang]] | None:
        """Return the youngest gang that is enough by itself."""
        each = [(option, victim) for option in options for victim in option.victims]
        for option, victim in sorted(each, key=lambda pair: -pair[1].since):
            if self._fits(option.number, (*option.leaving, victim)):
                return option, [victim]
        return None

    def _several(self, options: list[_Option]) -> tuple[_Option, list[Gang]]:
        """Return the fewest gangs that are enough together, the youngest if there are as many in several domains."""
        each = [(option, self._fewest(option)) for option in options]
        return min(each, key=lambda pair: (len(pair[1]), -sum(victim.since for victim in pair[1]), pair[0].number))

    def _fewest(self, option: _Option) -> list[Gang]:
        """Return few victims of one domain: the largest until it is enough, the last one as young as possible, and none that can be spared."""

        def fits(victims: Iterable[Gang]) -> bool:
            return self._fits(option.number, (*option.leaving, *victims))

        largest = sorted(
            option.victims, key=lambda victim: (-self._size(victim, option.number), -victim.since, victim.key)
        )
        count = bisect_left(range(len(largest)), True, key=lambda count: fits(largest[:count]))
        chosen = largest[: count - 1]
        chosen.append(next(victim for victim in option.victims if victim not in chosen and fits((*chosen, victim))))
        for victim in sorted(chosen, key=lambda victim: (victim.since, victim.key)):
            if fits(other for other in chosen if other is not victim):
                chosen.remove(victim)
        return sorted(chosen, key=lambda victim: (-victim.since, victim.key))

    def _size(self, victim: Gang, number: int) -> int:
        of = self._search.grouping(self._depth).of
        taken = self._running.taken(victim.key)
        return sum(len(shapes) for position, shapes in taken.items() if of[position] == number)

    def _fits(self, number: int, victims: Iterable[Gang]) -> bool:
        """Return whether the gang has room in a domain when these are gone."""
        freed, want = self._freed(victims), self._want
        if len(self._shapes) > 1 or want.bound or want.pinned or self._search.exclusions:
            return self._search.pack(want, self._depth, number, freed) is not None
        ((shape, count),) = self._shapes.items()  # of one shape, sums of slots say exactly what fits
        slots, grouping = self._search.slots(shape), self._search.grouping(self._depth)
        room = slots.level(grouping).slots[number]
        for position, shapes in freed.items():
            if grouping.of[position] == number and slots.eligible[position]:
                emptier = self._cluster.look(position).copy()
                for gone in shapes:
                    emptier.take(gone, -1)
                room += emptier.slots(shape) - slots.slots[position]
        return room >= count

    def _freed(self, victims: Iterable[Gang]) -> _Freed:
        freed: _Freed = {}
        for victim in victims:
            for position, shapes in self._running.taken(victim.key).items():
                freed.setdefault(position, []).extend(shapes)
        return freed


def _kind(gang: Gang, *, relaxed: bool) -> Hashable:
    """Return what gangs have in common that need the same."""
    shapes = frozenset(Counter(member.shape for member in gang.members).items())
    return (shapes, gang.needed, gang.constraint, gang.excluded, gang.priority, relaxed)


def _taken(cluster: Cluster, gang: Gang) -> _Freed:
    """Return what a gang has, by the positions of the nodes: its bound members, and its seats."""
    taken: _Freed = {}
    bound = ((cluster.held_on((gang.namespace, member.name)), member.shape) for member in gang.members if member.name)
    for node, shape in (*bound, *((seat.node, seat.shape) for seat in cluster.seats(gang.key))):
        position = cluster.position(node)
        if position is not None:
            taken.setdefault(position, []).append(shape)
    return taken
