"""Keep the rails of one pod apart: which rail answers ARP for an address, and which rail an answer leaves by. Pure.

A kernel without these settings answers ARP for any of its addresses on any of its links, and chooses the link of an answer by the
destination alone (docs/decisions/0058-many-rails-are-kept-apart.md).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from railnet.vf.address_slice import IpNetwork
from railnet.vf.permitted_networks import Routing
from railnet.vf.record import Attachment
from railnet.vf.steps import IpInterface, Ipv4Settings, RailRouting, Route

# arp_ignore 1: answer only for addresses of the link that was asked. arp_announce 2: ask with an address of the link that asks.
# rp_filter 2: a packet may come by another link than the one by which the main table leads to its sender; the kernel takes the
# larger of this value and that of `all`, so a strict 1 that the sandbox got from the host does not count.
APART = Ipv4Settings(arp_ignore=1, arp_announce=2, rp_filter=2)
# Of all our rules: before those of the main table (32766), and of programs that let the kernel choose (32765 and below).
RULE_PRIORITY = 5600
_FIRST_TABLE = RULE_PRIORITY + 1  # net1's; the kernel's own tables are 253 to 255, and CNI's plugin sbr counts from 100


def keep_apart(attachments: Sequence[Attachment], routing: Routing) -> tuple[Attachment, ...]:
    """Return a sandbox's attachments with what keeps them apart; a single rail needs nothing."""
    if routing == "none" or len(attachments) < 2:  # noqa: PLR2004 - nothing to keep one rail apart from
        return tuple(attachments)
    return tuple(
        replace(attachment, routing=_routing(_FIRST_TABLE + number, attachment, attachments))
        for number, attachment in enumerate(attachments)
    )


def _routing(table: int, attachment: Attachment, attachments: Sequence[Attachment]) -> RailRouting:
    others = [other for other in attachments if other.vf != attachment.vf]
    reached = tuple(_reached(attachment))
    elsewhere = tuple(network for other in others for network in _reached(other))
    versions = {mine.version for mine in reached for theirs in elsewhere if _overlap(mine, theirs)}
    sources = tuple(address for address in attachment.addresses if address.version in versions)
    if not sources:
        return RailRouting(APART, table)
    routes = (
        *_on_link(attachment, sources, others),
        *(route for route in attachment.routes if route.gateway is not None),
    )
    in_table: dict[IpNetwork, Route] = {}
    for route in routes:
        if route.destination.version in {source.version for source in sources}:
            in_table.setdefault(
                route.destination, route
            )  # as in the main table, the first route to a destination counts
    return RailRouting(APART, table, tuple(source.ip for source in sources), tuple(in_table.values()))


def _reached(attachment: Attachment) -> Iterator[IpNetwork]:
    """Yield what a rail leads to: the prefixes of its addresses, and the destinations of its routes."""
    yield from (address.network for address in attachment.addresses)
    yield from (route.destination for route in attachment.routes)


def _on_link(attachment: Attachment, sources: Sequence[IpInterface], others: Sequence[Attachment]) -> Iterator[Route]:
    """Yield the on-link routes of a rail's table, without those that another of them contains.

    An on-link route of another rail that contains a prefix of this rail is the joined range: by this rail, too, it leads to all rails.
    """
    own = [source.network for source in sources]
    networks = [*own, *(route.destination for route in attachment.routes if route.gateway is None)]
    ranges = (route.destination for other in others for route in other.routes if route.gateway is None)
    networks += [range_ for range_ in ranges if any(_contains(range_, network) for network in own)]
    distinct = dict.fromkeys(networks)
    for network in distinct:
        if not any(_contains(wider, network) for wider in distinct if wider != network):
            yield Route(network, None)


def _overlap(network: IpNetwork, other: IpNetwork) -> bool:
    return network.version == other.version and network.overlaps(other)


def _contains(wider: IpNetwork, network: IpNetwork) -> bool:
    return wider.prefixlen <= network.prefixlen and _overlap(wider, network)
