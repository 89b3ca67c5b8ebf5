"""The files that the kernel has for an HCA in sysfs, with their exact content.

Pure: a tree is a mapping from a path, below the described directory, to a file's text or a `Symlink`. `sysfs_tree` writes
it to disk, `hca` updates it. Formats: Documentation/ABI/{testing/sysfs-bus-pci,stable/sysfs-class-infiniband}, and dumps
of ConnectX-7 nodes.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress
from simnode.hardware.pf_properties import Model, SimulatedPf, bridges

DRIVER = "mlx5_core"
_MELLANOX = 0x15B3
_SUBSYSTEM = 0x0023
_CLASS_INFINIBAND = 0x020700  # include/linux/pci_ids.h, PCI_CLASS_NETWORK_INFINIBAND with interface 0
_ARPHRD_INFINIBAND = 32  # include/uapi/linux/if_arp.h
_IPOIB_BROADCAST = "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff"
_LINK_LOCAL_PREFIX = "fe80:0000:0000:0000"
_NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
_GIDS = 8
_PKEYS = 16
_COUNTERS = (
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
)
_HW_COUNTERS = ("local_ack_timeout_err", "out_of_sequence", "packet_seq_err", "rnr_nak_retry_err")


class Symlink(NamedTuple):
    """A symbolic link to an absolute path below the sysfs root, `/devices/…`; on disk it is relative, as in sysfs."""

    target: str


Tree = dict[str, "str | Symlink"]


class NetdevAttributes(NamedTuple):
    """A netdev as the kernel shows it; `mtu` in bytes, `flags` are IFF_*."""

    name: str
    ifindex: int
    mtu: int
    flags: int


class RdmaAttributes(NamedTuple):
    """An RDMA device: its name, the number of its character devices, its GUIDs, its ports, and the state of those that are cabled."""

    name: str
    number: int
    model: Model
    node_guid: Guid
    port_guid: Guid
    active: bool
    lid: int
    ports: tuple[int, ...] = (1,)
    data_ports: tuple[int, ...] = (1,)


def device_path(pf: SimulatedPf, address: PciAddress) -> str:
    """Return the directory, below the sysfs root, of the function with this address: the PF or one of its VFs."""
    return f"/devices/{bridges(pf.address)}/{address}"


def relative(target: str, link: str) -> str:
    """Return a link's target as kernfs writes it: up to the common directory, then down (kernfs_get_target_path)."""
    target_parents, link_parents = PurePosixPath(target).parent.parts, PurePosixPath(link).parent.parts
    shared = sum(1 for _ in _common(target_parents, link_parents))
    down = PurePosixPath(target).parts[shared:]
    return "/".join([".."] * (len(link_parents) - shared) + list(down))


def _common(left: tuple[str, ...], right: tuple[str, ...]) -> Iterator[str]:
    for one, other in zip(left, right, strict=False):
        if one != other:
            return
        yield one


def _lines(**values: object) -> Tree:
    return {name: f"{value}\n" for name, value in values.items()}


def pci_function(address: PciAddress, model: Model, numa_node: int) -> Tree:
    """Return the files that both PFs and VFs have, without a driver."""
    modalias = (
        f"pci:v{_MELLANOX:08X}d{model.device:08X}sv{_MELLANOX:08X}sd{_SUBSYSTEM:08X}"
        f"bc{_CLASS_INFINIBAND >> 16:02X}sc{_CLASS_INFINIBAND >> 8 & 0xFF:02X}i{_CLASS_INFINIBAND & 0xFF:02X}"
    )
    return _lines(
        vendor=f"{_MELLANOX:#06x}",
        device=f"{model.device:#06x}",
        subsystem_vendor=f"{_MELLANOX:#06x}",
        subsystem_device=f"{_SUBSYSTEM:#06x}",
        revision="0x00",
        numa_node=numa_node,
        local_cpulist="0-31,64-95",
        enable=1,
        driver_override="(null)",
        modalias=modalias,
        current_link_speed="32.0 GT/s PCIe",
        current_link_width=16,
        max_link_speed="32.0 GT/s PCIe",
        max_link_width=16,
    ) | {
        "class": f"{_CLASS_INFINIBAND:#08x}\n",
        "subsystem": Symlink("/bus/pci"),
        "uevent": uevent(address, model, driver=None),
    }


def uevent(address: PciAddress, model: Model, driver: str | None) -> str:
    """Return the content of a function's `uevent` file; without a driver, the line DRIVER is missing."""
    return (f"DRIVER={driver}\n" if driver else "") + (
        f"PCI_CLASS={_CLASS_INFINIBAND:X}\nPCI_ID={_MELLANOX:04X}:{model.device:04X}\n"
        f"PCI_SUBSYS_ID={_MELLANOX:04X}:{_SUBSYSTEM:04X}\nPCI_SLOT_NAME={address}\n"
        f"MODALIAS=pci:v{_MELLANOX:08X}d{model.device:08X}sv{_MELLANOX:08X}sd{_SUBSYSTEM:08X}bc02sc07i00\n"
    )


