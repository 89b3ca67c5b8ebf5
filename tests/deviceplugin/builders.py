"""A node with InfiniBand rails, with defaults, built from the facts that a test sets."""

from dataclasses import replace
from typing import Any

from railnet.vf.guid import Guid
from railnet.vf.inventory import DeviceNode, Inventory, Netdev, PhysicalFunction, Port, RdmaDevice, VirtualFunction
from railnet.vf.pci_address import PciAddress

ACTIVE = Port(state="4: ACTIVE", phys_state="5: LinkUp", link_layer="InfiniBand")
DOWN = Port(state="1: DOWN", phys_state="3: Disabled", link_layer="InfiniBand")


def an_rdma_device(number: int, port: Port = DOWN, **changes: Any) -> RdmaDevice:
    device = RdmaDevice(
        name=f"mlx5_{number}",
        node_guid=Guid(0xB8599F030000 + number),
        port=port,
        uverbs=DeviceNode(f"uverbs{number}", 231, 192 + number),
        umad=DeviceNode(f"umad{number}", 231, number),
        issm=DeviceNode(f"issm{number}", 231, 64 + number),
    )
    return replace(device, **changes)


def a_vf(address: str = "0000:03:00.1", number: int = 1, **changes: Any) -> VirtualFunction:
    parsed = PciAddress.parse(address)
    vf = VirtualFunction(
        address=parsed,
        index=number - 1,
        pf=parsed._replace(function=0),
        vendor="0x15b3",
        device="0x101e",
        class_code=0x020700,
        driver="mlx5_core",
        numa_node=0,
        netdev=Netdev(name=f"ib{number}", ifindex=100 + number, mtu=4092),
        rdma=an_rdma_device(number),
    )
    return replace(vf, **changes)


def a_pf(*vfs: VirtualFunction, address: str = "0000:03:00.0", **changes: Any) -> PhysicalFunction:
    pf = PhysicalFunction(
        address=PciAddress.parse(address),
        vendor="0x15b3",
        device="0x1021",
        class_code=0x020700,
        driver="mlx5_core",
        numa_node=0,
        totalvfs=16,
        numvfs=len(vfs),
        netdev=Netdev(name="ibs5", ifindex=12, mtu=4092),
        rdma=an_rdma_device(0, ACTIVE),
        ofed_guid_files=False,
        vfs=vfs,
    )
    return replace(pf, **changes)


def two_rails() -> Inventory:
    """Return two PFs with two VFs each. The RDMA numbers are in the reverse of the PCI order, which is possible on a real node."""
    first = a_pf(a_vf("0000:03:00.1", 4), a_vf("0000:03:00.2", 3))
    second = a_pf(a_vf("0000:83:00.1", 2, numa_node=1), a_vf("0000:83:00.2", 1, numa_node=-1), address="0000:83:00.0")
    return Inventory((first, second))
