"""Chooses the nodes that are held for the gang at the head of the queue, so that smaller ones cannot pass it for ever."""

from collections import Counter
from collections.abc import Iterable

from railnet.gangs.placement.cluster import Cluster
from railnet.gangs.placement.domain_room import Grouping
from railnet.gangs.placement.gang import Domain, Gang, Placement
from railnet.gangs.placement.pod_shape import Shape
from railnet.gangs.placement.search import Search, WantedMembers, wanted
from railnet.gangs.placement.shortage import must_start


def best_to_hold(cluster: Cluster, gang: Gang, *, relaxed: bool) -> frozenset[str] | None:
    """Return the nodes to keep free, of the domain with the most room of those that could have the whole gang.

    Of one of the smallest domains, all nodes are kept: the scheduler chooses among them. Of a larger one, no more than the gang would need if
    no gang used them.

    Returns:
        None if no domain could have the gang, or none without the place of pods that are of no gang: they may never end.
    """
    want, search = must_start(wanted(cluster, gang)), Search(cluster, gang, relaxed=relaxed)
    depth = search.depths(want)[-1]
    grouping = search.grouping(depth)
    counts = Counter(member.shape for member in (*want.pinned, *want.loose))
    number = _most_room(cluster, search, want, grouping, counts)
    if number is None:
        return None
    if grouping is search.smallest and grouping.domain(number):
        return _names(cluster, grouping.nodes[number])
    return _emptiest(cluster, gang, grouping.nodes[number], counts)


def kept_nodes(cluster: Cluster, gang: Gang, domain: Domain, place: Placement) -> frozenset[str]:
    """Return the nodes to keep free while victims leave a domain: all of a smallest domain, else those of the seats."""
    leaves = Search(cluster, gang).smallest
    number = leaves.number(dict(domain)) if domain else None
    if number is None:
        return frozenset(seat.node for seat in place.seats)
    return _names(cluster, leaves.nodes[number])


def _most_room(
    cluster: Cluster, search: Search, want: WantedMembers, grouping: Grouping, counts: Counter[Shape]
) -> int | None:
    fixed = search.fixed(want, search.depths(want)[-1])
    terms = search.terms
    each = [(cluster.slots_at_best(shape, terms).level(grouping), count) for shape, count in counts.items()]
    beside = [(cluster.slots_beside_plain(shape, terms), count) for shape, count in counts.items()]
    large = (
        number
        for number in range(len(grouping.nodes))
        if fixed <= {number}
        and (fixed or not search.excluded(grouping.domain(number)))
        and all(level.slots[number] >= count for level, count in each)
        and all(sum(slots[position] for position in grouping.nodes[number]) >= count for slots, count in beside)
    )
    now = [search.slots(shape).level(grouping) for shape in counts]
    return min(large, key=lambda number: (-min(level.slots[number] for level in now), number), default=None)


def _emptiest(cluster: Cluster, gang: Gang, positions: Iterable[int], counts: Counter[Shape]) -> frozenset[str]:
    """Return the nodes with the most room now that could have all members if no gang used them."""
    kept: set[int] = set()
    for shape, count in counts.items():
        now = cluster.slots(shape, gang.constraint.nodes).slots
        at_best = cluster.slots_beside_plain(shape, gang.constraint.nodes)
        left = count
        for position in sorted(positions, key=lambda position: (-now[position], -at_best[position], position)):
            if left <= 0:
                break
            if at_best[position]:
                kept.add(position)
                left -= at_best[position]
    return _names(cluster, kept)


def _names(cluster: Cluster, positions: Iterable[int]) -> frozenset[str]:
    names = cluster.names()
    return frozenset(names[position] for position in positions)
