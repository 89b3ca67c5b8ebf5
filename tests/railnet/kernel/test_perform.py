"""Steps become changes of a fake kernel with two namespaces; the real kernel is the node tier's."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path
from typing import NamedTuple

import pytest

from railnet.kernel import perform, vf_netdev_recognition
from railnet.kernel.netlink import restored_link_settings
from railnet.kernel.netlink.restored_link_settings import KnownLink
from railnet.kernel.netlink.rtnetlink import IpInterface, Link
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.arp_and_source_routing import APART
from railnet.vf.inventory import Netdev
from railnet.vf.pci_address import PciAddress
from railnet.vf.steps import (
    ConfigureLink,
    Ipv4Settings,
    MoveLinkIn,
    MoveLinkOut,
    RailRouting,
    RemoveRules,
    RenameLink,
    Route,
    RouteBySource,
)
from tests.railnet.kernel.test_vf_netdev_recognition import STRANGERS

VF = PciAddress.parse("0000:03:00.1")
OURS, MARK = str(VF), f"railnet {VF} ibs5v0"
SANDBOX = -7  # the sandbox's descriptor; every other is the node's
ROOT = Path("/")
IN = MoveLinkIn(VF, 11, "ibs5v0", "net1", 4092)
ADDRESSES = ConfigureLink("net1", (ip_interface("10.56.3.1/16"),))
OUT = MoveLinkOut(VF, "ibs5v0", {})


OLD_KERNEL = vf_netdev_recognition.kinds_without_device(
    "5.13.0"
)  # by the mark, a netdev is found only where the kernel names no devices


class Shown(Sysfs):
    """Shows a netdev of `VF` from the `look`-th look on."""

    def __init__(self, look: int = 1, name: str = "ibs5v0") -> None:
        self.left, self.name = look, name

    def names_of_netdevs(self, function: PciAddress) -> list[str]:
        self.left -= 1
        return [self.name] if self.left <= 0 and function == VF else []


SHOWN = Shown()


def a_link(ifindex: int, ifname: str, alias: str | None = None, parent: str | None = None, kind: str | None = None):
    return Link(ifindex, ifname, alias, parent, kind)


class Kernel:
    """The links of a node and of one sandbox; some operations can be refused."""

    def __init__(self, node: list[Link], sandbox: list[Link]) -> None:
        self.node = {link.ifindex: link for link in node}
        self.sandbox = {link.ifindex: link for link in sandbox}
        self.refuses: dict[str, OSError] = {}
        self.bus_infos: dict[int, str] = {}  # by ifindex, what the drivers of links say
        self.log: list[str] = []

    @contextmanager
    def links(self, netns_fd: int | None = None) -> Iterator["Namespace"]:
        yield Namespace(self, self.sandbox if netns_fd == SANDBOX else self.node)

    def move(self, here: dict[int, Link], ifindex: int, netns_fd: int, ifname: str) -> None:
        into = self.sandbox if netns_fd == SANDBOX else self.node
        self.check("move in" if into is self.sandbox else "move out", here, ifindex)
        link = here[ifindex]
        names = {name for other in into.values() for name in (other.ifname, *other.altnames)}
        if names & set(link.altnames) or (link.ifname in names and ifname in names):
            raise OSError(errno.EEXIST, "File exists")
        del here[ifindex]
        taken = ifname in names | set(link.altnames)
        into[ifindex] = link if taken else link._replace(ifname=ifname.replace("%d", "0"))
        if taken:
            raise OSError(errno.EEXIST, "File exists")

    def check(self, operation: str, here: dict[int, Link], ifindex: int) -> None:
        if operation in self.refuses:
            raise self.refuses[operation]
        if ifindex not in here:
            raise OSError(errno.ENODEV, "No such device")
        self.log.append(operation)


class Namespace(NamedTuple):
    """`Links` of one of the kernel's two namespaces."""

    kernel: Kernel
    here: dict[int, Link]

    def listed(self, wanted: Callable[[Link], bool]) -> tuple[Link, ...]:
        return tuple(filter(wanted, self.here.values()))

    def link(self, ifindex: int) -> Link:
        return self.here[ifindex]

    def bus_info(self, link: Link) -> str | None:
        return self.kernel.bus_infos.get(link.ifindex)

    def known(self, ifindex: int) -> KnownLink:
        if ifindex not in self.here:
            raise OSError(errno.ENODEV, "No such device")
        link = self.here[ifindex]
        return KnownLink(link.ifname, link.parent, {"alias": link.alias or "", "altnames": link.altnames, "mtu": 4092})

    def remove_altnames(self, ifindex: int, altnames: tuple[str, ...]) -> None:
        if altnames:
            self._change("remove_altnames", ifindex, altnames=tuple(set(self.here[ifindex].altnames) - set(altnames)))

    def delete(self, ifindex: int) -> None:
        self.kernel.check("delete", self.here, ifindex)
        del self.here[ifindex]

    def ifindex(self, ifname: str) -> int | None:
        return next((link.ifindex for link in self.here.values() if link.ifname == ifname), None)

    def move(self, ifindex: int, netns_fd: int, ifname: str, alias: str | None) -> None:
        self.kernel.move(self.here, ifindex, netns_fd, ifname)
        if alias is not None:
            self.kernel.node[ifindex] = self.kernel.node[ifindex]._replace(alias=alias or None)

    def move_up(self, ifindex: int, netns_fd: int, ifname: str, mtu: int, ipv4: Ipv4Settings | None = None) -> None:
        self.kernel.move(self.here, ifindex, netns_fd, ifname)
        self.kernel.check(f"MTU {mtu}", self.kernel.sandbox, ifindex)

    def rename(self, ifindex: int, ifname: str) -> None:
        self._change("rename", ifindex, ifname=ifname)

    def set_alias(self, ifindex: int, alias: str) -> None:
        self._change("set_alias", ifindex, alias=alias or None)

    def add_address(self, ifindex: int, address: IpInterface) -> None:
        self._change("add_address", ifindex)

    def add_route(self, ifindex: int, route: Route, table: int | None = None) -> None:
        self.kernel.check(f"route {route.destination} in table {table}", self.here, ifindex)

    def ask(self, operation: str, kind: int, payload: bytes, flags: int = 0) -> list[bytes]:
        if operation in self.kernel.refuses:
            raise self.kernel.refuses[operation]
        self.kernel.log.append(operation)
        return []

    def _change(self, operation: str, ifindex: int, **changes: str | tuple[str, ...] | None) -> None:
        self.kernel.check(operation, self.here, ifindex)
        self.here[ifindex] = self.here[ifindex]._replace(**changes)


