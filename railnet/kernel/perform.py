"""Do steps, and undo them: the one place where a sandbox's plan becomes changes of the kernel. `vf` decides what to do.

VFs are made, and drivers bound, by `railnet.kernel.vf_provisioning`.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from errno import EEXIST, ENODEV, EOPNOTSUPP
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

from railnet.kernel import vf_netdev_recognition
from railnet.kernel.files import below
from railnet.kernel.namespaces.netns import inside
from railnet.kernel.netlink import restored_link_settings, source_routing
from railnet.kernel.netlink.restored_link_settings import KnownLink
from railnet.kernel.netlink.rtnetlink import Link, Links, links
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.vf_netdev_recognition import mark
from railnet.kernel.waiting import block_until
from railnet.vf.arp_and_source_routing import RULE_PRIORITY
from railnet.vf.attachment_plan import FREE_IFNAME
from railnet.vf.inventory import Netdev
from railnet.vf.pci_address import PciAddress
from railnet.vf.restored_link_settings import Settings, Value, changes
from railnet.vf.steps import (
    AttachStep,
    ConfigureLink,
    DetachStep,
    MoveLinkIn,
    MoveLinkOut,
    RemoveRules,
    RenameLink,
    ResetLink,
    RouteBySource,
    Rule,
)

_MOVES = 16  # of a netdev that a process in the sandbox gives names which exist on the node
_SHOWN_SECONDS, _SHOWN_LOOK_SECONDS = 2.0, 0.002


def attach(steps: Sequence[AttachStep], netns_fd: int, root: Path, sysfs: Sysfs) -> dict[PciAddress, Settings]:
    """Do the steps in order; if one fails, undo the steps before it and raise. `root` is where the host is seen.

    Return the settings of the VFs' netdevs before the first step.

    The caller closes the descriptor. Blocks for some milliseconds: not for an event loop's thread.

    Raises:
        OSError: what the kernel refused, in words. A note is added if the undo failed too. ENODEV: a link is gone, or another device's.
    """
    undos: list[Callable[[], None]] = []
    with links() as node, links(netns_fd) as sandbox:
        before: dict[PciAddress, Settings] = {
            step.vf: _require_own(step.vf, restored_link_settings.read(node, step.ifindex), sysfs).settings
            for step in steps
            if isinstance(step, MoveLinkIn)
        }
        spaces = _Spaces(node, sandbox, netns_fd, root, sysfs)
        try:
            for step in steps:
                undos.append(_attach(step, before, spaces))  # noqa: PERF401 - what was done must be known
        except BaseException as error:
            for undo in reversed(undos):
                _undo(undo, error)
            raise
    return before


def _undo(undo: Callable[[], None], error: BaseException) -> None:
    try:
        undo()
    except OSError as second:
        error.add_note(f"and its undo failed: {second}")


def detach(steps: Iterable[DetachStep], netns_fd: int | None) -> tuple[MoveLinkOut, ...]:
    """Do the steps in order; an object that is gone is success. Return the moves that brought a netdev to the node under its own name.

    Raises:
        OSError: what the kernel refused, in words.
    """
    moved = []
    with nullcontext(None) if netns_fd is None else links(netns_fd) as sandbox:
        for step in steps:
            match step:
                case MoveLinkOut():
                    if sandbox is not None and _move_link_out(step, sandbox):
                        moved.append(step)
                case RemoveRules():
                    if sandbox is not None:
                        _remove_rules(step.rules, sandbox)
                case RenameLink():
                    _rename_link(step)
    return tuple(moved)


def rename(steps: Iterable[RenameLink]) -> tuple[RenameLink, ...]:
    """Rename links of the node; return the steps that the kernel did. A link that is gone, and one whose new name another has, stay as they are.

    Raises:
        OSError: what else the kernel refused.
    """
    return tuple(step for step in steps if _rename_link(step))


def take_back(steps: Iterable[DetachStep], netns_fd: int, sysfs: Sysfs) -> dict[PciAddress, Netdev]:
    """Do what `detach` does, and give the netdevs that it moved under their own names their settings back, as `reset` does.

    Return those of them that have all settings, by their VFs, when sysfs shows them, too; a kernel's does at once. The caller
    looks up what became of the others.

    Raises:
        OSError: as `detach` and `reset`.
    """
    moved = detach(steps, netns_fd)
    give_up = time.monotonic() + _SHOWN_SECONDS
    with links() as node:
        netdevs = {step.vf: _found_again(step, node, sysfs, give_up) for step in moved}
    return {vf: netdev for vf, netdev in netdevs.items() if netdev is not None}


def _found_again(step: MoveLinkOut, node: Links, sysfs: Sysfs, give_up: float) -> Netdev | None:
    """Give a netdev that was just moved its settings back; None if it has not got all, or if a program has renamed it already."""
    shown = block_until(
        lambda: sysfs.names_of_netdevs(step.vf), max(0.0, give_up - time.monotonic()), _SHOWN_LOOK_SECONDS
    )
    ifindex = node.ifindex(step.host_ifname) if step.host_ifname in shown else None
    if ifindex is None:
        return None
    try:
        link = _require_own(step.vf, restored_link_settings.read(node, ifindex), sysfs)
        settings, left = _reset(node, ifindex, link.settings, step.before)
    except OSError as error:
        if error.errno != ENODEV:
            raise
        return None
    mtu = settings.get("mtu")
    return Netdev(step.host_ifname, ifindex, mtu) if isinstance(mtu, int) and not left else None


def _require_own(vf: PciAddress, link: KnownLink, sysfs: Sysfs) -> KnownLink:
    """Return a link's facts if it is the netdev of a VF. Where the kernel does not name its device, sysfs names it.

    Raises:
        OSError: ENODEV, it is another device's. A link that comes from another namespace keeps its ifindex if no link has it.
    """
    own = link.ifname in sysfs.names_of_netdevs(vf) if link.parent is None else link.parent == str(vf)
    if not own:
        raise OSError(ENODEV, f"link {link.ifname!r} is not the netdev of VF {vf} any more")
    return link


def links_on_node(ifnames: Iterable[str]) -> frozenset[str]:
    """Return those names that a link on the node has, by netlink: sysfs may be later.

    Raises:
        OSError: the kernel does not answer.
    """
    with links() as node:
        return frozenset(ifname for ifname in ifnames if node.ifindex(ifname) is not None)


def reset(step: ResetLink) -> Mapping[str, Value]:
    """Give a netdev on the node its settings back. Return those that it has not got, with the values they should have.

    A netdev that is gone needs nothing.

    Raises:
        OSError: the kernel does not say what the settings are.
    """
    with links() as node:
        try:
            return _reset(node, step.ifindex, restored_link_settings.read(node, step.ifindex).settings, step.before)[1]
        except OSError as error:
            if error.errno != ENODEV:
                raise
            return {}


def _reset(
    node: Links, ifindex: int, current: Settings, before: Settings | None
) -> tuple[Settings, Mapping[str, Value]]:
    """Return the settings that the netdev has then, and those of `before` that it has not got; with None it keeps all."""
    if before is None or not (wanted := changes(current, before)):
        return current, {}
    restored_link_settings.write(node, ifindex, current, wanted)
    now = restored_link_settings.read(node, ifindex).settings
    return now, changes(now, before)


class _Spaces(NamedTuple):
    """The links of both namespaces of an attach, the sandbox's descriptor, and where the host and its hardware are seen."""

    node: Links
    sandbox: Links
    netns_fd: int
    root: Path
    sysfs: Sysfs


