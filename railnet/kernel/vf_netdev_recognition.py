"""Recognise a VF's netdev among the links of a namespace, also where a pod has renamed, marked and made links.

docs/decisions/0009 says why names are never used, and docs/decisions/0042 what a mark is believed for.
"""

import os
import re
from collections.abc import Callable, Iterable
from errno import EBADMSG, EIO, ENODEV
from typing import Final

from railnet.kernel.netlink.rtnetlink import Link, Links
from railnet.vf.inventory import Netdev, PhysicalFunction
from railnet.vf.pci_address import PciAddress

_MARK = "railnet"
# dev_valid_name(), net/core/dev.c: no slash, colon or white space; and no %, which dev_alloc_name() takes for a place of a number.
_IFNAME = re.compile(r"(?!\.\.?$)[!-$&-.0-9;-~]{1,15}")
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_PARENT_KERNEL = (5, 14)  # since then a netdev names its PCI device (00e77ed8e64d)
# IFLA_INFO_KIND of netdevs of hardware: most drivers' have none.
_HARDWARE_KINDS: Final = (None, "ipoib")
_OF_ONE_CARD: Final = (EBADMSG, EIO)  # an answer that is malformed; `Unreadable`
_LOOPBACK_IFINDEX = 1  # include/net/flow.h; it has no kind and no device, and a pod may give it any name and alias


def kinds_without_device(release: str) -> tuple[str | None, ...]:
    """Return the kinds of links that may be a VF's netdev though the kernel of this release names no PCI device for them.

    That is no kind at all since 5.14: a link without a device is a link that a pod has made.
    """
    version = tuple(int(number) for number in re.findall(r"\d+", release)[:2])
    return () if version >= _PARENT_KERNEL else _HARDWARE_KINDS


_kinds: list[str | None] = [*kinds_without_device(os.uname().release)]
_netdevs_of_pfs: dict[PciAddress, tuple[str, int]] = {}  # by PF, the name and ifindex of the netdev that was looked at


def learn_kinds(pfs: Iterable[PhysicalFunction], node: Links, now: Callable[[PciAddress], Netdev | None]) -> None:
    """Accept, in this process, the kinds of PFs' netdevs for which the kernel names no PCI device: those of their VFs are the same.

    A PCI function's netdev that sysfs shows has a device since 5.14 (SET_NETDEV_DEV of its driver, rtnl_fill_ifinfo()), so that a
    card teaches nothing there. No pod can change which netdev sysfs shows for a PF.

    Args:
        pfs: the PFs; a netdev that was looked at before is not read again.
        node: the links of the node.
        now: returns the netdev that sysfs shows for a PF. It is asked again after the link was read: another link may have got
            the name or the index meanwhile.

    A card with an answer that cannot be understood, or with a file that cannot be read, teaches nothing now, and is read the next time.

    Raises:
        OSError: the daemon lacks descriptors or memory.
    """
    for pf in unknown_pfs(pfs):
        try:
            _learn_kind(pf, node, now)
        except OSError as error:
            if error.errno not in _OF_ONE_CARD:
                raise


def _learn_kind(pf: PhysicalFunction, node: Links, now: Callable[[PciAddress], Netdev | None]) -> None:
    netdev = pf.netdev
    if netdev is None or (link := _own_link(netdev, node)) is None:
        return
    if link.parent is None and link.kind not in _kinds:
        same = now(pf.address)
        if same is None or (same.name, same.ifindex) != (netdev.name, netdev.ifindex):
            return
        _kinds.append(link.kind)
    _netdevs_of_pfs[pf.address] = netdev.name, netdev.ifindex


def unknown_pfs(pfs: Iterable[PhysicalFunction]) -> list[PhysicalFunction]:
    """Return the PFs with a netdev that `learn_kinds` has not looked at."""
    return [
        pf
        for pf in pfs
        if pf.netdev is not None and _netdevs_of_pfs.get(pf.address) != (pf.netdev.name, pf.netdev.ifindex)
    ]


def accepted_kinds() -> tuple[str | None, ...]:
    """Return the kinds of links without a PCI device that may be a VF's netdev in this process."""
    return tuple(_kinds)


def find(listed: Iterable[Link], vf: PciAddress, kinds: Iterable[str | None] | None = None) -> Link | None:
    """Find a VF's netdev in a sandbox by its PCI device; if neither the kernel nor its driver names the device, by Railnet's mark on it.

    A pod may write the same mark on a link of its own. So a link of another device, or of a kind that is not among `kinds`, is
    never taken. Nor is a link on top of another one: the IPoIB links that a pod makes on a VF's netdev have the VF's device, too.
    `kinds` is `accepted_kinds()` by default.
    """
    accepted = accepted_kinds() if kinds is None else tuple(kinds)
    candidates = [link for link in listed if _may_be(link, vf, accepted)]
    return next(iter(sorted(candidates, key=lambda link: link.parent is None)), None)


def find_all(
    namespace: Links, vfs: Iterable[PciAddress], looked_at: Callable[[Link], object] = lambda _: None
) -> dict[PciAddress, Link]:
    """Find VFs' netdevs in a namespace that may have any number of other links; `looked_at` is called with each link.

    Raises:
        OSError: the kernel does not list the links.
    """
    wanted, accepted = {str(vf): vf for vf in vfs}, accepted_kinds()

    def may_be(link: Link) -> bool:
        looked_at(link)
        if link.parent is not None:
            return link.parent in wanted
        return _is_of_kind(link, accepted)

    listed = [_with_device(link, namespace) for link in namespace.listed(may_be)]
    return {vf: link for vf in wanted.values() if (link := find(listed, vf)) is not None}


def host_ifname(link: Link, vf: PciAddress) -> str | None:
    """Read from a netdev's mark its name on the node before it was moved; None if it has no such mark."""
    name = _marked(link, vf)
    return name if name and _IFNAME.fullmatch(name) else None


def mark(vf: PciAddress, ifname: str) -> str:
    """Return the alias that ADD gives a netdev: from it the VF, and the netdev's name on the node, are known in the sandbox."""
    return f"{_MARK} {vf} {ifname}"


def _own_link(netdev: Netdev, node: Links) -> Link | None:
    """Return the link of a netdev; None if it is gone, or the index is another link's."""
    try:
        link = node.link(netdev.ifindex)
    except OSError as error:
        if error.errno != ENODEV:
            raise
        return None
    return link if link.ifname == netdev.name else None


def _with_device(link: Link, namespace: Links) -> Link:
    """Return a link with the PCI device that its driver names, where the kernel names none: no pod can change that, unlike a mark."""
    if link.parent is not None:
        return link
    bus_info = namespace.bus_info(link) or ""
    return link._replace(parent=bus_info) if _PCI_ADDRESS.fullmatch(bus_info) else link


def _may_be(link: Link, vf: PciAddress, kinds: tuple[str | None, ...]) -> bool:
    if link.parent is not None:
        return link.parent == str(vf) and not link.stacked
    return _is_of_kind(link, kinds) and _marked(link, vf) is not None


def _is_of_kind(link: Link, kinds: tuple[str | None, ...]) -> bool:
    return link.kind in kinds and link.ifindex != _LOOPBACK_IFINDEX and not link.stacked


def _marked(link: Link, vf: PciAddress) -> str | None:
    """Return the name in the mark of a VF, "" if the mark has none; None if the link has another mark or no mark."""
    match (link.alias or "").split(" "):
        case [word, address, *rest] if word == _MARK and address == str(vf):
            return " ".join(rest)
    return None