@pytest.fixture
def a_kernel(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Kernel]:
    def made(node: list[Link] = [], sandbox: list[Link] = []) -> Kernel:  # noqa: B006 - never changed
        kernel = Kernel(node, sandbox)
        monkeypatch.setattr(vf_netdev_recognition, "_kinds", list(OLD_KERNEL))
        monkeypatch.setattr(perform, "links", kernel.links)
        monkeypatch.setattr(restored_link_settings, "read", lambda links, ifindex: links.known(ifindex))
        return kernel

    return made


# Attach.


def test_attach_marks_moves_and_gives_addresses(a_kernel) -> None:
    kernel = a_kernel([a_link(11, "ibs5v0")])

    perform.attach((IN, ADDRESSES), SANDBOX, ROOT, SHOWN)

    assert (kernel.node, kernel.sandbox) == ({}, {11: a_link(11, "net1", MARK)})
    assert kernel.log == ["set_alias", "move in", "MTU 4092", "add_address"]


@pytest.mark.parametrize(
    ("parent", "sysfs"),
    [("0000:83:00.1", SHOWN), (None, Shown(name="ibs9v9")), (None, Shown(1000))],
    ids=["its device is another", "the VF has another netdev", "the VF has none"],
)
def test_attach_takes_no_link_that_only_has_the_netdevs_ifindex(a_kernel, parent: str | None, sysfs: Sysfs) -> None:
    stranger = a_link(11, "ibs5v0", parent=parent)
    kernel = a_kernel([stranger])

    with pytest.raises(OSError, match=r"is not the netdev of VF 0000:03:00\.1 any more") as raised:
        perform.attach((IN, ADDRESSES), SANDBOX, ROOT, sysfs)

    assert raised.value.errno == errno.ENODEV
    assert (kernel.node, kernel.sandbox, kernel.log) == ({11: stranger}, {}, [])


