"""Which link is a VF's netdev, and which only says so."""

from collections.abc import Callable
from dataclasses import replace
from errno import EBADMSG, EMFILE, ENOBUFS, ENODEV, ENOMEM
from typing import NamedTuple

import pytest

from railnet.kernel import vf_netdev_recognition
from railnet.kernel.netlink.rtnetlink import Link
from railnet.kernel.vf_netdev_recognition import find, host_ifname, kinds_without_device, unknown_pfs
from railnet.vf.inventory import Netdev, PhysicalFunction
from railnet.vf.pci_address import PciAddress
from tests.deviceplugin.builders import a_pf, a_vf

VF = PciAddress.parse("0000:03:00.1")
OTHER_PF = PciAddress.parse("0000:04:00.0")
OURS, MARK = str(VF), f"railnet {VF} ibs5v0"
OLD_KERNEL = kinds_without_device("5.13.0")


def a_link(ifindex: int, ifname: str, alias: str | None = None, parent: str | None = None, kind: str | None = None):
    return Link(ifindex, ifname, alias, parent, kind)


FOUND = {
    "by its device": a_link(2, "net1", parent=OURS),
    "by its device, renamed by the pod": a_link(2, "other", "anything", OURS),
    "by the mark, if the kernel reports no device": a_link(2, "net1", MARK),
    "by our mark of before it had the node's name": a_link(2, "net1", f"railnet {VF}"),
    "by our mark, IPoIB": a_link(2, "net1", MARK, kind="ipoib"),
}
STRANGERS = {
    "our name": a_link(2, "net1"),
    "the node's name": a_link(2, "ibs5v0"),
    "our mark on a tun": a_link(2, "net1", MARK, kind="tun"),
    "our mark on the loopback link": a_link(1, "net1", MARK),
    "our mark on a veth": a_link(2, "net1", MARK, kind="veth"),
    "our mark on a bridge": a_link(2, "net1", MARK, kind="bridge"),
    "our mark on a link of another device": a_link(2, "net1", MARK, "0000:03:00.2"),
    "our mark on IPoIB of another device": a_link(2, "net1", MARK, "0000:03:00.2", "ipoib"),
    "our device, on top of the VF's netdev": Link(2, "child", MARK, OURS, "ipoib", lower=3, stacked=True),
    "our device, on top of the VF's netdev in another namespace": Link(2, "child", MARK, OURS, "ipoib", stacked=True),
    "our mark on IPoIB on top of the VF's netdev": Link(2, "child", MARK, None, "ipoib", stacked=True),
    "the mark of another VF": a_link(2, "net1", "railnet 0000:03:00.2 ibs5v1"),
    "a similar mark": a_link(2, "net1", f"railnet {VF}0"),
    "another device": a_link(2, "net1", parent="0000:83:00.1"),
}


@pytest.mark.parametrize("link", FOUND.values(), ids=FOUND.keys())
def test_netdev_of_the_vf_is_found(link: Link) -> None:
    assert find((a_link(1, "lo"), link), VF, OLD_KERNEL) == link


@pytest.mark.parametrize("link", STRANGERS.values(), ids=STRANGERS.keys())
def test_link_that_the_pod_made_is_never_taken_for_the_vfs_netdev(link: Link) -> None:
    assert find((link,), VF, OLD_KERNEL) is None


def test_device_is_preferred_to_a_mark() -> None:
    forged, ours = a_link(2, "net1", MARK, kind="tun"), a_link(3, "x", parent=OURS)

    assert find((forged, ours), VF, OLD_KERNEL) == ours


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
    assert host_ifname(a_link(2, "net1", alias), VF) == name


@pytest.mark.parametrize("release", ["5.14.0", "6.12.95+deb12-amd64", "10.0-rc1"])
@pytest.mark.parametrize("kind", [None, "ipoib", "tun"])
def test_mark_is_not_believed_where_the_kernel_names_devices(release: str, kind: str | None) -> None:
    assert find((a_link(2, "net1", MARK, kind=kind),), VF, kinds_without_device(release)) is None


NETDEV = Netdev("ibs5", 7, 4092)
PF = a_pf(a_vf(), netdev=NETDEV)
TUN = a_link(2, "net1", MARK, kind="tun")


class Node:
    """The links of the node, and the netdev that sysfs shows for the PF now."""

    def __init__(self, *links: Link, shown: Netdev | None = NETDEV) -> None:
        self.by_ifindex = {link.ifindex: link for link in links}
        self.shown = shown
        self.read: list[int] = []

    def link(self, ifindex: int) -> Link:
        self.read.append(ifindex)
        if ifindex not in self.by_ifindex:
            raise OSError(ENODEV, "No such device")
        return self.by_ifindex[ifindex]

    def learn(self, *pfs: PhysicalFunction) -> None:
        vf_netdev_recognition.learn_kinds(pfs, self, lambda _: self.shown)  # type: ignore[arg-type]


@pytest.fixture
def new_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vf_netdev_recognition, "_kinds", [*kinds_without_device("6.12")])
    monkeypatch.setattr(vf_netdev_recognition, "_netdevs_of_pfs", {})


@pytest.mark.usefixtures("new_kernel")
def test_kind_of_a_pfs_netdev_that_names_no_device_is_accepted_and_no_other() -> None:
    before = find((TUN,), VF)
    Node(a_link(7, "ibs5", kind="tun")).learn(PF)

    assert before is None
    assert find((TUN,), VF) == TUN
    assert find((a_link(2, "net1", MARK, kind="veth"),), VF) is None
    assert find((a_link(2, "net1", MARK),), VF) is None


