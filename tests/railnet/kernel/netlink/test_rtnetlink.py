"""rtnetlink: the bytes of requests, and the parsing of answers. The node and vm tiers test the kernel's actions."""

import ctypes
import struct
from collections.abc import Callable
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path

import pytest

from railnet.kernel.netlink import rtnetlink
from railnet.kernel.netlink.protocol import attributes, encode
from railnet.kernel.netlink.rtnetlink import Hardware, Link, LinkFacts, Links, link_message, links
from railnet.vf.steps import Route
from tests.railnet.kernel.netlink.test_rdma_netns_mode import ACKNOWLEDGED, DONE, FakeKernel

# Bytes of a little-endian kernel, written by hand. Header: length, type, flags, sequence number, port id.
# Then struct ifinfomsg: family, type, ifindex, flags, mask of the flags to change; or ifaddrmsg. Then attributes.
REQUESTS: dict[str, tuple[Callable[[Links], object], list[str]]] = {
    "move": (
        lambda links: links.move(11, 7, "ibs5v0"),
        ["34000000 1000 0500 01000000 00000000  00000000 0b000000 00000000 00000000  08001c00 07000000  0b000300 696273357630 0000"],
    ),
    "move up": (
        lambda links: links.move_up(11, 7, "net1", 4092),
        ["3c000000 1000 0500 01000000 00000000  00000000 0b000000 01000000 01000000  08001c00 07000000  08000400 fc0f0000  09000300 6e65743100 000000"],
    ),
    "rename": (
        lambda links: links.rename(11, "net1"),
        ["20000000 1000 0500 01000000 00000000  00000000 0b000000 00000000 01000000",
         "2c000000 1000 0500 02000000 00000000  00000000 0b000000 00000000 00000000  09000300 6e65743100 000000"],
    ),
    "alias": (
        lambda links: links.set_alias(11, "rail"),
        ["28000000 1000 0500 01000000 00000000  00000000 0b000000 00000000 00000000  08001400 7261696c"],
    ),
    "up": (
        lambda links: links.set_up(11),
        ["20000000 1000 0500 01000000 00000000  00000000 0b000000 01000000 01000000"],
    ),
    "IPv4": (
        lambda links: links.add_address(11, ip_interface("10.56.3.1/16")),
        ["28000000 1400 0505 01000000 00000000  02100000 0b000000  08000200 0a380301  08000100 0a380301"],
    ),
    "IPv6": (
        lambda links: links.add_address(11, ip_interface("fd00::1/64")),
        ["40000000 1400 0505 01000000 00000000  0a400000 0b000000  14000200 fd000000000000000000000000000001  14000100 fd000000000000000000000000000001"],
    ),
    "route": (
        lambda links: links.add_route(11, Route(ip_network("10.62.0.0/16"), ip_address("10.61.0.1"))),
        ["34000000 1800 0506 01000000 00000000  02100000 fe040001 00000000  08000100 0a3e0000  08000400 0b000000  08000500 0a3d0001"],
    ),
    "on-link route": (
        lambda links: links.add_route(11, Route(ip_network("fd62::/16"), None)),
        ["38000000 1800 0506 01000000 00000000  0a100000 fe04fd01 00000000  14000100 fd620000000000000000000000000000  08000400 0b000000"],
    ),
    "alternative names": (
        lambda links: links.add_altnames(11, ("eth0", "ibp1s0v0")),
        ["40000000 6c00 050e 01000000 00000000  00000000 0b000000 00000000 00000000  20003480 09003500 6574683000 000000 0d003500 6962703173307630 00 000000"],
    ),
    "no alternative names": (
        lambda links: links.remove_altnames(11, ["eth0"]),
        ["30000000 6d00 0500 01000000 00000000  00000000 0b000000 00000000 00000000  10003480 09003500 6574683000 000000"],
    ),
    "delete": (
        lambda links: links.delete(11),
        ["20000000 1100 0500 01000000 00000000  00000000 0b000000 00000000 00000000"],
    ),
    "list": (
        lambda links: links.listed(),
        ["28000000 1200 0503 01000000 00000000  00000000 00000000 00000000 00000000  08001d00 08000000"],
    ),
}  # fmt: skip
LINK = bytes.fromhex(
    "54000000 1000 0200 01000000 00000000  0000 2000 0b000000 00000000 00000000"
    "09000300 6e65743100 000000"
    "08001400 7261696c"  # IFLA_IFALIAS, without a NUL
    "0c001280 08000100 74756e00"  # IFLA_LINKINFO, with the flag of nested attributes, around IFLA_INFO_KIND
    "11003800 303030303a30333a30302e3100 000000"  # IFLA_PARENT_DEV_NAME
)


@pytest.mark.parametrize(("ask", "sent"), REQUESTS.values(), ids=REQUESTS.keys())
def test_request_has_these_bytes(ask: Callable[[Links], object], sent: list[str]) -> None:
    kernel = FakeKernel(ACKNOWLEDGED, ACKNOWLEDGED[:8] + b"\x02" + ACKNOWLEDGED[9:])

    ask(Links(kernel))

    assert kernel.sent == [bytes.fromhex(request) for request in sent]


def test_link_is_read_with_its_alias_kind_and_device() -> None:
    bare = bytes.fromhex(
        "28000000 1000 0200 01000000 00000000  0000 2000 01000000 00000000 00000000  07000300 6c6f0000"
    )

    listed = Links(FakeKernel(bare + LINK, DONE)).listed()

    assert listed == (Link(1, "lo", None, None, None), Link(11, "net1", "rail", "0000:03:00.1", "tun"))