def test_undo_of_an_attach_gives_the_netdev_its_mtu_back(a_kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = a_kernel([a_link(11, "ibs5v0", parent=OURS)])
    kernel.refuses = {"add_address": OSError(errno.EINVAL, "Invalid argument")}
    mtus, written = iter((4092, 2044, 4092)), []
    monkeypatch.setattr(restored_link_settings, "read", lambda *_: KnownLink("ibs5v0", OURS, {"mtu": next(mtus)}))
    monkeypatch.setattr(
        restored_link_settings, "write", lambda _, ifindex, found, wanted: written.append((ifindex, wanted))
    )

    with pytest.raises(OSError, match="Invalid argument"):
        perform.attach((IN, ADDRESSES), SANDBOX, ROOT, SHOWN)

    assert written == [(11, {"mtu": 4092})]


@pytest.mark.parametrize("operation", ["MTU 4092", "add_address"])
@pytest.mark.parametrize("parent", [OURS, None], ids=["device known", "by the mark"])
def test_attach_undoes_its_changes_when_a_step_is_refused(a_kernel, operation: str, parent) -> None:
    kernel = a_kernel([a_link(11, "ibs5v0", parent=parent)])
    kernel.refuses = {operation: OSError(errno.EINVAL, "Invalid argument")}

    with pytest.raises(OSError, match="Invalid argument") as raised:
        perform.attach((IN, ADDRESSES), SANDBOX, ROOT, SHOWN)

    assert (kernel.node, kernel.sandbox) == ({11: a_link(11, "ibs5v0", parent=parent)}, {})
    assert not hasattr(raised.value, "__notes__")


@pytest.mark.parametrize("operation", ["MTU 4092", "move in"])
def test_attach_raises_the_first_error_with_a_note_when_its_undo_fails_too(a_kernel, operation: str) -> None:
    kernel = a_kernel([a_link(11, "ibs5v0", parent=OURS)], [a_link(12, "left", parent=OURS)])
    kernel.refuses = {operation: OSError(errno.EINVAL, "first"), "move out": OSError(errno.EBUSY, "second")}

    with pytest.raises(OSError, match="first") as raised:
        perform.attach((IN, ADDRESSES), SANDBOX, ROOT, SHOWN)

    assert raised.value.__notes__ == ["and its undo failed: [Errno 16] second"]


def test_attach_undoes_every_move_though_the_undo_of_one_fails(a_kernel) -> None:
    other = PciAddress.parse("0000:83:00.1")
    kernel = a_kernel([a_link(11, "ibs5v0", parent=OURS), a_link(12, "ibs6v0", parent=str(other))])
    kernel.refuses = {"add_address": OSError(errno.EINVAL, "first")}
    moved = kernel.move

    def move(here: dict[int, Link], ifindex: int, netns_fd: int, ifname: str) -> None:
        if netns_fd != SANDBOX and ifindex == 12:
            raise OSError(errno.EBUSY, "second")
        moved(here, ifindex, netns_fd, ifname)

    kernel.move = move
    with pytest.raises(OSError, match="first") as raised:
        perform.attach((IN, MoveLinkIn(other, 12, "ibs6v0", "net2", 4092), ADDRESSES), SANDBOX, ROOT, SHOWN)

    assert (list(kernel.node), list(kernel.sandbox)) == ([11], [12])
    assert len(raised.value.__notes__) == 1


def test_attach_does_not_move_where_the_name_is_taken(a_kernel) -> None:
    strangers = a_link(2, "net1", kind="veth")
    kernel = a_kernel([a_link(11, "ibs5v0")], [strangers])

    with pytest.raises(OSError, match=r"has a link named net1 already; VF 0000:03:00\.1 was not moved") as raised:
        perform.attach((IN,), SANDBOX, ROOT, SHOWN)

    assert raised.value.errno == errno.EEXIST
    assert (kernel.sandbox, kernel.log) == ({2: strangers}, [])


def test_attach_leaves_the_pods_links_alone_when_the_netdev_is_gone(a_kernel) -> None:
    kernel = a_kernel([], [a_link(2, "ibs5v0", MARK, kind="veth")])

    with pytest.raises(OSError, match="No such device"):
        perform.attach((IN,), SANDBOX, ROOT, SHOWN)

    assert list(kernel.sandbox) == [2]


ROUTING = RailRouting(
    APART,
    5601,
    tuple(map(ip_address, ("10.56.3.1", "fd00::1"))),
    tuple(Route(ip_network(network), None) for network in ("10.56.0.0/16", "fd00::/64")),
)
TABLE = ["route 10.56.0.0/16 in table 5601", "route fd00::/64 in table 5601"]
RULES = ["add rule from 10.56.3.1 to table 5601", "add rule from fd00::1 to table 5601"]
REMOVED = ["remove rule from 10.56.3.1 to table 5601", "remove rule from fd00::1 to table 5601"]


def test_attach_fills_a_rails_table_before_it_leads_packets_there(a_kernel) -> None:
    kernel = a_kernel([a_link(11, "ibs5v0")])

    perform.attach((IN, RouteBySource("net1", ROUTING)), SANDBOX, ROOT, SHOWN)

    assert kernel.log == ["set_alias", "move in", "MTU 4092", *TABLE, *RULES]


@pytest.mark.parametrize("refused", RULES)
def test_attach_removes_its_rules_when_one_is_refused(a_kernel, refused: str) -> None:
    kernel = a_kernel([a_link(11, "ibs5v0")])
    kernel.refuses = {refused: OSError(errno.EOPNOTSUPP, "Operation not supported")}

    with pytest.raises(OSError, match="Operation not supported") as raised:
        perform.attach((IN, RouteBySource("net1", ROUTING)), SANDBOX, ROOT, SHOWN)

    assert (list(kernel.node), kernel.sandbox) == ([11], {})
    assert kernel.log[-3:] == [*REMOVED, "move out"]
    assert not hasattr(raised.value, "__notes__")


def test_attach_removes_its_rules_when_a_later_step_is_refused(a_kernel) -> None:
    kernel = a_kernel([a_link(11, "ibs5v0")])

    with pytest.raises(OSError, match="net2 is gone from the sandbox"):
        perform.attach((IN, RouteBySource("net1", ROUTING), RouteBySource("net2", ROUTING)), SANDBOX, ROOT, SHOWN)

    assert kernel.log[-3:] == [*REMOVED, "move out"]


# Detach.


def test_detach_removes_the_rules_of_rails_from_the_sandbox(a_kernel) -> None:
    kernel = a_kernel(sandbox=[a_link(31, "net1", parent=OURS)])

    perform.detach((OUT, RemoveRules(ROUTING.rules)), SANDBOX)
    perform.detach((OUT, RemoveRules(ROUTING.rules)), None)

    assert kernel.log == ["move out", *REMOVED]


def test_detach_moves_the_netdev_to_the_node_with_its_name(a_kernel) -> None:
    kernel = a_kernel(sandbox=[a_link(31, "renamed", MARK)])

    perform.detach((OUT,), SANDBOX)

    assert (kernel.node, kernel.sandbox) == ({31: a_link(31, "ibs5v0")}, {})


def test_detach_moves_a_netdev_whose_driver_alone_names_its_device_whatever_a_pod_calls_it(a_kernel) -> None:
    kernel = a_kernel(sandbox=[a_link(31, "evil", "evil")])
    kernel.bus_infos = {31: OURS}

    moved = perform.detach((OUT,), SANDBOX)

    assert moved == (OUT,)
    assert (kernel.node, kernel.sandbox) == ({31: a_link(31, "ibs5v0")}, {})


def test_detach_succeeds_when_the_name_on_the_node_was_taken_meanwhile(a_kernel) -> None:
    kernel = a_kernel([a_link(2, "ibs5v0")], [a_link(31, "net1", parent=OURS)])

    perform.detach((OUT,), SANDBOX)

    assert kernel.node[31].ifname == "net1"


@pytest.mark.parametrize("link", STRANGERS.values(), ids=STRANGERS.keys())
def test_detach_takes_no_link_that_the_pod_made(a_kernel, link: Link) -> None:
    kernel = a_kernel(sandbox=[link])

    perform.detach((OUT,), SANDBOX)

    assert (kernel.node, kernel.sandbox, kernel.log) == ({}, {link.ifindex: link}, [])


def test_detach_does_nothing_in_a_namespace_that_is_gone(a_kernel) -> None:
    kernel = a_kernel(sandbox=[a_link(31, "net1", parent=OURS)])

    perform.detach((OUT,), None)

    assert kernel.log == []


def test_detach_raises_what_the_kernel_refused(a_kernel) -> None:
    kernel = a_kernel(sandbox=[a_link(31, "net1", parent=OURS)])
    kernel.refuses = {"move out": OSError(errno.EBUSY, "Device or resource busy")}

    with pytest.raises(OSError, match="busy"):
        perform.detach((OUT,), SANDBOX)


@pytest.mark.parametrize(("number", "fine"), [(errno.ENODEV, True), (errno.EEXIST, True), (errno.EBUSY, False)])
def test_rename_of_a_link_that_is_gone_or_to_a_name_that_is_taken_is_no_error(
    a_kernel, number: int, fine: bool
) -> None:
    kernel = a_kernel([a_link(31, "net1")])
    kernel.refuses = {"rename": OSError(number, "refused")}
    raised = []

    try:
        perform.detach((RenameLink(31, "ibs5v0"),), None)
    except OSError as error:
        raised.append(error)

    assert (raised == []) is fine


@pytest.mark.parametrize("number", [errno.ENODEV, errno.EEXIST])
def test_rename_that_the_kernel_refuses_is_not_among_those_done(a_kernel, number: int) -> None:
    kernel, step = a_kernel([a_link(31, "net1")]), RenameLink(31, "ibs5v0")
    kernel.refuses = {"rename": OSError(number, "refused")}
    refused = perform.rename((step,))
    kernel.refuses = {}

    assert (refused, perform.rename((step,))) == ((), (step,))


# Take back: detach, and the settings as they were before.

BACK = MoveLinkOut(VF, "ibs5v0", {"alias": "", "altnames": (), "mtu": 4092})


def test_take_back_returns_the_netdev_as_it_is_on_the_node(a_kernel) -> None:
    kernel = a_kernel(sandbox=[a_link(31, "net1", MARK, parent=OURS)])

    assert perform.take_back((BACK, RemoveRules(ROUTING.rules)), SANDBOX, SHOWN) == {VF: Netdev("ibs5v0", 31, 4092)}
    assert (kernel.sandbox, kernel.log) == ({}, ["move out", *REMOVED])


def test_take_back_gives_no_settings_back_that_are_not_known(a_kernel) -> None:
    kernel = a_kernel(sandbox=[a_link(31, "net1", MARK)])

    assert perform.take_back((MoveLinkOut(VF, "ibs5v0"),), SANDBOX, SHOWN) == {VF: Netdev("ibs5v0", 31, 4092)}
    assert kernel.node[31].alias == MARK


def test_take_back_writes_a_setting_that_is_another(a_kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    a_kernel(sandbox=[a_link(31, "net1", parent=OURS)])
    settings, written = {"mtu": 9000, "group": 7}, []

    def write(_: object, ifindex: int, found: object, wanted: dict[str, int]) -> None:
        written.append((ifindex, wanted))
        settings.update(wanted)

    monkeypatch.setattr(restored_link_settings, "read", lambda *_: KnownLink("ibs5v0", OURS, dict(settings)))
    monkeypatch.setattr(restored_link_settings, "write", write)

    assert perform.take_back((BACK,), SANDBOX, SHOWN) == {VF: Netdev("ibs5v0", 31, 4092)}
    assert written == [(31, {"mtu": 4092, "group": 0})]


def test_take_back_leaves_out_a_netdev_that_keeps_a_setting(a_kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    a_kernel(sandbox=[a_link(31, "net1", parent=OURS)])
    monkeypatch.setattr(restored_link_settings, "read", lambda *_: KnownLink("ibs5v0", OURS, {"mtu": 4092, "group": 7}))
    monkeypatch.setattr(restored_link_settings, "write", lambda *_: None)

    assert perform.take_back((BACK,), SANDBOX, SHOWN) == {}


@pytest.mark.parametrize(
    ("node", "sandbox"),
    [
        ([a_link(2, "ibs5v0")], []),
        ([a_link(2, "ibs5v0")], [a_link(31, "net1", parent=OURS)]),
        ([a_link(2, "eth0")], [a_link(31, "net1", parent=OURS)._replace(altnames=("eth0",))]),
    ],
    ids=["nothing was in the sandbox", "another link has its name", "its first move is refused"],
)
def test_take_back_returns_no_link_that_only_has_the_netdevs_name(
    a_kernel, node: list[Link], sandbox: list[Link]
) -> None:
    a_kernel(node, sandbox)

    assert perform.take_back((MoveLinkOut(VF, "ibs5v0"),), SANDBOX, SHOWN) == {}


@pytest.mark.parametrize("gone", ["renamed", "removed"])
def test_take_back_leaves_out_a_netdev_that_another_program_takes_at_once(
    a_kernel, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    kernel = a_kernel(sandbox=[a_link(31, "net1", parent=OURS)])
    found = Namespace.ifindex

    def lost(namespace: Namespace, ifname: str) -> int | None:
        ifindex = found(namespace, ifname)
        kernel.node.clear()
        return None if gone == "renamed" else ifindex

    monkeypatch.setattr(Namespace, "ifindex", lost)

    assert perform.take_back((BACK,), SANDBOX, SHOWN) == {}


def test_take_back_writes_no_setting_of_another_devices_link(a_kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    a_kernel(sandbox=[a_link(31, "net1", parent=OURS)])
    monkeypatch.setattr(restored_link_settings, "read", lambda *_: KnownLink("ibs5v0", "0000:83:00.1", {"mtu": 9000}))
    monkeypatch.setattr(restored_link_settings, "write", lambda *_: pytest.fail("a setting was written"))

    assert perform.take_back((BACK,), SANDBOX, SHOWN) == {}


def test_take_back_waits_for_no_name_when_the_vf_has_a_netdev_of_another(a_kernel) -> None:
    a_kernel(sandbox=[a_link(31, "net1", parent=OURS)])
    renamed = Shown(2, "ib0")

    assert perform.take_back((BACK,), SANDBOX, renamed) == {}
    assert renamed.left == 0


def test_take_back_waits_until_sysfs_shows_the_netdev(a_kernel) -> None:
    a_kernel(sandbox=[a_link(31, "net1", parent=OURS)])
    late = Shown(3)

    assert perform.take_back((BACK,), SANDBOX, late) == {VF: Netdev("ibs5v0", 31, 4092)}
    assert late.left == 0


def test_take_back_leaves_out_a_netdev_that_sysfs_does_not_show(a_kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    a_kernel(sandbox=[a_link(31, "net1", parent=OURS)])
    monkeypatch.setattr(perform, "_SHOWN_SECONDS", 0.01)

    assert perform.take_back((BACK,), SANDBOX, Shown(1000)) == {}


# Names that a hostile pod gives its netdev.


def test_detach_removes_alternative_names_that_exist_on_the_node(a_kernel) -> None:
    hostile = a_link(31, "net1", parent=OURS)._replace(altnames=("eth0", "other"))
    kernel = a_kernel([a_link(2, "eth0")], [hostile])

    perform.detach((OUT,), SANDBOX)

    assert (kernel.node[31].ifname, kernel.node[31].altnames, kernel.sandbox) == ("ibs5v0", (), {})


def test_detach_moves_under_a_free_name_when_both_names_exist_on_the_node(a_kernel) -> None:
    kernel = a_kernel([a_link(2, "eth0"), a_link(3, "ibs5v0")], [a_link(31, "eth0", parent=OURS)])

    perform.detach((OUT,), SANDBOX)

    assert (kernel.node[31].ifname, kernel.sandbox) == ("railnet0", {})


def test_detach_fails_while_a_process_in_the_sandbox_gives_it_names_of_the_node_again_and_again(a_kernel) -> None:
    kernel = a_kernel([a_link(2, "eth0")], [a_link(31, "net1", parent=OURS)])
    moved = kernel.move

    def move(here: dict[int, Link], ifindex: int, netns_fd: int, ifname: str) -> None:
        here[ifindex] = here[ifindex]._replace(altnames=("eth0",))
        moved(here, ifindex, netns_fd, ifname)

    kernel.move = move
    with pytest.raises(OSError, match=r"the netdev of VF 0000:03:00\.1 is still in the sandbox") as raised:
        perform.detach((OUT,), SANDBOX)

    assert (raised.value.errno, list(kernel.sandbox)) == (errno.EEXIST, [31])


def test_detach_deletes_links_that_the_pod_made_on_its_netdev(a_kernel) -> None:
    vlan, stranger = (
        a_link(ifindex, f"v{ifindex}", kind="vlan")._replace(lower=lower) for ifindex, lower in ((5, 31), (6, 2))
    )
    kernel = a_kernel(sandbox=[vlan, stranger, a_link(31, "net1", parent=OURS)])

    perform.detach((OUT,), SANDBOX)

    assert (list(kernel.sandbox), list(kernel.node)) == ([6], [31])


@pytest.mark.parametrize("altname", ["eth0", "net1"])
def test_attach_moves_a_netdev_whose_alternative_name_exists_in_the_sandbox(a_kernel, altname: str) -> None:
    kernel = a_kernel([a_link(11, "ibs5v0", parent=OURS)._replace(altnames=(altname,))], [a_link(2, "eth0")])

    perform.attach((IN,), SANDBOX, ROOT, SHOWN)

    assert (kernel.sandbox[11].ifname, kernel.sandbox[11].altnames) == ("net1", ())
