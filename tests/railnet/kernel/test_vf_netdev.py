"""Which link is a VF's netdev, and which only says so."""

import pytest

from railnet.kernel.netlink.rtnetlink import Link
from railnet.kernel.vf_netdev import find, host_ifname, kinds_without_device
from railnet.vf.pci_address import PciAddress

VF = PciAddress.parse("0000:03:00.1")
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


def test_marked_tun_is_accepted_for_simulated_hardware_only() -> None:
    tun = a_link(2, "net1", MARK, kind="tun")

    assert find((tun,), VF, (*kinds_without_device("6.12"), "tun")) == tun
