"""Steps that change the kernel's state, as values. `railnet.vf.attachment_plan`, `railnet.vf.provision` and `railnet.vf.orphan_rescue` plan them, `railnet.kernel.perform` does them."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import NamedTuple

from railnet.vf.guid import Guid
from railnet.vf.mac import Mac
from railnet.vf.pci_address import PciAddress
from railnet.vf.restored_link_settings import Settings

IpInterface = IPv4Interface | IPv6Interface


class Route(NamedTuple):
    """A route of a sandbox through one of its rails; on-link if there is no gateway."""

    destination: IPv4Network | IPv6Network
    gateway: IPv4Address | IPv6Address | None


class Given(NamedTuple):
    """The addresses and routes that one rail of a sandbox is given."""

    addresses: tuple[IpInterface, ...] = ()
    routes: tuple[Route, ...] = ()


class Ipv4Settings(NamedTuple):
    """Settings of a link of one namespace: net.ipv4.conf.<link> (Documentation/networking/ip-sysctl.rst)."""

    arp_ignore: int
    arp_announce: int
    rp_filter: int


class Rule(NamedTuple):
    """A rule of a sandbox: packets from this address use this routing table."""

    source: IPv4Address | IPv6Address
    table: int


class RailRouting(NamedTuple):
    """The routing that keeps one of a sandbox's several rails apart from the others.

    `table` is the rail's routing table. `sources` are the rail's addresses whose packets use it, and `routes` are what is in it;
    both are empty if the main table leads all packets to the right rail.
    """

    ipv4: Ipv4Settings
    table: int
    sources: tuple[IPv4Address | IPv6Address, ...] = ()
    routes: tuple[Route, ...] = ()

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Return the rules that lead to the table."""
        return tuple(Rule(source, self.table) for source in self.sources)


@dataclass(frozen=True, slots=True)
class MoveLinkIn:
    """Move a VF's netdev from the node's namespace into the sandbox's, as `ifname`, with this MTU (bytes), and bring it up.

    `ipv4` are settings that it gets there, if it needs any. Undone by `MoveLinkOut`: a netdev has none of them in another namespace.
    """

    vf: PciAddress
    ifindex: int
    host_ifname: str
    ifname: str
    mtu: int
    ipv4: Ipv4Settings | None = None


@dataclass(frozen=True, slots=True)
class ConfigureLink:
    """Add addresses and routes to the moved netdev; moving it out undoes that."""

    ifname: str
    addresses: tuple[IpInterface, ...]
    routes: tuple[Route, ...] = ()


@dataclass(frozen=True, slots=True)
class RouteBySource:
    """Fill a rail's routing table, and lead the packets from the rail's addresses to it.

    Moving the netdev out empties the table; `RemoveRules` undoes the rest.
    """

    ifname: str
    routing: RailRouting


@dataclass(frozen=True, slots=True)
class RemoveRules:
    """Remove rules of a sandbox: unlike routes, they stay when the netdev is moved out. A rule that is gone is success."""

    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class MoveLinkOut:
    """Move a VF's netdev back to the node's namespace, with the name that it had there, and the alias and alternative names `before`.

    With None these are not known, and stay as they are.
    """

    vf: PciAddress
    host_ifname: str
    before: Settings | None = None


@dataclass(frozen=True, slots=True)
class RenameLink:
    """Rename a netdev in the node's namespace: the kernel returned it from an ended namespace with the pod's name."""

    ifindex: int
    ifname: str


@dataclass(frozen=True, slots=True)
class ResetLink:
    """Give a VF's netdev, which is back on the node, the settings that it had before a pod had it; `before` may lack some."""

    vf: PciAddress
    ifindex: int
    before: Settings


@dataclass(frozen=True, slots=True)
class CreateVfs:
    """Create VFs on a PF without drivers; its `replaced` VFs are removed first."""

    pf: PciAddress
    count: int
    replaced: int


@dataclass(frozen=True, slots=True)
class SetGuid:
    """Set a VF's node and port GUID by MLNX_OFED's files, before its driver is bound."""

    pf: PciAddress
    index: int
    guid: Guid


@dataclass(frozen=True, slots=True)
class SetGuidByLink:
    """Set a VF's node and port GUID through its PF's netdev, before its driver is bound."""

    pf_ifindex: int
    index: int
    guid: Guid


@dataclass(frozen=True, slots=True)
class SetMac:
    """Set an Ethernet VF's MAC through its PF's netdev, before its driver is bound."""

    pf_ifindex: int
    index: int
    mac: Mac


@dataclass(frozen=True, slots=True)
class BringUp:
    """Set a PF's netdev up: only then do Intel's PFs answer the drivers of their VFs (igbvf_probe(), igbvf/netdev.c)."""

    pf_ifindex: int


@dataclass(frozen=True, slots=True)
class AllowDrivers:
    """Allow drivers for a PF's VFs again; VFs that exist already are not probed by this.

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
    """Unbind a VF from its driver and bind it again: its netdev and RDMA device are new, with other numbers."""

    vf: PciAddress
    driver: str


AttachStep = MoveLinkIn | ConfigureLink | RouteBySource
DetachStep = MoveLinkOut | RemoveRules | RenameLink
PfStep = CreateVfs | SetGuid | SetGuidByLink | BringUp | SetMac | AllowDrivers
ProvisionStep = PfStep | BindDriver
