"""What VFs' netdevs are like inside a sandbox; nothing is changed."""

from collections.abc import Collection, Iterable

from kernel.netlink.links import Links, links
from kernel.perform import find
from vf.address import PciAddress
from vf.inventory import LinkLayer
from vf.sandbox_difference import SandboxLink

# include/uapi/linux/if_arp.h; IPoIB netdevs have the second.
_LINK_LAYERS: dict[int, LinkLayer] = {1: "Ethernet", 32: "InfiniBand"}


def link_states(vfs: Collection[PciAddress], netns_fd: int) -> dict[PciAddress, SandboxLink]:
    """Look at the netdevs of some VFs in a network namespace; a VF whose netdev is not there is left out.

    The descriptor stays the caller's. May wait for RTNL: not for an event loop's thread.

    Raises:
        OSError: what the kernel refused.
    """
    with links(netns_fd) as sandbox:
        listed = sandbox.listed()
        found = {vf: link for vf in vfs if (link := find(listed, vf)) is not None}
        return {vf: state(sandbox, link.ifindex) for vf, link in found.items()}


def hardware_addresses(ifnames: Iterable[str], netns_fd: int) -> dict[str, str]:
    """Read the hardware addresses of links, as `ip link` spells them: 6 bytes, or IPoIB's 20.

    A link that is not there, or has none, is left out. The descriptor stays the caller's. May wait for RTNL: not for an event loop's thread.

    Raises:
        OSError: what the kernel refused.
    """
    with links(netns_fd) as sandbox:
        indexes = {ifname: index for ifname in ifnames if (index := sandbox.ifindex(ifname)) is not None}
        addresses = {ifname: sandbox.hardware(index).address for ifname, index in indexes.items()}
        return {ifname: address.hex(":") for ifname, address in addresses.items() if address}


def state(sandbox: Links, ifindex: int) -> SandboxLink:
    """Look at one link."""
    facts = sandbox.facts(ifindex)
    return SandboxLink(
        ifname=facts.ifname,
        link_layer=_LINK_LAYERS.get(facts.hardware_type),
        mtu=facts.mtu,
        up=facts.up,
        addresses=frozenset(sandbox.addresses(ifindex)),
    )
