"""Chooses the ranks that give their number back when numbers, or the table's bytes, are short: ranks that have no pod now.

A rank that waits for its pod keeps its number. But a tenant with a quota of one pod can have a number for each rank that its pod ever had, so a
shortage ends that: the namespace that holds the most gives back first, and there the rank that has had no pod for longest.
"""

import heapq
from collections.abc import Collection, Iterable
from typing import NamedTuple

from railnet.controllers.sticky_table import Holder

LONG_SECONDS = 600.0  # a node that is started again, and a job that waits for a place, take less


class AbsentRank(NamedTuple):
    """A rank with a number and without a pod.

    Attributes:
        since: when it was first seen without a pod, in seconds of a monotonic clock.
        weight: what is short and comes free with it: 1 number, or bytes of the table.
    """

    network: str
    holder: Holder
    rank: str
    since: float
    weight: int = 1


def give_back(
    absent: Iterable[AbsentRank], needed: int, asking: Collection[str], bound: int, now: float
) -> list[AbsentRank]:
    """Return the ranks that give back until `needed` weight is free, or no rank has to.

    A rank has to after `LONG_SECONDS` without a pod. It has to at once, for another namespace of those that are `asking`, while the absent ranks
    of its own namespace have more weight than `bound`.
    """
    by_namespace: dict[str, list[AbsentRank]] = {}
    for absent_rank in sorted(absent, key=lambda absent_rank: -absent_rank.since):
        by_namespace.setdefault(absent_rank.holder.namespace, []).append(absent_rank)
    weights = [(-sum(rank.weight for rank in ranks), namespace) for namespace, ranks in by_namespace.items()]
    heapq.heapify(weights)
    given: list[AbsentRank] = []
    while weights and needed > 0:
        weight, namespace = heapq.heappop(weights)
        ranks = by_namespace[namespace]
        at_once = -weight > bound and not {namespace}.issuperset(asking)
        if now - ranks[-1].since < LONG_SECONDS and not at_once:
            continue  # nor has any other rank of this namespace to
        given.append(ranks.pop())
        needed -= given[-1].weight
        if ranks:
            heapq.heappush(weights, (weight + given[-1].weight, namespace))
    return given
