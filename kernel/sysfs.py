"""PFs and VFs as sysfs shows them, and the few files that change them.

Everything is found from the PCI devices of a given root: a VF whose netdev and RDMA device are inside a pod is still
a VF. One pass, each file opened once, no netlink and no pci.ids.
"""

import os
import re
from pathlib import Path

from vf.address import PciAddress
from vf.function import DeviceNode, Inventory, LinkLayer, Netdev, PhysicalFunction, Port, RdmaDevice, VirtualFunction
from vf.guid import Guid

_VIRTFN = re.compile(r"virtfn(\d+)")


class Sysfs:
    """A sysfs tree at `root`, usually /sys."""

    def __init__(self, root: Path) -> None:
        self._devices = root / "bus/pci/devices"
        self._drivers = root / "bus/pci/drivers"

    def inventory(self) -> Inventory:
        """Read every SR-IOV capable PF that is a network controller, and its VFs.

        Raises:
            OSError: there is no PCI bus below the root.
        """
        addresses = sorted(PciAddress.parse(name) for name in os.listdir(self._devices))
        return Inventory(tuple(pf for pf in map(self._pf, addresses) if pf is not None))

    def reread(self, vf: VirtualFunction) -> VirtualFunction:
        """Read one VF again, without a look at any other."""
        return self._vf(vf.address, vf.index, vf.pf, vf.numa_node)

    def netdev(self, function: PciAddress) -> Netdev | None:
        """Read the netdev of one function; None while it is in another namespace, or without a driver."""
        return _netdev(self._devices / str(function))

    def set_drivers_autoprobe(self, pf: PciAddress, on: bool) -> None:
        """Say whether VFs that appear are bound to a driver at once (kernel 4.12, 0e7df22401a3)."""
        _write(self._devices / str(pf) / "sriov_drivers_autoprobe", "1" if on else "0")

    def set_numvfs(self, pf: PciAddress, count: int) -> None:
        """Make `count` VFs where there are none, or remove all with 0; EBUSY for any other change."""
        _write(self._devices / str(pf) / "sriov_numvfs", str(count))

    def set_guid(self, pf: PciAddress, vf_index: int, guid: Guid) -> None:
        """Set node and port GUID of one VF by MLNX_OFED's files, and let its link follow the port's.

        The VF's driver reads them when it is bound.

        Raises:
            OSError: ENOENT, the PF's driver has no such files.
        """
        folder = self._devices / str(pf) / "sriov" / str(vf_index)
        for name, value in (("node", str(guid)), ("port", str(guid)), ("policy", "Follow")):
            _write(folder / name, value)

    def bind(self, function: PciAddress, driver: str) -> None:
        """Bind a function to a driver; EBUSY if it has one."""
        _write(self._drivers / driver / "bind", str(function))

    def unbind(self, function: PciAddress, driver: str) -> None:
        """Take a function from its driver; its netdev and RDMA device go away."""
        _write(self._drivers / driver / "unbind", str(function))

    def _pf(self, address: PciAddress) -> PhysicalFunction | None:
        folder = self._devices / str(address)
        totalvfs = _text(folder / "sriov_totalvfs")
        class_code = int(_text(folder / "class") or "0", 16)
        if totalvfs is None or class_code >> 16 != 0x02:  # noqa: PLR2004 - PCI base class: network controller
            return None
        numa_node = _number(folder / "numa_node", -1)
        return PhysicalFunction(
            address=address,
            vendor=_id(folder / "vendor"),
            device=_id(folder / "device"),
            class_code=class_code,
            driver=_driver(folder),
            numa_node=numa_node,
            totalvfs=int(totalvfs),
            numvfs=_number(folder / "sriov_numvfs", 0),
            netdev=_netdev(folder),
            rdma=_rdma(folder),
            ofed_guid_files=(folder / "sriov").is_dir(),
            vfs=tuple(self._vf(vf, index, address, numa_node) for index, vf in _virtual_functions(folder)),
        )

    def _vf(self, address: PciAddress, index: int, pf: PciAddress, numa_node: int) -> VirtualFunction:
        folder = self._devices / str(address)
        return VirtualFunction(
            address=address,
            index=index,
            pf=pf,
            vendor=_id(folder / "vendor"),
            device=_id(folder / "device"),
            driver=_driver(folder),
            numa_node=numa_node,  # always the PF's
            netdev=_netdev(folder),
            rdma=_rdma(folder),
        )


def _virtual_functions(folder: Path) -> list[tuple[int, PciAddress]]:
    found = []
    for name in os.listdir(folder):
        if (match := _VIRTFN.fullmatch(name)) is not None:
            target = os.path.basename(os.readlink(folder / name))
            found.append((int(match[1]), PciAddress.parse(target)))
    return sorted(found)


def _netdev(folder: Path) -> Netdev | None:
    for name in _names(folder / "net"):
        ifindex, mtu = _number(folder / "net" / name / "ifindex", 0), _number(folder / "net" / name / "mtu", 0)
        if ifindex:  # else it was renamed or moved between the two looks
            return Netdev(name, ifindex, mtu)
    return None


def _rdma(folder: Path) -> RdmaDevice | None:
    for name in _names(folder / "infiniband"):
        device = folder / "infiniband" / name
        node_guid = _text(device / "node_guid")
        if node_guid is None:
            continue
        mad = {kind: _device_node(folder / "infiniband_mad", kind) for kind in ("umad", "issm")}
        return RdmaDevice(
            name=name,
            node_guid=Guid.parse(node_guid),
            port=_port(device / "ports" / "1"),
            uverbs=_device_node(folder / "infiniband_verbs", "uverbs"),
            umad=mad["umad"],
            issm=mad["issm"],
        )
    return None


def _port(folder: Path) -> Port | None:
    state, phys_state, layer = (_text(folder / name) for name in ("state", "phys_state", "link_layer"))
    if state is None or phys_state is None:
        return None
    link_layer: LinkLayer = "Ethernet" if layer == "Ethernet" else "InfiniBand"
    return Port(state, phys_state, link_layer)


def _device_node(folder: Path, kind: str) -> DeviceNode | None:
    for name in _names(folder):
        numbers = _text(folder / name / "dev") if name.startswith(kind) else None
        if numbers is not None:
            major, minor = numbers.split(":")
            return DeviceNode(name, int(major), int(minor))
    return None


def _driver(folder: Path) -> str | None:
    try:
        return os.path.basename(os.readlink(folder / "driver"))
    except FileNotFoundError:
        return None


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _id(path: Path) -> str:
    return (_text(path) or "").removeprefix("0x")


def _number(path: Path, absent: int) -> int:
    text = _text(path)
    return absent if text is None else int(text)


def _text(path: Path) -> str | None:
    """Read a file of sysfs; None where it is absent, or not to be read in the device's present state."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return os.read(fd, 4096).decode().strip()
    except OSError:  # EINVAL of a link that is down, ENODEV of a device that is going away
        return None
    finally:
        os.close(fd)


def _write(path: Path, text: str) -> None:
    """Write a line to a file of sysfs in one write(2), which is one request to the kernel."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, f"{text}\n".encode())
    finally:
        os.close(fd)
