"""Changes of the kernel's state, as values: what a plan consists of and `kernel.perform` does."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import NamedTuple

from vf.address import PciAddress
from vf.guid import Guid
from vf.mac import Mac

IpInterface = IPv4Interface | IPv6Interface


class Route(NamedTuple):
    """A route of a sandbox through one of its rails; on-link where there is no gateway."""

    destination: IPv4Network | IPv6Network
    gateway: IPv4Address | IPv6Address | None


class Given(NamedTuple):
    """What one of a sandbox's rails is given."""

    addresses: tuple[IpInterface, ...] = ()
    routes: tuple[Route, ...] = ()


@dataclass(frozen=True, slots=True)
class MoveLinkIn:
    """Move a VF's netdev from the node's namespace into the sandbox's, as `ifname`, with this MTU (bytes), and bring it up.

    Undone by `MoveLinkOut`.
    """

    vf: PciAddress
    ifindex: int
    host_ifname: str
    ifname: str
    mtu: int


@dataclass(frozen=True, slots=True)
class ConfigureLink:
    """Return the moved netdev its addresses and routes; moving it out undoes all of it."""

    ifname: str
    addresses: tuple[IpInterface, ...]
    routes: tuple[Route, ...] = ()


@dataclass(frozen=True, slots=True)
class MoveLinkOut:
    """Move a VF's netdev back to the node's namespace under the name it had there."""

    vf: PciAddress
    host_ifname: str


@dataclass(frozen=True, slots=True)
class RenameLink:
    """Return a netdev in the node's namespace back its name: the kernel returned it from a namespace that died."""

    ifindex: int
    ifname: str


@dataclass(frozen=True, slots=True)
class CreateVfs:
    """Make VFs on a PF, with no driver probing them yet; `replaced` are removed first."""

    pf: PciAddress
    count: int
    replaced: int


@dataclass(frozen=True, slots=True)
class SetGuid:
    """Return a VF its node and port GUID by MLNX_OFED's files, before its driver is bound."""

    pf: PciAddress
    index: int
    guid: Guid


@dataclass(frozen=True, slots=True)
class SetGuidByLink:
    """Return a VF its node and port GUID through its PF's netdev, before its driver is bound."""

    pf_ifindex: int
    index: int
    guid: Guid


@dataclass(frozen=True, slots=True)
class SetMac:
    """Return an Ethernet VF its MAC through its PF's netdev, before its driver is bound."""

    pf_ifindex: int
    index: int
    mac: Mac


@dataclass(frozen=True, slots=True)
class BringUp:
    """Bring a PF's netdev up: Intel's answer their VFs' drivers only then (igbvf_probe(), igbvf/netdev.c)."""

    pf_ifindex: int


@dataclass(frozen=True, slots=True)
class AllowDrivers:
    """Let a PF's VFs have drivers again; VFs that exist already are not probed by it.

    Without it the kernel refuses even an explicit bind with ENODEV (pci_device_can_probe(), drivers/pci/pci-driver.c).
    """

    pf: PciAddress


@dataclass(frozen=True, slots=True)
class BindDriver:
    """Bind a VF to a driver, which probes it."""

    vf: PciAddress
    driver: str


@dataclass(frozen=True, slots=True)
class ProbeAgain:
    """Take a VF from its driver and bind it anew: its netdev and RDMA device are made again, with other numbers."""

    vf: PciAddress
    driver: str


AttachStep = MoveLinkIn | ConfigureLink
DetachStep = MoveLinkOut | RenameLink
PfStep = CreateVfs | SetGuid | SetGuidByLink | BringUp | SetMac | AllowDrivers
ProvisionStep = PfStep | BindDriver