STRANGE_NODES = {
    "the PF's netdev names its device": Node(a_link(7, "ibs5", parent="0000:03:00.0", kind="tun")),
    "the index is another link's": Node(a_link(7, "tap0", kind="tun")),
    "it is gone": Node(),
    "it went while its link was read": Node(a_link(7, "ibs5", kind="tun"), shown=None),
    "it is another one since its link was read": Node(a_link(7, "ibs5", kind="tun"), shown=replace(NETDEV, ifindex=8)),
}


@pytest.mark.usefixtures("new_kernel")
@pytest.mark.parametrize("node", STRANGE_NODES.values(), ids=STRANGE_NODES.keys())
def test_mark_on_a_link_without_a_device_is_not_believed_if(node: Node) -> None:
    node.learn(PF)

    assert node.read == [7]
    assert find((TUN,), VF) is None


@pytest.mark.usefixtures("new_kernel")
def test_pf_without_a_netdev_teaches_nothing_until_it_has_one() -> None:
    node = Node(a_link(7, "ibs5", kind="tun"))
    node.learn(replace(PF, netdev=None))
    before = find((TUN,), VF)
    node.learn(PF)

    assert (before, find((TUN,), VF)) == (None, TUN)


@pytest.mark.usefixtures("new_kernel")
def test_netdev_of_a_pf_is_read_once_and_a_new_one_is_read_too() -> None:
    again = Netdev("ibs5", 9, 4092)
    node = Node(a_link(7, "ibs5", parent="0000:03:00.0"), a_link(9, "ibs5", parent="0000:03:00.0"))
    for _ in range(2):
        node.learn(PF)
    for _ in range(2):
        node.learn(replace(PF, netdev=again))

    assert node.read == [7, 9]


class Sandbox(NamedTuple):
    """The links of a sandbox, and what their drivers say of their places, by ifindex."""

    links: tuple[Link, ...]
    bus_infos: dict[int, str]

    def listed(self, wanted: Callable[[Link], bool]) -> tuple[Link, ...]:
        return tuple(filter(wanted, self.links))

    def bus_info(self, link: Link) -> str | None:
        return self.bus_infos.get(link.ifindex)


@pytest.fixture
def old_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vf_netdev_recognition, "_kinds", [*OLD_KERNEL])


OTHER_VF = "0000:03:00.2"
BY_DRIVER = {
    "renamed, and its mark is gone": (a_link(2, "evil", "evil"), OURS, True),
    "IPoIB, renamed, and its mark is gone": (a_link(2, "evil", kind="ipoib"), OURS, True),
    "with the mark of another VF": (a_link(2, "net2", f"railnet {OTHER_VF} ibs5v1"), OURS, True),
    "with our mark, and it is another VF's": (a_link(2, "net1", MARK), OTHER_VF, False),
    "with our mark, and the driver names no PCI device": (a_link(2, "net1", MARK), "tun", True),
    "with our mark, and the driver says nothing": (a_link(2, "net1", MARK), None, True),
    "without a mark, and the driver names no PCI device": (a_link(2, "net1"), "N/A", False),
    "of a kind that pods make": (a_link(2, "net1", MARK, kind="veth"), OURS, False),
    "on top of the VF's netdev": (Link(2, "child", MARK, None, "ipoib", stacked=True), OURS, False),
}


@pytest.mark.usefixtures("old_kernel")
@pytest.mark.parametrize(("link", "bus_info", "own"), BY_DRIVER.values(), ids=BY_DRIVER.keys())
def test_driver_names_the_device_where_the_kernel_does_not(link: Link, bus_info: str | None, own: bool) -> None:
    sandbox = Sandbox((a_link(1, "lo", MARK), link), {} if bus_info is None else {2: bus_info, 1: OURS})

    netdevs = vf_netdev_recognition.find_all(sandbox, (VF,))  # type: ignore[arg-type]

    assert {vf: netdev.ifindex for vf, netdev in netdevs.items()} == ({VF: 2} if own else {})


@pytest.mark.usefixtures("old_kernel")
def test_netdev_is_taken_and_not_the_link_that_a_pod_made_on_it_whatever_comes_first() -> None:
    child = Link(2, "net1", MARK, OURS, "ipoib", lower=3, stacked=True)

    netdevs = vf_netdev_recognition.find_all(Sandbox((child, a_link(3, "x", parent=OURS)), {}), (VF,))  # type: ignore[arg-type]

    assert netdevs[VF].ifindex == 3


class NodeWithFailure(Node):
    """A node on which reading the link 7 fails."""

    def __init__(self, failure: int) -> None:
        super().__init__(a_link(9, "ibs6", kind="tun"), shown=replace(NETDEV, name="ibs6", ifindex=9))
        self.failure = failure

    def link(self, ifindex: int) -> Link:
        if ifindex == NETDEV.ifindex:
            raise OSError(self.failure, "link 7")
        return super().link(ifindex)


@pytest.mark.usefixtures("new_kernel")
def test_answer_that_cannot_be_understood_costs_one_pf_its_kind() -> None:
    other = replace(PF, address=OTHER_PF, netdev=Netdev("ibs6", 9, 4092))

    NodeWithFailure(EBADMSG).learn(PF, other)

    assert find((TUN,), VF) == TUN
    assert unknown_pfs((PF, other)) == [PF]


@pytest.mark.usefixtures("new_kernel")
@pytest.mark.parametrize("failure", [EMFILE, ENOMEM, ENOBUFS])
def test_shortage_of_the_daemon_is_raised_while_kinds_are_learned(failure: int) -> None:
    with pytest.raises(OSError, match="link 7"):
        NodeWithFailure(failure).learn(PF)
