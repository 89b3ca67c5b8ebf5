"""Read the state of VFs' netdevs inside a sandbox. Nothing is changed here."""

from collections.abc import Collection, Iterable

from railnet.kernel.netlink import source_routing
from railnet.kernel.netlink.rtnetlink import Links, links
from railnet.kernel.vf_netdev_recognition import find_all
from railnet.vf.arp_and_source_routing import RULE_PRIORITY
from railnet.vf.inventory import LinkLayer
from railnet.vf.pci_address import PciAddress
from railnet.vf.sandbox_difference import SandboxLink
from railnet.vf.steps import Rule

# ARPHRD_* of include/uapi/linux/if_arp.h; an IPoIB netdev has 32
_LINK_LAYERS: dict[int, LinkLayer] = {1: "Ethernet", 32: "InfiniBand"}


def link_states(vfs: Collection[PciAddress], netns_fd: int) -> dict[PciAddress, SandboxLink]:
    """Read the state of some VFs' netdevs in a network namespace. A VF whose netdev is not there is left out.

    The caller keeps the descriptor. This may wait for RTNL, so it must not run on an event loop's thread.

    Raises:
        OSError: what the kernel refused.
    """
    with links(netns_fd) as sandbox:
        rules = source_routing.rules(sandbox, RULE_PRIORITY) if len(vfs) > 1 else frozenset()  # a single rail has none
        return {vf: state(sandbox, link.ifindex, rules) for vf, link in find_all(sandbox, vfs).items()}


def hardware_addresses(ifnames: Iterable[str], netns_fd: int) -> dict[str, str]:
    """Read the hardware addresses of links, in the form of `ip link`: 6 bytes, or 20 for IPoIB.

    A link that is absent, or has no hardware address, is left out. The caller keeps the descriptor. This may wait for RTNL,
    so it must not run on an event loop's thread.

    Raises:
        OSError: what the kernel refused.
    """
    with links(netns_fd) as sandbox:
        indexes = {ifname: index for ifname in ifnames if (index := sandbox.ifindex(ifname)) is not None}
        addresses = {ifname: sandbox.hardware(index).address for ifname, index in indexes.items()}
        return {ifname: address.hex(":") for ifname, address in addresses.items() if address}


def state(sandbox: Links, ifindex: int, rules: frozenset[Rule] = frozenset()) -> SandboxLink:
    """Read the state of one link. `rules` are those of the namespace that are of interest, whose tables are read, too."""
    facts = sandbox.facts(ifindex)
    tables = frozenset(rule.table for rule in rules)
    return SandboxLink(
        ifname=facts.ifname,
        link_layer=_LINK_LAYERS.get(facts.hardware_type),
        mtu=facts.mtu,
        up=facts.up,
        addresses=frozenset(sandbox.addresses(ifindex)),
        ipv4=facts.ipv4,
        rules=rules,
        routes=source_routing.routes(sandbox, ifindex, tables) if tables else frozenset(),
    )