def test_facts_of_a_link_are_read() -> None:
    answer = "34000000 1000 0000 01000000 00000000  0000 2000 0b000000 41000000 00000000  09000300 6e65743100 000000  08000400 fc0f0000"

    assert Links(FakeKernel(bytes.fromhex(answer), ACKNOWLEDGED)).facts(11) == LinkFacts("net1", 32, 4092, up=True)


def test_hardware_addresses_of_any_length_are_read() -> None:
    head = "0000 2000 0b000000 03100100 00000000"
    address, broadcast = bytes(range(20)), b"\0" + b"\xff" * 19
    attributes = f"18000100 {address.hex()} 18000200 {broadcast.hex()} 08000400 fc0f0000"
    bare, whole = (
        bytes.fromhex(f"{length}000000 1000 0000 01000000 00000000 {head} {rest}")
        for length, rest in (("20", ""), ("58", attributes))
    )

    found = [Links(FakeKernel(answer, ACKNOWLEDGED)).hardware(11) for answer in (bare, whole)]

    assert found == [Hardware(11, 32, 0x11003, b"", b""), Hardware(11, 32, 0x11003, address, broadcast)]


def test_addresses_are_those_of_the_link_and_not_its_peers() -> None:
    of_another = "20000000 1400 0200 01000000 00000000  02080080 01000000  08000100 7f000001"
    of_link = "28000000 1400 0200 01000000 00000000  02180000 0b000000  08000100 0a000002  08000200 0a000001"
    of_link_ipv6 = "2c000000 1400 0200 01000000 00000000  0a400000 0b000000  14000100 fd000000000000000000000000000001"

    found = Links(FakeKernel(bytes.fromhex(of_another + of_link + of_link_ipv6), DONE)).addresses(11)

    assert found == (ip_interface("10.0.0.1/24"), ip_interface("fd00::1/64"))


# On the real kernel, in the test's namespace.


def test_link_is_found_by_its_name() -> None:
    with links() as here:
        assert here.ifindex("lo") == 1
        assert here.ifindex("no-such-link") is None
        assert here.ifindex("h\udcff") is None  # a name that is not UTF-8


def test_links_are_listed_as_sysfs_names_them() -> None:
    expected = {path.name for path in Path("/sys/class/net").iterdir() if (path / "ifindex").exists()}

    with links() as here:
        assert {link.ifname for link in here.listed()} == expected


def test_links_leave_no_descriptor_open_when_closed() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with links() as here:
        here.listed()

    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_link_is_read_with_the_link_below_it_and_its_alternative_names() -> None:
    facts = attributes((3, b"v\0"), (5, b"\x1f\0\0\0"), (52 | 1 << 15, attributes((53, b"eth0\0"), (53, b"a\0"))))
    of_other_namespace = facts + attributes((37, b"\0\0\0\0"))

    found = Links(FakeKernel(an_answer(facts) + an_answer(of_other_namespace) + DONE)).listed()  # type: ignore[arg-type]

    assert [(link.lower, link.altnames) for link in found] == [(31, ("eth0", "a")), (None, ("eth0", "a"))]
    assert [link.stacked for link in found] == [True, True]


def test_driver_of_a_link_says_where_it_is_and_a_link_without_a_driver_nothing() -> None:
    loopback = Link(1, "lo", None, None, None)

    with links() as here:
        assert here.bus_info(loopback) is None
        assert here.bus_info(loopback._replace(ifname="no-such-link")) is None


def test_place_that_is_another_links_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, bytes]] = []

    def ioctl(_: object, request: int, packed: bytes) -> bytes:
        asked.append((request, packed[:5]))
        if request == rtnetlink._SIOCETHTOOL:
            ctypes.memmove(struct.unpack_from("@16sP", packed)[1] + 100, b"0000:03:00.1", 12)
        return struct.pack("=16si20x", b"net1", 11)

    monkeypatch.setattr(rtnetlink.fcntl, "ioctl", ioctl)
    here = Links(FakeKernel())  # type: ignore[arg-type]

    assert here.bus_info(Link(11, "net1", None, None, None)) == "0000:03:00.1"
    assert here.bus_info(Link(12, "net1", None, None, None)) is None
    assert asked[0] == (0x8946, b"net1\0")


@pytest.mark.slow
def test_one_link_is_found_among_more_than_65536() -> None:
    many = [an_answer(attributes((3, b"x\0"))) * 1000] * 70

    kernel = FakeKernel(*many, an_answer(attributes((3, b"net1\0"))) + DONE)
    (found,) = Links(kernel).listed(lambda link: link.ifname == "net1")  # type: ignore[arg-type]

    assert found.ifname == "net1"


def test_as_many_alternative_names_as_a_link_can_have_are_removed_in_requests_that_the_kernel_can_read() -> None:
    names = [f"{number:x<127}" for number in range(496)]
    kernel = FakeKernel(*(ACKNOWLEDGED[:8] + bytes([number]) + ACKNOWLEDGED[9:] for number in (1, 2, 3)))

    Links(kernel).remove_altnames(11, names)  # type: ignore[arg-type]

    assert all(len(request) < 1 << 16 for request in kernel.sent)
    assert sum(request.count(b"x\0") for request in kernel.sent) == len(names)


def an_answer(facts: bytes) -> bytes:
    return encode(16, 2, 1, link_message(9) + facts)
