"""The preferred VFs for a container: as many rails as possible, on as few NUMA nodes as possible.

Pure. Two VFs of one PF share its port, so a second VF of a PF is chosen only if every PF with a free VF is used already: traffic to another
NUMA node costs less than half a port. If a pod must stay on one NUMA node, kubelet makes only that node's devices available. Not here:
sending the preference to kubelet (`deviceplugin.service`).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from deviceplugin.devices import OfferedVf

_Rails = dict[int, list[OfferedVf]]


def prefer(
    offered: Sequence[OfferedVf], available: Collection[str], must_include: Collection[str], size: int
) -> list[str]:
    """Return `size` device ids for one container, in (rail, PCI address) order; fewer if fewer are available.

    Rails that fewer pods use come first, then rails in their order. So pods with one VF each are spread over the PFs, too.

    Args:
        offered: the VFs that the pool offers now, in (rail, PCI address) order.
        available: the ids to choose from; an id that is not offered is never chosen.
        must_include: the ids that kubelet has chosen already. The result has all of them, also an id that is no longer offered, because
            kubelet counts them in `size`.
        size: the number of ids in the result.
    """
    settled: list[OfferedVf] = []
    free: _Rails = {}
    load = Counter[int]()
    for offer in offered:  # a thousand, for each container: no more is done for each than must be
        if offer.id in must_include:
            settled.append(offer)
        elif offer.rail is None:
            continue  # it is unhealthy; kubelet may ask before it knows
        elif offer.id in available:
            free.setdefault(offer.rail, []).append(offer)
        elif offer.reason is None:
            load[offer.rail] += 1
    chosen = {offer.id for offer in settled}
    gone = set(must_include) - chosen
    chosen |= _spread(free, settled, load, size - len(settled) - len(gone))
    return [offer.id for offer in offered if offer.id in chosen] + sorted(gone)


def _spread(free: _Rails, settled: Sequence[OfferedVf], load: Mapping[int, int], wanted: int) -> set[str]:
    """Return `wanted` VFs, chosen one at a time from the best rail; a rail's VFs are taken in their order."""
    used = Counter(offer.rail for offer in settled if offer.rail is not None)
    nodes = _numa_order(free, settled, load, wanted)
    queues = {rail: list(reversed(offers)) for rail, offers in free.items()}

    def cost(rail: int) -> tuple[int, int, int, int]:
        return used[rail], nodes.index(_numa_node(free[rail])), load[rail], rail

    taken: set[str] = set()
    while len(taken) < wanted and queues:
        best = min(queues, key=cost)
        taken.add(queues[best].pop().id)
        used[best] += 1
        if not queues[best]:
            del queues[best]
    return taken


def _numa_order(free: _Rails, settled: Sequence[OfferedVf], load: Mapping[int, int], wanted: int) -> list[int]:
    """Return the NUMA nodes, best first: by VFs settled on the node, rails of those wanted, its least used rail, and its number."""

    def rank(node: int) -> tuple[int, int, int, bool, int]:
        rails = [rail for rail, offers in free.items() if _numa_node(offers) == node]
        here = sum(offer.vf.numa_node == node for offer in settled)
        return -here, -min(len(rails), wanted), min(load[rail] for rail in rails), node < 0, node

    return sorted({_numa_node(offers) for offers in free.values()}, key=rank)


def _numa_node(offers: Sequence[OfferedVf]) -> int:
    return offers[0].vf.numa_node  # all VFs of a rail are on their PF's NUMA node
