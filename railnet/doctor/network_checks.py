"""The checks of what joins nodes: address ranges, MTUs of rails, the clock. Pure."""

from collections.abc import Iterator

from railnet.doctor.facts import Facts
from railnet.doctor.finding import Finding


def ranges(facts: Facts) -> Iterator[Finding]:
    """Find a network whose addresses are also those of pods or Services."""
    for name, ours in facts.ranges.items():
        for where, theirs in facts.occupied.items():
            if ours.version == theirs.version and ours.overlaps(theirs):
                yield Finding("ranges-overlap", f"network {name}", f"{ours} overlaps {theirs}, {where}")


def mtus(facts: Facts) -> Iterator[Finding]:
    """Find PFs of one link layer with different MTUs. A netdev that is in no namespace of the host's has none."""
    found: dict[str, dict[int, list[str]]] = {}
    for _, rail in facts.inventory.all_rails():
        if rail.pf is not None and rail.pf.netdev is not None:
            of_layer = found.setdefault(rail.pf.link_layer, {})
            of_layer.setdefault(rail.pf.netdev.mtu, []).append(rail.pf.netdev.name)
    for layer, names in found.items():
        if len(names) > 1:
            seen = "; ".join(f"MTU {mtu}: {', '.join(having)}" for mtu, having in sorted(names.items()))
            yield Finding("mtus-differ", f"{layer} rails", seen)


def clock(facts: Facts) -> Iterator[Finding]:
    """Find a clock that no program keeps."""
    if facts.clock_is_synchronised is False:
        yield Finding("clock-not-synchronised", "adjtimex", "TIME_ERROR: clock not synchronized")