def _attach(step: AttachStep, before: Mapping[PciAddress, Settings], spaces: _Spaces) -> Callable[[], None]:
    match step:
        case MoveLinkIn():
            return _move_link_in(step, before[step.vf], spaces)
        case ConfigureLink():
            if any(address.version == 6 for address in step.addresses):  # noqa: PLR2004
                inside(spaces.netns_fd, lambda: _enable_ndisc_notify(step.ifname, spaces.root))
            _configure_link(step, spaces.sandbox)
            return lambda: None  # the kernel drops them when the link is moved out
        case RouteBySource():
            return _route_by_source(step, spaces.sandbox)


def _move_link_in(step: MoveLinkIn, before: Settings, spaces: _Spaces) -> Callable[[], None]:
    node, sandbox, netns_fd, _, sysfs = spaces

    def undo() -> None:
        out = MoveLinkOut(step.vf, step.host_ifname, before)
        if _move_link_out(out, sandbox):  # the next try must not take the pod's MTU for the node's
            _found_again(out, node, sysfs, time.monotonic() + _SHOWN_SECONDS)

    # A taken name does not make the kernel refuse the move, only the rename after it: so look first.
    if sandbox.ifindex(step.ifname) is not None:
        raise OSError(EEXIST, f"the sandbox has a link named {step.ifname} already; VF {step.vf} was not moved")
    try:
        node.set_alias(step.ifindex, mark(step.vf, step.host_ifname))
        try:
            node.move_up(step.ifindex, netns_fd, step.ifname, step.mtu, step.ipv4)
        except FileExistsError:
            _move_without_altnames(step, node, sandbox, netns_fd)
    except OSError as error:
        _undo(undo, error)
        raise
    return undo


def _move_without_altnames(step: MoveLinkIn, node: Links, sandbox: Links, netns_fd: int) -> None:
    """Move a netdev again, without the alternative names that it had on the node: one of them exists in the sandbox.

    The kernel refused the move because of such a name, or moved the netdev and refused its new name.
    """
    _move_link_out(MoveLinkOut(step.vf, step.host_ifname), sandbox)
    node.remove_altnames(step.ifindex, node.link(step.ifindex).altnames)
    node.move_up(step.ifindex, netns_fd, step.ifname, step.mtu, step.ipv4)


