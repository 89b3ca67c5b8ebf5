"""Plans one gang alone: what the queue step does for each gang that waits."""

from railnet.gangs.placement.cluster import Cluster
from railnet.gangs.placement.gang import Gang, Placement, Shortfall
from railnet.gangs.placement.search import place
from railnet.gangs.placement.shortage import Shortages


def plan(cluster: Cluster, gang: Gang, *, relaxed: bool = False) -> Placement | Shortfall:
    """Find a place for a gang. The cluster is not changed: `Cluster.reserve` keeps a placement.

    Args:
        cluster: as it is now. What this gang has reserved counts as free.
        gang: as its pods are now.
        relaxed: whether it may be spread beyond its preferred domains, over as few of the smallest ones as possible.
    """
    seats = cluster.seats(gang.key)
    cluster._unseat(gang.key)
    try:
        return place(cluster, gang, seats, relaxed=relaxed) or Shortages(cluster).shortfall(gang, relaxed=relaxed)
    finally:
        if seats:
            cluster._seat(gang.key, seats)