def pf_sriov(pf: SimulatedPf, vf_model: Model) -> Tree:
    """Return the files of a PF's SR-IOV capability, with no VF enabled."""
    return _lines(
        sriov_totalvfs=pf.totalvfs,
        sriov_numvfs=0,
        sriov_offset=pf.offset,
        sriov_stride=pf.stride,
        sriov_vf_device=f"{vf_model.device:x}",
        sriov_drivers_autoprobe=1,
        sriov_vf_total_msix=0,
    )


def ofed_vf(node: Guid, port: Guid, policy: str) -> Tree:
    """Return the folder `sriov/<n>` that MLNX_OFED has for one VF."""
    return _lines(node=node, port=port, policy=policy)


def ipoib_address(port_guid: Guid, ifindex: int) -> str:
    """Return an IPoIB hardware address: a flags byte, a queue pair (a new one at each bind), subnet prefix, port GUID."""
    return f"00:{(0x100 + ifindex).to_bytes(3, 'big').hex(':')}:fe:80:00:00:00:00:00:00:{port_guid}"


def netdev(attributes: NetdevAttributes, port_guid: Guid, device: str, *, active: bool) -> Tree:
    """Return the folder `net/<name>` of a function whose directory is `device`."""
    return netdev_state(attributes, active=active) | {
        **_lines(
            ifindex=attributes.ifindex,
            iflink=attributes.ifindex,
            type=_ARPHRD_INFINIBAND,
            addr_len=20,
            address=ipoib_address(port_guid, attributes.ifindex),
            broadcast=_IPOIB_BROADCAST,
            tx_queue_len=256,
            dev_id="0x0",
            dev_port=0,
            mode="datagram",
            pkey="0xffff",
            umcast=0,
            name_assign_type=4,
        ),
        "device": Symlink(device),
        "subsystem": Symlink("/class/net"),
        "uevent": f"INTERFACE={attributes.name}\nIFINDEX={attributes.ifindex}\n",
    }


def netdev_state(attributes: NetdevAttributes, *, active: bool) -> Tree:
    """Return the files of a netdev that change; `carrier` and `speed` can be read only while the netdev is up."""
    up = bool(attributes.flags & 1)
    carrier = _lines(carrier=int(active), speed=400000 if active else -1) if up else {}
    return carrier | _lines(
        mtu=attributes.mtu,
        flags=f"{attributes.flags:#x}",
        operstate="up" if up and active else "down",
    )


def rdma_device(attributes: RdmaAttributes, device: str) -> Tree:
    """Return the folder `infiniband/<name>` of a function whose directory is `device`."""
    return {
        **_lines(
            node_guid=attributes.node_guid.quads,
            sys_image_guid=attributes.node_guid.quads,
            node_type="1: CA",
            node_desc=f"simnode {attributes.name}",
            fw_ver="28.39.1002",
            hca_type=attributes.model.hca_type,
            board_id="MT_0000000838",
            hw_rev=0,
        ),
        "device": Symlink(device),
        "subsystem": Symlink("/class/infiniband"),
        **{
            f"ports/{number}/{name}": entry
            for number in attributes.ports
            for name, entry in port(attributes, number).items()
        },
    }


def port(attributes: RdmaAttributes, number: int) -> Tree:
    """Return the folder `ports/<number>` of an RDMA device."""
    gid = f"{_LINK_LOCAL_PREFIX}:{attributes.port_guid.quads}"
    return {
        **port_state(attributes, number),
        **_lines(
            link_layer="InfiniBand", sm_lid="0x2", sm_sl=0, lid_mask_count=0, cap_mask="0xa651e848", cap_mask2="0x0000"
        ),
        **{f"gids/{index}": f"{gid if index == 0 else _NO_GID}\n" for index in range(_GIDS)},
        **{f"pkeys/{index}": "0xffff\n" if index == 0 else "0x0000\n" for index in range(_PKEYS)},
        "gid_attrs/types/0": "IB/RoCE v1\n",
        **{f"counters/{name}": "0\n" for name in _COUNTERS},
        **{f"hw_counters/{name}": "0\n" for name in _HW_COUNTERS},
        "hw_counters/lifespan": "10\n",
    }


def port_state(attributes: RdmaAttributes, number: int) -> Tree:
    """Return the files of a port that change when the subnet manager sets the port up or the cable is unplugged."""
    if attributes.active and number in attributes.data_ports:
        state = _lines(
            state="4: ACTIVE", phys_state="5: LinkUp", rate="400 Gb/sec (4X NDR)", lid=f"{attributes.lid:#x}"
        )
    else:
        state = _lines(state="1: DOWN", phys_state="3: Disabled", rate="10 Gb/sec (4X SDR)", lid="0x0")
    return state