def _route_by_source(step: RouteBySource, sandbox: Links) -> Callable[[], None]:
    def undo() -> None:
        _remove_rules(step.routing.rules, sandbox)

    ifindex = _ifindex(step.ifname, sandbox)
    for route in step.routing.routes:
        sandbox.add_route(ifindex, route, step.routing.table)
    try:
        for rule in step.routing.rules:
            source_routing.add_rule(sandbox, rule, RULE_PRIORITY)
    except OSError as error:
        _undo(undo, error)
        raise
    return undo


def _remove_rules(rules: Iterable[Rule], sandbox: Links) -> None:
    for rule in rules:
        source_routing.remove_rule(sandbox, rule, RULE_PRIORITY)


def _ifindex(ifname: str, sandbox: Links) -> int:
    ifindex = sandbox.ifindex(ifname)
    if ifindex is None:
        raise OSError(ENODEV, f"{ifname} is gone from the sandbox")
    return ifindex


def _configure_link(step: ConfigureLink, sandbox: Links) -> None:
    ifindex = _ifindex(step.ifname, sandbox)
    for address in step.addresses:
        sandbox.add_address(ifindex, address)
    for route in step.routes:
        # The first route wins, as for the CNI plugins' own interfaces: net1 never replaces eth0's default route.
        with suppress(FileExistsError):
            sandbox.add_route(ifindex, route)


def _enable_ndisc_notify(ifname: str, root: Path) -> None:
    """Have the kernel announce IPv6 addresses to neighbours, once there is a carrier and duplicate detection has passed.

    Written in the host's /proc, since a container's own is read-only. In every /proc, sys/net is that of the calling
    thread's namespace.

    Source: addrconf_dad_completed(), net/ipv6/addrconf.c.
    """
    below(root, f"/proc/sys/net/ipv6/conf/{ifname}/ndisc_notify").write_text("1\n", encoding="ascii")


def _move_link_out(step: MoveLinkOut, sandbox: Links) -> bool:
    node_fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _send_back(step, sandbox, node_fd)
    finally:
        os.close(node_fd)


def _send_back(step: MoveLinkOut, sandbox: Links, node_fd: int) -> bool:
    """Move a VF's netdev to the node: under its own name, or else under a name that cannot be taken, which `detach` renames later.

    Return whether this moved it under its own name.

    Whether the netdev is gone from the sandbox is looked up, not concluded from an error: EEXIST may mean that it has moved and
    was not renamed, or that it has not moved. A process in the sandbox may give it names that exist on the node, again and again.

    Raises:
        OSError: what the kernel refused; EEXIST, it is still in the sandbox after so many tries.
    """
    kept, alias = _names_before(step)
    for ifname in (step.host_ifname, *repeat(FREE_IFNAME, _MOVES)):
        link, uppers = _with_uppers(sandbox, step.vf)
        if link is None:
            return False
        try:
            # The kernel moves a link with its alternative names, or not at all if one of them exists at the destination.
            sandbox.remove_altnames(link.ifindex, () if kept is None else set(link.altnames).difference(kept))
            _delete_links(sandbox, uppers)
            sandbox.move(link.ifindex, node_fd, ifname, alias)
        except OSError as error:
            if error.errno not in (ENODEV, EEXIST):
                raise
            kept = ()
        else:
            return ifname == step.host_ifname
    raise OSError(
        EEXIST,
        f"the netdev of VF {step.vf} is still in the sandbox: at each of {_MOVES + 1} moves it had a name that exists on the "
        "node; a process in the sandbox gives it such names. It is moved again when the runtime calls again",
    )


def _names_before(step: MoveLinkOut) -> tuple[tuple[str, ...] | None, str | None]:
    """Return the alternative names and the alias that a netdev had on the node; None if they are not known."""
    if step.before is None:
        return None, None
    altnames = step.before.get("altnames", ())
    return altnames if isinstance(altnames, tuple) else (), str(step.before.get("alias", ""))


def _with_uppers(sandbox: Links, vf: PciAddress) -> tuple[Link | None, frozenset[int]]:
    """Find a VF's netdev, and the links that the pod has made on top of it, in one list of links."""
    uppers: dict[int, set[int]] = {}

    def note(link: Link) -> None:
        if link.lower is not None:
            uppers.setdefault(link.lower, set()).add(link.ifindex)

    link = vf_netdev_recognition.find_all(sandbox, (vf,), note).get(vf)
    return link, frozenset() if link is None else frozenset(uppers.get(link.ifindex, ()))


def _delete_links(sandbox: Links, ifindexes: Iterable[int]) -> None:
    """Delete the links on top of a netdev: they stay behind when it moves, and would still receive and send through it."""
    for ifindex in ifindexes:
        try:
            sandbox.delete(ifindex)
        except OSError as error:
            if error.errno not in (ENODEV, EOPNOTSUPP):  # EOPNOTSUPP: no link that a pod has made
                raise


def _rename_link(step: RenameLink) -> bool:
    with links() as node:
        try:
            node.rename(step.ifindex, step.ifname)
        except OSError as error:
            if error.errno not in (ENODEV, EEXIST):  # EEXIST: another link has the name now; any name serves
                raise
            return False
        return True
