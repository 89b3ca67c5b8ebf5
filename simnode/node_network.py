"""The Ethernet between simulated nodes, and the routes that flanneld's host-gw backend sets on each node.

The Ethernet is a bridge in the network namespace of the calling thread, with a veth pair to `eth0` of each node.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import NamedTuple

from pyroute2 import IPRoute

from simnode.linux import netns
from simnode.node import Node

_BRIDGE = "lan"
_ETH0 = "eth0"
MTU = 1500


class HostRoute(NamedTuple):
    """A route to the pods of another node: their subnet, and the address of the node that forwards to them."""

    subnet: IPv4Network
    gateway: IPv4Address


def connect(nodes: Iterable[tuple[str, int]]) -> None:
    """Make the bridge with a port for each node; a node is its name and the id of a process in its network namespace."""
    with IPRoute() as route:
        route.link("add", ifname=_BRIDGE, kind="bridge")
        (bridge,) = route.link_lookup(ifname=_BRIDGE)
        route.link("set", index=bridge, state="up")
        for name, pid in nodes:
            route.link("add", ifname=name, kind="veth", peer={"ifname": _ETH0, "net_ns_pid": pid})
            (port,) = route.link_lookup(ifname=name)
            route.link("set", index=port, master=bridge, state="up")


def disconnect() -> None:
    """Delete the bridge; the kernel deletes each port with its node."""
    with IPRoute() as route:
        route.link("del", ifname=_BRIDGE)


def configure(_node: Node, address: IPv4Interface, routes: Iterable[HostRoute]) -> None:
    """Configure a node as its administrator and flanneld do: address, routes to the pods of other nodes, IP forwarding."""
    netns.FORWARD.write_text("1")
    with IPRoute() as route:
        (index,) = route.link_lookup(ifname=_ETH0)
        route.addr("add", index=index, address=str(address.ip), prefixlen=address.network.prefixlen)
        route.link("set", index=index, mtu=MTU, state="up")
        for subnet, gateway in routes:
            route.route("add", dst=str(subnet), gateway=str(gateway), oif=index)
