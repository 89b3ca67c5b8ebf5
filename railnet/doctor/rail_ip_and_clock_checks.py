"""The checks of what joins nodes: address ranges, what pods inherit of IPv4 settings, MTUs of rails, the clock. Pure."""

from collections.abc import Iterator

from railnet.doctor.facts import Facts, InheritedSetting
from railnet.doctor.finding_kinds import Finding
from railnet.vf.arp_and_source_routing import APART
from railnet.vf.permitted_networks import Network, NoIpam, SliceIpam, StaticIpam, StickyIpam


def ranges(facts: Facts) -> Iterator[Finding]:
    """Find a network with addresses that are also those of pods or Services."""
    for name, ours in facts.ranges.items():
        for where, theirs in facts.occupied.items():
            if ours.version == theirs.version and ours.overlaps(theirs):
                yield Finding("ranges-overlap", f"network {name}", f"{ours} overlaps {theirs}, {where}")


def reverse_path_filter(facts: Facts) -> Iterator[Finding]:
    """Find networks with `routing: none` on a node with several rails, where pods get a strict reverse path filter.

    With `routing: auto`, Railnet gives several rails of a pod another value, and one rail alone is where the answer leaves in any case.
    """
    setting = facts.inherited.get("rp_filter")
    # The kernel takes the larger value of `all` and of the link, which begins with `default`. Only 1 is strict (ip-sysctl.rst).
    if setting is None or max(setting) != 1 or not _several_rails(facts):
        return
    for network in facts.networks:
        if network.routing == "none" and _has_ipv4(network):
            seen = f"routing is none; {_said('rp_filter', setting)}"
            yield Finding("rp-filter-strict", f"network {network.name}", seen)


def arp_ignore(facts: Facts) -> Iterator[Finding]:
    """Find networks with rails that would not answer ARP requests as they should."""
    setting = facts.inherited.get("arp_ignore")
    if setting is None or not facts.inventory.rails:
        return
    for network in filter(_has_ipv4, facts.networks):
        wrong = _wrong_answers(network, setting, several=_several_rails(facts))
        if wrong is not None:
            yield Finding(
                "arp-ignore-unsuitable", f"network {network.name}", f"{_said('arp_ignore', setting)}: {wrong}"
            )


def _wrong_answers(network: Network, setting: InheritedSetting, *, several: bool) -> str | None:
    """Return what is wrong with the answers of pods' rails, by arp_ignore(), net/ipv4/arp.c; None if nothing is."""
    apart = max(setting.all, APART.arp_ignore)  # the larger one counts, also on a link to which Railnet gives its value
    of_pods = {max(setting)} | ({apart} if several and network.routing == "auto" else set())
    if 8 in of_pods:  # noqa: PLR2004 - the kernel's "do not reply"
        return "a rail answers no ARP request"
    if 2 in of_pods and several and isinstance(network.ipam, SliceIpam):  # noqa: PLR2004 - "in the same subnet"
        return "a rail answers no ARP request of another rail's prefix"
    if several and network.routing == "auto" and apart > 2:  # noqa: PLR2004 - the others look at no link
        return "a pod's rails answer for each other's addresses"
    return None


def _several_rails(facts: Facts) -> bool:
    return len(facts.inventory.rails) > 1


def _has_ipv4(network: Network) -> bool:
    """Return whether pods may have IPv4 addresses in this network: neither setting concerns IPv6."""
    match network.ipam:
        case NoIpam():
            return False
        case SliceIpam(range=range_) | StickyIpam(range=range_) | StaticIpam(range=range_):
            return range_ is None or range_.version == 4  # noqa: PLR2004 - IPv4
        case _:
            return True


def _said(name: str, setting: InheritedSetting) -> str:
    return f"net.ipv4.conf.all.{name} is {setting.all}, net.ipv4.conf.default.{name} is {setting.default}"


def mtus(facts: Facts) -> Iterator[Finding]:
    """Find PFs of one link layer with different MTUs. A netdev that is in no namespace of the host's has none."""
    layers: dict[str, dict[int, list[str]]] = {}
    for _, rail in facts.inventory.all_rails():
        if rail.pf is not None and rail.pf.netdev is not None:
            of_layer = layers.setdefault(rail.pf.link_layer, {})
            of_layer.setdefault(rail.pf.netdev.mtu, []).append(rail.pf.netdev.name)
    for layer, names in layers.items():
        if len(names) > 1:
            seen = "; ".join(f"MTU {mtu}: {', '.join(having)}" for mtu, having in sorted(names.items()))
            yield Finding("mtus-differ", f"{layer} rails", seen)


def clock(facts: Facts) -> Iterator[Finding]:
    """Find a clock that no program keeps."""
    if facts.clock_is_synchronised is False:
        yield Finding("clock-not-synchronised", "adjtimex", "TIME_ERROR: clock not synchronized")
