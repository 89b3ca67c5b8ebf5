"""VFs' netdevs in network namespaces without a record: find them, and move them to the node.

Namespaces are enumerated in `railnet.kernel.namespaces.netns_search`. `railnet.vf.orphan_rescue` decides what is done about a netdev.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from railnet.kernel import perform
from railnet.kernel.namespaces.netns import NetnsIdentity, opened
from railnet.kernel.namespaces.netns_search import namespaces
from railnet.kernel.netlink import source_routing
from railnet.kernel.netlink.rtnetlink import Links, links
from railnet.kernel.netlink.sandbox_link_state import state
from railnet.kernel.vf_netdev_recognition import find_all, host_ifname
from railnet.vf.arp_and_source_routing import RULE_PRIORITY
from railnet.vf.orphan_rescue import OrphanNetdev
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Netns
from railnet.vf.steps import MoveLinkOut, Rule


def find_orphans(vfs: Collection[PciAddress], root: Path) -> dict[PciAddress, OrphanNetdev]:
    """Search every network namespace but the node's own for VFs' netdevs; `root` is where the host is seen.

    Takes a millisecond for each namespace, and may wait for RTNL: not for an event loop's thread. A namespace that cannot
    be opened or entered is passed over: it may have ended.

    Raises:
        OSError: the host's mounts or its /proc cannot be read.
    """
    orphans: dict[PciAddress, OrphanNetdev] = {}
    for netns, fd in namespaces(root, passed_over=(OSError,)):
        with suppress(OSError):
            orphans |= {vf: orphan for vf, orphan in _orphans(vfs, netns, fd) if vf not in orphans}
    return orphans


def move_to_node(steps: Iterable[MoveLinkOut], orphans: Mapping[PciAddress, OrphanNetdev], root: Path) -> None:
    """Move VFs' netdevs from the namespaces where they were found to the node; an ended namespace has returned its own.

    Raises:
        OSError: what the kernel refused.
    """
    for step in steps:
        netns = orphans[step.vf].netns
        with opened(root, netns.path, NetnsIdentity(netns.dev, netns.inode)) as fd:
            perform.detach((step,), fd)


def written_names(vfs: Collection[PciAddress]) -> dict[PciAddress, str]:
    """Read the names on the node that Railnet wrote on VFs' netdevs before it moved them; the netdevs are on the node.

    Raises:
        OSError: the kernel does not answer.
    """
    with links() as node:
        netdevs = find_all(node, vfs)
    return {vf: name for vf, link in netdevs.items() if (name := host_ifname(link, vf)) is not None}


def _orphans(vfs: Collection[PciAddress], netns: Netns, fd: int) -> Iterator[tuple[PciAddress, OrphanNetdev]]:
    with links(fd) as there:
        netdevs = find_all(there, vfs)
        for vf, link in netdevs.items():
            link_state = replace(state(there, link.ifindex), rules=_rules(there, len(netdevs)))
            yield vf, OrphanNetdev(netns, link_state, host_ifname(link, vf))


def _rules(there: Links, rails: int) -> frozenset[Rule]:
    """Read the rules that DEL should remove. A pod may have made too many to read: its VFs must be found all the same."""
    if rails > 1:
        with suppress(OSError):
            return source_routing.rules(there, RULE_PRIORITY)
    return frozenset()
