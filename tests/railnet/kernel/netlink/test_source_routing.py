"""Rules and routing tables: the bytes of requests, and the parsing of answers. The node and vm tiers test the kernel's actions."""

from collections.abc import Callable
from errno import EAFNOSUPPORT, EEXIST, ENOENT, EOPNOTSUPP, EPERM
from ipaddress import ip_address, ip_network

import pytest

from railnet.kernel.netlink import source_routing
from railnet.kernel.netlink.protocol import attributes, encode, u32
from railnet.kernel.netlink.rtnetlink import Links
from railnet.vf.steps import Ipv4Settings, Route, Rule
from tests.railnet.kernel.netlink.test_rdma_netns_mode import ACKNOWLEDGED, DONE, FakeKernel, refused

RULE, RULE6 = Rule(ip_address("10.56.3.1"), 5601), Rule(ip_address("fd00::1"), 5601)
RANGE = Route(ip_network("10.56.0.0/16"), None)
PRIORITY = 5600  # 0x15e0

# Bytes of a little-endian kernel, written by hand. Header: length, type, flags, sequence number, port id. Then struct fib_rule_hdr:
# family, lengths of destination and source, tos, table, two reserved bytes, action, flags; or rtmsg. Then attributes.
REQUESTS: dict[str, tuple[Callable[[Links], object], str]] = {
    "add IPv4": (
        lambda links: source_routing.add_rule(links, RULE, PRIORITY),
        "34000000 2000 0506 01000000 00000000  02002000 00000001 00000000  08000200 0a380301  08000600 e0150000  08000f00 e1150000",
    ),
    "add IPv6": (
        lambda links: source_routing.add_rule(links, RULE6, PRIORITY),
        "40000000 2000 0506 01000000 00000000  0a008000 00000001 00000000  14000200 fd000000000000000000000000000001  08000600 e0150000  08000f00 e1150000",
    ),
    "remove": (
        lambda links: source_routing.remove_rule(links, RULE, PRIORITY),
        "34000000 2100 0500 01000000 00000000  02002000 00000001 00000000  08000200 0a380301  08000600 e0150000  08000f00 e1150000",
    ),
    "route in a table": (
        lambda links: links.add_route(11, RANGE, 5601),
        "34000000 1800 0505 01000000 00000000  02100000 0004fd01 00000000  08000100 0a380000  08000400 0b000000  08000f00 e1150000",
    ),
    "move with settings": (
        lambda links: links.move_up(11, 7, "net1", 4092, Ipv4Settings(arp_ignore=1, arp_announce=2, rp_filter=2)),
        "60000000 1000 0500 01000000 00000000  00000000 0b000000 01000000 01000000  08001c00 07000000  08000400 fc0f0000  09000300 6e65743100 000000  24001a80 20000280 1c000180  08001300 01000000  08001200 02000000  08000800 02000000",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("ask", "sent"), REQUESTS.values(), ids=REQUESTS.keys())
def test_request_has_these_bytes(ask: Callable[[Links], object], sent: str) -> None:
    kernel = FakeKernel(ACKNOWLEDGED)

    ask(Links(kernel))

    assert kernel.sent == [bytes.fromhex(sent)]


def test_rule_that_is_there_already_is_no_error() -> None:
    source_routing.add_rule(Links(FakeKernel(refused(EEXIST))), RULE, PRIORITY)


@pytest.mark.parametrize("error", [ENOENT, EOPNOTSUPP, EAFNOSUPPORT])
def test_rule_that_is_gone_or_that_the_kernel_cannot_have_is_no_error(error: int) -> None:
    source_routing.remove_rule(Links(FakeKernel(refused(error))), RULE, PRIORITY)


def test_rule_that_the_kernel_keeps_is_an_error() -> None:
    with pytest.raises(PermissionError):
        source_routing.remove_rule(Links(FakeKernel(refused(EPERM))), RULE, PRIORITY)


def a_rule(family: int, source: str, priority: int = PRIORITY, action: int = 1, length: int | None = None) -> bytes:
    packed = ip_address(source).packed
    header = bytes((family, 0, 8 * len(packed) if length is None else length, 0, 0, 0, 0, action, 0, 0, 0, 0))
    return encode(32, 2, 1, header + attributes((2, packed), (6, u32(priority)), (15, u32(5601))))


@pytest.mark.parametrize("number", [b"", b"\0\0\0", b"\0" * 5, b"\xff" * 5000], ids=len)
@pytest.mark.parametrize("kind", [6, 15], ids=["priority", "table"])
def test_rule_with_a_number_that_is_no_u32_is_none_of_ours(kind: int, number: bytes) -> None:
    header = bytes((2, 0, 32, 0, 0, 0, 0, 1, 0, 0, 0, 0))
    numbers = {6: u32(PRIORITY), 15: u32(5601), kind: number}
    odd = encode(32, 2, 1, header + attributes((2, RULE.source.packed), *numbers.items()))

    assert source_routing.rules(Links(FakeKernel(odd, DONE)), PRIORITY) == frozenset()


def test_rules_are_those_of_the_priority_that_lead_from_an_address_to_a_table() -> None:
    of_main = encode(
        32, 2, 1, bytes((2, 0, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0)) + attributes((6, u32(32766)), (15, u32(254)))
    )
    others = (
        of_main,
        a_rule(2, "10.56.3.2", priority=5599),
        a_rule(2, "10.56.3.2", action=6),  # FR_ACT_BLACKHOLE
        a_rule(2, "10.56.3.0", length=24),
        a_rule(128, "10.56.3.2"),  # RTNL_FAMILY_IPMR
    )
    kernel = FakeKernel(b"".join((a_rule(2, "10.56.3.1"), *others, a_rule(10, "fd00::1"))), DONE)

    assert source_routing.rules(Links(kernel), PRIORITY) == {RULE, RULE6}


def a_route(family: int, length: int, *found: tuple[int, bytes]) -> bytes:
    return encode(24, 2, 1, bytes((family, length, 0, 0, 0, 4, 253, 1, 0, 0, 0, 0)) + attributes(*found))


def test_routes_are_those_of_the_link_and_the_tables() -> None:
    ours, gateway = ((4, u32(11)), (15, u32(5601))), ip_address("10.61.0.1")
    answers = (
        a_route(2, 16, (1, ip_address("10.56.0.0").packed), *ours),
        a_route(2, 16, (1, ip_address("10.57.0.0").packed), (4, u32(12)), (15, u32(5601))),
        a_route(2, 16, (1, ip_address("10.58.0.0").packed), (4, u32(11)), (15, u32(254))),
        a_route(2, 0, (5, gateway.packed), *ours),
        a_route(10, 64, (1, ip_address("fd00::").packed), *ours),
        a_route(2, 16),  # without a link or a table
        a_route(28, 20, *ours),  # AF_MPLS
    )

    assert source_routing.routes(Links(FakeKernel(b"".join(answers), DONE)), 11, frozenset({5601})) == {
        (5601, RANGE),
        (5601, Route(ip_network("0.0.0.0/0"), gateway)),
        (5601, Route(ip_network("fd00::/64"), None)),
    }


def test_settings_of_a_link_are_read_from_the_kernels_array() -> None:
    array = b"".join(u32(number) for number in range(1, 34))  # the value of each setting is its number
    spec = attributes((26, attributes((2, attributes((1, array))), (10, b""))))
    head = bytes.fromhex("0000 2000 0b000000 41000000 00000000  09000300 6e65743100 000000  08000400 fc0f0000")

    facts = Links(FakeKernel(encode(16, 0, 1, head + spec), ACKNOWLEDGED)).facts(11)

    assert facts.ipv4 == Ipv4Settings(arp_ignore=19, arp_announce=18, rp_filter=8)
