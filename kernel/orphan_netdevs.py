"""VFs' netdevs in network namespaces that nobody has named: where they are, and how they get home.

Namespaces are found by where they are bound, and by the processes in them (`kernel.netns_search`).
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from kernel import perform
from kernel.files import below, open_below
from kernel.netlink.links import links
from kernel.netlink.sandbox_links import state
from kernel.netns import NetnsIdentity, opened
from kernel.netns_search import bound
from kernel.perform import find, host_ifname
from vf.address import PciAddress
from vf.orphans import OrphanNetdev
from vf.record import Netns
from vf.steps import MoveLinkOut

_OWN = "/proc/thread-self/ns/net"


def find_orphans(vfs: Collection[PciAddress], root: Path) -> dict[PciAddress, OrphanNetdev]:
    """Look for VFs' netdevs in every network namespace but our own; `root` is where the host is seen.

    Takes a millisecond for each namespace, and may wait for RTNL: not for an event loop's thread. A namespace that ends
    meanwhile has none.
    """
    found: dict[PciAddress, OrphanNetdev] = {}
    for netns in namespaces(root):
        with suppress(OSError), opened(root, netns.path, NetnsIdentity(netns.dev, netns.inode)) as fd:
            if fd is not None:
                found |= {vf: stray for vf, stray in _strays(vfs, netns, fd) if vf not in found}
    return found


def take_home(steps: Iterable[MoveLinkOut], strays: Mapping[PciAddress, OrphanNetdev], root: Path) -> None:
    """Do steps where their VFs' netdevs were found; a namespace that has ended meanwhile gives its own back.

    Raises:
        OSError: what the kernel refused.
    """
    for step in steps:
        netns = strays[step.vf].netns
        with opened(root, netns.path, NetnsIdentity(netns.dev, netns.inode)) as fd:
            perform.detach((step,), fd)


def names_at_home(vfs: Collection[PciAddress]) -> dict[PciAddress, str]:
    """Read what VFs' netdevs that are here were called before we moved them; what is not written on one is left out.

    Raises:
        OSError: the kernel does not tell.
    """
    with links() as node:
        listed = node.listed()
    found = {vf: link for vf in vfs if (link := find(listed, vf)) is not None}
    return {vf: name for vf, link in found.items() if (name := host_ifname(link, vf)) is not None}


def namespaces(root: Path) -> tuple[Netns, ...]:
    """List the network namespaces of the host, without our own; one that is bound has the path it is bound at.

    Raises:
        OSError: the host's mounts or its /proc cannot be read.
    """
    own = os.stat(_OWN)
    found: dict[NetnsIdentity, Netns] = {}
    for path, facts in (*_bound(root), *_of_processes(root)):
        if facts.st_dev == own.st_dev and facts.st_ino != own.st_ino:  # else it is a file, where nothing is bound
            found.setdefault(NetnsIdentity(facts.st_dev, facts.st_ino), Netns(path, facts.st_dev, facts.st_ino))
    return tuple(found.values())


def _bound(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    for path in sorted(bound(root)):
        with suppress(OSError):  # it went meanwhile
            fd = open_below(root, path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                yield path, os.fstat(fd)
            finally:
                os.close(fd)


def _of_processes(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    for name in os.listdir(below(root, "/proc")):
        if name.isdecimal():
            path = f"/proc/{name}/ns/net"
            with suppress(OSError):  # it has ended
                yield path, os.stat(below(root, path))


def _strays(vfs: Collection[PciAddress], netns: Netns, fd: int) -> Iterator[tuple[PciAddress, OrphanNetdev]]:
    with links(fd) as there:
        listed = there.listed()
        for vf in vfs:
            link = find(listed, vf)
            if link is not None:
                yield vf, OrphanNetdev(netns, state(there, link.ifindex), host_ifname(link, vf))
