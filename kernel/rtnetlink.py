"""Links and addresses through rtnetlink, in the network namespace of the calling thread.

Links are addressed by ifindex: names change under udev's hands. No request asks for VF information (RTEXT_FILTER_VF):
affected kernels answer EMSGSIZE for an InfiniBand PF with 16 VFs or more.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Interface, IPv6Interface
from typing import Any, NamedTuple

from pyroute2 import IPRoute, NetlinkError

IpInterface = IPv4Interface | IPv6Interface


class Link(NamedTuple):
    """A link. `alias` is what somebody wrote on it (IFLA_IFALIAS); it stays when the link changes name or namespace.

    `parent` is the PCI address of its device, None for virtual ones and before kernel 5.14 (00e77ed8e64d); `kind` is
    IFLA_INFO_KIND, such as veth or tun, None for most drivers' links.
    """

    ifindex: int
    ifname: str
    alias: str | None
    parent: str | None
    kind: str | None


@contextmanager
def links() -> Iterator["Links"]:
    """Open rtnetlink in the calling thread's namespace; closed at the end, for an open one pins the namespace."""
    with IPRoute() as route:
        yield Links(route)


class Links:
    """The links of one namespace. A failure is an OSError with the kernel's errno and what was asked of which link."""

    def __init__(self, route: Any) -> None:
        self._route = route

    def listed(self) -> tuple[Link, ...]:
        """List the links of the namespace."""
        with _named("list links"):
            return tuple(
                Link(
                    link["index"],
                    link.get_attr("IFLA_IFNAME"),
                    link.get_attr("IFLA_IFALIAS"),
                    link.get_attr("IFLA_PARENT_DEV_NAME"),
                    link.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND"),
                )
                for link in self._route.link("dump")
            )

    def permanent_address(self, ifindex: int) -> str:
        """Read the hardware address a link came with, which bonding does not change; the present one where none is told."""
        with _named(f"read link {ifindex}"):
            (link,) = self._route.link("get", index=ifindex)
            return str(link.get_attr("IFLA_PERM_ADDRESS") or link.get_attr("IFLA_ADDRESS"))

    def move(self, ifindex: int, netns_fd: int, ifname: str) -> None:
        """Move a link into another namespace under a new name, in one message: udev never sees it there under the old.

        The kernel takes the link down, drops its addresses and may give it another ifindex. It moves first and renames
        then: when the name is taken there, this fails and **the link has moved**, under its old name.

        Raises:
            OSError: EEXIST, the name is taken there; ENODEV, the link is gone.

        Source: IFLA_NET_NS_FD with IFLA_IFNAME, do_setlink() in net/core/rtnetlink.c.
        """
        with _named(f"move link {ifindex} to another namespace as {ifname!r}"):
            self._route.link("set", index=ifindex, net_ns_fd=netns_fd, ifname=ifname)

    def rename(self, ifindex: int, ifname: str) -> None:
        """Rename a link, which must be down on kernels before 6.2 (bd039b5ea2a9, live renaming)."""
        with _named(f"rename link {ifindex} to {ifname!r}"):
            self._route.link("set", index=ifindex, state="down")
            self._route.link("set", index=ifindex, ifname=ifname)

    def set_alias(self, ifindex: int, alias: str) -> None:
        """Write on a link; `ip link` shows it."""
        with _named(f"set alias {alias!r} on link {ifindex}"):
            self._route.link("set", index=ifindex, ifalias=alias)

    def set_mtu(self, ifindex: int, mtu: int) -> None:
        """Set the MTU in bytes; ERANGE or EINVAL above what the driver allows."""
        with _named(f"set MTU {mtu} on link {ifindex}"):
            self._route.link("set", index=ifindex, mtu=mtu)

    def add_address(self, ifindex: int, address: IpInterface) -> None:
        """Add an address with its on-link prefix; one that is there already is fine."""
        with _named(f"add {address} to link {ifindex}"):
            self._route.addr("replace", index=ifindex, address=str(address.ip), prefixlen=address.network.prefixlen)

    def set_up(self, ifindex: int) -> None:
        """Bring a link up."""
        with _named(f"set link {ifindex} up"):
            self._route.link("set", index=ifindex, state="up")


@contextmanager
def _named(operation: str) -> Iterator[None]:
    try:
        yield
    except NetlinkError as error:
        # pyroute2's NetlinkError is no OSError; its text is the kernel's, `code` the errno.
        raise OSError(error.code, f"{operation}: {error.args[-1]}") from None
