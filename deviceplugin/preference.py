"""Which of the free VFs a container had best get. Pure.

kubelet decides; what is said here is advice, asked for after it has looked at NUMA nodes.
"""

from collections import Counter
from collections.abc import Container, Sequence

from deviceplugin.offers import Offer


def prefer(offered: Sequence[Offer], available: Container[str], settled: Container[str], size: int) -> list[str]:
    """Choose `size` VFs over as many PFs as there are: two VFs of one PF share one port.

    Args:
        offered: the pool's offers, in (rail, PCI address) order.
        available: the ids kubelet would give.
        settled: those of them that it gives in any case.
        size: how many the container gets.
    """
    chosen = [offer for offer in offered if offer.id in settled]
    free = [offer for offer in offered if offer.id in available and offer.id not in settled]
    while free and len(chosen) < size:
        used = Counter(offer.vf.pf for offer in chosen)
        best = min(free, key=lambda offer: used[offer.vf.pf])  # of equals the first
        free.remove(best)
        chosen.append(best)
    return [offer.id for offer in chosen]
