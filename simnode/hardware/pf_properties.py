"""The properties of a simulated PF, and the PCI addresses of the PF and its VFs; the defaults are those of a ConnectX-7.

This module has only values; `sysfs_content` has their files, `hca` and `pf` have their behaviour.
"""

from dataclasses import dataclass
from typing import NamedTuple

from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress

_BUSES_PER_ROOT = 0x20  # arbitrary: one host bridge for 32 buses, as large machines have one per socket or quadrant


class Model(NamedTuple):
    """The model of an HCA's function: the PCI device id, and the `hca_type` of its RDMA device."""

    device: int
    hca_type: str


PF_MODEL = Model(0x1021, "MT4129")
VF_MODEL = Model(0x101E, "MT4126")


@dataclass(frozen=True, slots=True)
class SimulatedPf:
    """A PF as the machine has it at boot.

    Attributes:
        address: its PCI address.
        guid: its node GUID and port GUID.
        netdev: the name of its IPoIB netdev; the netdevs of its VFs have `v0`, `v1`… appended.
        numa_node: -1 if the firmware names none.
        totalvfs: the number of VFs that can be enabled.
        numvfs: the number of VFs that are enabled (and bound, without GUIDs) at boot.
        offset: First VF Offset of the SR-IOV capability.
        stride: VF Stride of the SR-IOV capability.
        ports: the ports of its RDMA device and of its VFs' ones; a card with several planes has many.
        data_ports: those of them that are cabled, so that they can be ACTIVE.
        model: its PCI device id and `hca_type`.
        ofed: True for the driver of MLNX_OFED, which has `sriov/<n>/{node,port,policy}`.
    """

    address: PciAddress = PciAddress(0, 3, 0, 0)
    guid: Guid = Guid(0xB8599F0300F98F86)
    netdev: str = "ibs5"
    numa_node: int = 0
    totalvfs: int = 16
    numvfs: int = 0
    offset: int = 1
    stride: int = 1
    ports: tuple[int, ...] = (1,)
    data_ports: tuple[int, ...] = (1,)
    model: Model = PF_MODEL
    ofed: bool = True

    def vf_address(self, index: int) -> PciAddress:
        """Return the address of a VF: its routing id is the PF's plus offset plus index times stride (SR-IOV 1.1, 2.1.2)."""
        routing_id = (self.address.bus << 8 | self.address.device << 3 | self.address.function) + self.offset
        routing_id += index * self.stride
        return PciAddress(self.address.domain, routing_id >> 8, routing_id >> 3 & 0x1F, routing_id & 7)


def bridges(address: PciAddress) -> str:
    """Return the path below /sys/devices above a function: host bridge, root port, upstream and downstream port of a switch."""
    domain, bus = f"{address.domain:04x}", address.bus
    root = bus - bus % _BUSES_PER_ROOT
    upstream, downstream = max(bus - 2, root), max(bus - 1, root)
    return (
        f"pci{domain}:{root:02x}/{domain}:{root:02x}:01.1/{domain}:{upstream:02x}:00.0/{domain}:{downstream:02x}:00.0"
    )
