"""These decide how well RoCE works on a port: its GIDs, its MTU, and which of its traffic is lossless. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Literal, NamedTuple

# iboe_get_mtu(), include/rdma/ib_addr.h: a packet's headers for Ethernet, GRH 40, UDP 8, BTH 12, XRC 4, AtomicETH 28, ICRC 4.
_HEADERS = 96
_MTUS = (4096, 2048, 1024, 512, 256)  # enum ib_mtu, include/rdma/ib_verbs.h
# gid_type_str, drivers/infiniband/core/cache.c. A GID of version 1 is used without IP, so that routers drop its packets.
VERSIONS: Mapping[str, Literal[1, 2]] = {"IB/RoCE v1": 1, "RoCE v2": 2}


@dataclass(frozen=True, slots=True)
class Gid:
    """One used entry of a port's GID table. An IPv4 address is mapped: ::ffff:10.58.0.1."""

    index: int
    address: IPv6Address
    version: Literal[1, 2]

    @property
    def ip(self) -> IPv4Address | IPv6Address:
        """Return the IP address that made the GID."""
        return self.address.ipv4_mapped or self.address


class FlowControl(NamedTuple):
    """The lossless priorities of a netdev (IEEE 802.1Qbb), and whether a packet's priority follows from its DSCP."""

    priorities: tuple[int, ...]
    by_dscp: bool


@dataclass(frozen=True, slots=True)
class RocePort:
    """One function's RoCE port has these.

    `traffic_class` is the driver's own setting for all connections; None where the driver has no file for it, as upstream's.
    """

    gids: tuple[Gid, ...]
    traffic_class: str | None = None


def rdma_mtu(mtu: int) -> int | None:
    """Return the most bytes that one RoCE packet carries over a netdev of this MTU in bytes; None if the MTU is too small for any."""
    return next((ib_mtu for ib_mtu in _MTUS if mtu - _HEADERS >= ib_mtu), None)


def routable(gids: Iterable[Gid]) -> Gid | None:
    """Return the GID of RoCE v2 by which other subnets reach the port, IPv4's first; None if there is none."""
    candidates = [gid for gid in gids if gid.version == 2 and not gid.ip.is_link_local]  # noqa: PLR2004 - RoCE v2
    return min(candidates, key=lambda gid: (gid.ip.version, gid.index), default=None)
