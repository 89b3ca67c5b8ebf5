"""What is decided about RoCE: the MTU of its packets, and the GID that other subnets reach."""

from ipaddress import IPv6Address
from typing import Literal

import pytest

from railnet.fabric.roce import Gid, rdma_mtu, routable


@pytest.mark.parametrize(
    ("mtu", "expected"),
    [(9000, 4096), (4192, 4096), (4191, 2048), (1500, 1024), (1119, 512), (352, 256), (351, None), (0, None)],
)
def test_rdma_mtu_of_a_netdev(mtu: int, expected: int | None) -> None:
    assert rdma_mtu(mtu) == expected


def a_gid(index: int, address: str, version: Literal[1, 2] = 2) -> Gid:
    return Gid(index, IPv6Address(address), version)


LOCAL_1, LOCAL_2 = a_gid(0, "fe80::1", 1), a_gid(1, "fe80::1")
IPV4_1, IPV4_2 = a_gid(2, "::ffff:10.58.0.1", 1), a_gid(3, "::ffff:10.58.0.1")
IPV6_2 = a_gid(5, "fd00:58::1")


@pytest.mark.parametrize(
    ("gids", "expected"),
    [
        ((LOCAL_1, LOCAL_2, IPV4_1, IPV4_2), IPV4_2),
        ((IPV6_2, IPV4_2), IPV4_2),
        ((IPV4_2, a_gid(7, "::ffff:10.58.0.2")), IPV4_2),
        ((LOCAL_2, IPV6_2), IPV6_2),
        ((LOCAL_2, a_gid(3, "::ffff:169.254.0.7")), None),
        ((LOCAL_1, LOCAL_2, IPV4_1), None),
        ((), None),
    ],
)
def test_gid_that_other_subnets_reach(gids: tuple[Gid, ...], expected: Gid | None) -> None:
    assert routable(gids) == expected
