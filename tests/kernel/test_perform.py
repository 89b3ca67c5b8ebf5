"""Steps become changes of a fake kernel with two namespaces; the real kernel is the node tier's."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_interface
from pathlib import Path
from typing import NamedTuple

import pytest

from kernel import perform
from kernel.netlink.rtnetlink import IpInterface, Link
from vf.pci_address import PciAddress
from vf.steps import ConfigureLink, MoveLinkIn, MoveLinkOut, RenameLink

VF = PciAddress.parse("0000:03:00.1")
OURS, MARK = str(VF), f"railnet {VF} ibs5v0"
SANDBOX = -7  # the sandbox's descriptor; every other is the node's
ROOT = Path("/")
IN = MoveLinkIn(VF, 11, "ibs5v0", "net1", 4092)
ADDRESSES = ConfigureLink("net1", (ip_interface("10.56.3.1/16"),))
OUT = MoveLinkOut(VF, "ibs5v0")


def a_link(ifindex: int, ifname: str, alias: str | None = None, parent: str | None = None, kind: str | None = None):
    return Link(ifindex, ifname, alias, parent, kind)


class Kernel:
    """The links of a node and of one sandbox; some operations can be refused."""

    def __init__(self, node: list[Link], sandbox: list[Link]) -> None:
        self.node = {link.ifindex: link for link in node}
        self.sandbox = {link.ifindex: link for link in sandbox}
        self.refuses: dict[str, OSError] = {}
        self.log: list[str] = []

    @contextmanager
    def links(self, netns_fd: int | None = None) -> Iterator["Namespace"]:
        yield Namespace(self, self.sandbox if netns_fd == SANDBOX else self.node)

    def move(self, here: dict[int, Link], ifindex: int, netns_fd: int, ifname: str) -> None:
        into = self.sandbox if netns_fd == SANDBOX else self.node
        self.check("move in" if into is self.sandbox else "move out", here, ifindex)
        link = here.pop(ifindex)
        taken = any(other.ifname == ifname for other in into.values())
        into[ifindex] = link if taken else link._replace(ifname=ifname)
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

    def listed(self) -> tuple[Link, ...]:
        return tuple(self.here.values())

    def ifindex(self, ifname: str) -> int | None:
        return next((link.ifindex for link in self.here.values() if link.ifname == ifname), None)

    def move(self, ifindex: int, netns_fd: int, ifname: str) -> None:
        self.kernel.move(self.here, ifindex, netns_fd, ifname)

    def move_up(self, ifindex: int, netns_fd: int, ifname: str, mtu: int) -> None:
        self.kernel.move(self.here, ifindex, netns_fd, ifname)
        self.kernel.check(f"MTU {mtu}", self.kernel.sandbox, ifindex)

    def rename(self, ifindex: int, ifname: str) -> None:
        self._change("rename", ifindex, ifname=ifname)

    def set_alias(self, ifindex: int, alias: str) -> None:
        self._change("set_alias", ifindex, alias=alias or None)

    def add_address(self, ifindex: int, address: IpInterface) -> None:
        self._change("add_address", ifindex)

    def _change(self, operation: str, ifindex: int, **changes: str | None) -> None:
        self.kernel.check(operation, self.here, ifindex)
        self.here[ifindex] = self.here[ifindex]._replace(**changes)


@pytest.fixture
def a_kernel(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Kernel]:
    def made(node: list[Link] = [], sandbox: list[Link] = []) -> Kernel:  # noqa: B006 - never changed
        kernel = Kernel(node, sandbox)
        monkeypatch.setattr(perform, "links", kernel.links)
        return kernel

    return made


# Which link is the VF's.


FOUND = {
    "by its device": a_link(2, "net1", parent=OURS),
    "by its device, renamed by the pod": a_link(2, "other", "anything", OURS),
    "by the mark, if the kernel reports no device": a_link(2, "net1", MARK),
    "by our mark of before it had the node's name": a_link(2, "net1", f"railnet {VF}"),
    "by our mark, IPoIB": a_link(2, "net1", MARK, kind="ipoib"),
    "by our mark, the simulated node's": a_link(2, "net1", MARK, kind="tun"),
}
STRANGERS = {
    "our name": a_link(2, "net1"),
    "the node's name": a_link(2, "ibs5v0"),
    "our mark on a veth": a_link(2, "net1", MARK, kind="veth"),
    "our mark on a bridge": a_link(2, "net1", MARK, kind="bridge"),
    "our mark on a link of another device": a_link(2, "net1", MARK, "0000:03:00.2"),
    "our mark on IPoIB of another device": a_link(2, "net1", MARK, "0000:03:00.2", "ipoib"),
    "the mark of another VF": a_link(2, "net1", "railnet 0000:03:00.2 ibs5v1"),
    "a similar mark": a_link(2, "net1", f"railnet {VF}0"),
    "another device": a_link(2, "net1", parent="0000:83:00.1"),
}


@pytest.mark.parametrize("link", FOUND.values(), ids=FOUND.keys())
def test_netdev_of_the_vf_is_found(link: Link) -> None:
    assert perform.find((a_link(1, "lo"), link), VF) == link


@pytest.mark.parametrize("link", STRANGERS.values(), ids=STRANGERS.keys())
def test_link_that_the_pod_made_is_never_taken_for_the_vfs_netdev(link: Link) -> None:
    assert perform.find((link,), VF) is None


def test_device_is_preferred_to_a_mark() -> None:
    forged, ours = a_link(2, "net1", MARK, kind="tun"), a_link(3, "x", parent=OURS)

    assert perform.find((forged, ours), VF) == ours


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        (MARK, "ibs5v0"),
        (f"railnet {VF}", None),
        (f"railnet {VF} ", None),
        (f"railnet {VF} a/b", None),
        (f"railnet {VF} two words", None),
        (f"railnet {VF} sixteen_letters_", None),
        ("railnet 0000:03:00.2 ibs5v1", None),
        (None, None),
    ],
)
def test_name_on_the_node_is_read_from_the_mark_if_it_is_a_valid_name(alias: str | None, name: str | None) -> None:
    assert perform.host_ifname(a_link(2, "net1", alias), VF) == name


# Attach.


def test_attach_marks_moves_and_gives_addresses(a_kernel) -> None:
    kernel = a_kernel([a_link(11, "ibs5v0")])

    perform.attach((IN, ADDRESSES), SANDBOX, ROOT)

    assert (kernel.node, kernel.sandbox) == ({}, {11: a_link(11, "net1", MARK)})
    assert kernel.log == ["set_alias", "move in", "MTU 4092", "add_address"]


@pytest.mark.parametrize("operation", ["MTU 4092", "add_address"])
@pytest.mark.parametrize("parent", [OURS, None], ids=["device known", "by the mark"])
def test_attach_undoes_its_changes_when_a_step_is_refused(a_kernel, operation: str, parent) -> None:
    kernel = a_kernel([a_link(11, "ibs5v0", parent=parent)])
    kernel.refuses = {operation: OSError(errno.EINVAL, "Invalid argument")}

    with pytest.raises(OSError, match="Invalid argument") as raised:
        perform.attach((IN, ADDRESSES), SANDBOX, ROOT)

    assert (kernel.node, kernel.sandbox) == ({11: a_link(11, "ibs5v0", alias=MARK, parent=parent)}, {})
    assert not hasattr(raised.value, "__notes__")


@pytest.mark.parametrize("operation", ["MTU 4092", "move in"])
def test_attach_raises_the_first_error_with_a_note_when_its_undo_fails_too(a_kernel, operation: str) -> None:
    kernel = a_kernel([a_link(11, "ibs5v0", parent=OURS)], [a_link(12, "left", parent=OURS)])
    kernel.refuses = {operation: OSError(errno.EINVAL, "first"), "move out": OSError(errno.EBUSY, "second")}

    with pytest.raises(OSError, match="first") as raised:
        perform.attach((IN, ADDRESSES), SANDBOX, ROOT)

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
        perform.attach((IN, MoveLinkIn(other, 12, "ibs6v0", "net2", 4092), ADDRESSES), SANDBOX, ROOT)

    assert (list(kernel.node), list(kernel.sandbox)) == ([11], [12])
    assert len(raised.value.__notes__) == 1


def test_attach_does_not_move_where_the_name_is_taken(a_kernel) -> None:
    strangers = a_link(2, "net1", kind="veth")
    kernel = a_kernel([a_link(11, "ibs5v0")], [strangers])

    with pytest.raises(OSError, match=r"has a link named net1 already; VF 0000:03:00\.1 was not moved") as raised:
        perform.attach((IN,), SANDBOX, ROOT)

    assert raised.value.errno == errno.EEXIST
    assert (kernel.sandbox, kernel.log) == ({2: strangers}, [])


def test_attach_leaves_the_pods_links_alone_when_the_netdev_is_gone(a_kernel) -> None:
    kernel = a_kernel([], [a_link(2, "ibs5v0", MARK, kind="veth")])

    with pytest.raises(OSError, match="No such device"):
        perform.attach((IN,), SANDBOX, ROOT)

    assert list(kernel.sandbox) == [2]


# Detach.


def test_detach_moves_the_netdev_to_the_node_with_its_name(a_kernel) -> None:
    kernel = a_kernel(sandbox=[a_link(31, "renamed", MARK)])

    perform.detach((OUT,), SANDBOX)

    assert (kernel.node, kernel.sandbox) == ({31: a_link(31, "ibs5v0", alias=MARK)}, {})


def test_detach_succeeds_when_the_name_on_the_node_was_taken_meanwhile(a_kernel) -> None:
    kernel = a_kernel([a_link(2, "ibs5v0")], [a_link(31, "net1", parent=OURS)])

    perform.detach((OUT,), SANDBOX)

    assert kernel.node[31].ifname == "net1"


@pytest.mark.parametrize("link", STRANGERS.values(), ids=STRANGERS.keys())
def test_detach_takes_no_link_that_the_pod_made(a_kernel, link: Link) -> None:
    kernel = a_kernel(sandbox=[link])

    perform.detach((OUT,), SANDBOX)

    assert (kernel.node, kernel.sandbox, kernel.log) == ({}, {2: link}, [])


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
