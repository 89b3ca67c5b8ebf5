"""PFs and VFs in sysfs: read them, and write the few files that change them.

The search starts from the PCI devices, so a VF is found even if its netdev and RDMA device are inside a pod. An inventory
is one pass that opens each file once, without netlink and pci.ids. Paths are plain strings: a node can have a thousand
VFs, and joining `Path`s costs more than reading the files.

A value that cannot be read or understood is noted as the `fault` of its function (`railnet.kernel.sysfs.folder`), and no other
function suffers from it. A function that has nothing to do with Railnet and cannot be read is passed over.
"""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from ipaddress import IPv6Address
from pathlib import Path
from typing import NamedTuple, TypedDict

from railnet.fabric.roce import VERSIONS, Gid, RocePort
from railnet.fabric.topology_labels import parse_rate
from railnet.kernel.sysfs.folder import OF_THE_DAEMON, SysfsFolder
from railnet.kernel.threads.bounded_reads import BoundedReads
from railnet.kernel.threads.bounded_writes import BoundedWrites
from railnet.vf.guid import Guid
from railnet.vf.inventory import (
    LINK_LAYERS,
    MLX4_PORTS,
    DeviceNode,
    Inventory,
    LinkLayer,
    Netdev,
    PhysicalFunction,
    Port,
    RdmaDevice,
    VirtualFunction,
    data_ports,
)
from railnet.vf.pci_address import PciAddress
from railnet.vf.pf_selector import PfSelector

_VIRTFN = re.compile(r"virtfn(\d+)")
_NETWORK_CONTROLLER = 0x02  # PCI base class, PCI Code and ID 1.2
_ETHERNET_CLASS, _INFINIBAND_CLASS = 0x020000, 0x020700
_OF_NETWORKS = frozenset({"net", "infiniband"})  # the folders that only a network controller with a driver has
_PCI_ID = re.compile(r"(?:0x)?([0-9a-f]{4})")
_PCIE_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_DEVICE_NUMBERS = re.compile(r"([0-9]{1,4}):([0-9]{1,8})")
_LINK_LAYER: dict[str, LinkLayer] = {"Ethernet": "Ethernet", "InfiniBand": "InfiniBand"}
_UNUSED_GIDS = 16  # in a row: the end of a GID table's used part
_GONE = (FileNotFoundError, NotADirectoryError)
_NO_GUID = Guid(0)

# PCI marks a function as a VF only if its PF is present. In a virtual machine, only the device id identifies a VF:
# MLX5_PCI_DEV_IS_VF in mlx5_core_pci_table, drivers/net/ethernet/mellanox/mlx5/core/main.c.
_MELLANOX = "15b3"
_MELLANOX_VFS = frozenset({"1012", "1014", "1016", "1018", "101a", "101c", "101e", "a2d3"})


class Sysfs:
    """A sysfs tree at `root`, usually /sys; `rails`, `link_layers` and `rail_select` are as in `Inventory`.

    A read or a write may hang as long as the card's firmware does not answer. So an event loop calls the methods through `reads`
    and `writes`.
    """

    def __init__(
        self,
        root: Path,
        rails: tuple[PciAddress, ...] | None = None,
        link_layers: frozenset[LinkLayer] = LINK_LAYERS,
        rail_select: PfSelector | None = None,
    ) -> None:
        self._buses = f"{root}/bus"
        self._devices = f"{root}/bus/pci/devices"
        self._drivers = f"{root}/bus/pci/drivers"
        self.reads = BoundedReads()
        self.writes = BoundedWrites()
        self._rails = rails
        self._link_layers = link_layers
        self._rail_select = rail_select

    def inventory(self) -> Inventory:
        """Read every SR-IOV capable PF that is a network controller, its VFs, and the VFs that have no PF on this node.

        Raises:
            OSError: the root is not a sysfs.
        """
        cards, skipped = [], set[PciAddress]()
        for address in self.addresses():
            if address not in skipped and (card := self.card(address)) is not None:
                cards.append(CardReading(self, card))
                skipped.update(card.functions)
        for card_reading in cards:
            for address in card_reading.card.functions:
                card_reading.read(address)
        return self.assembled(cards)

    def assembled(self, cards: "Iterable[CardReading]") -> Inventory:
        """Make an inventory of cards that were read, in PCI order."""
        functions = [function for card in cards if (function := card.function()) is not None]
        pfs = tuple(function for function in functions if isinstance(function, PhysicalFunction))
        lone_vfs = tuple(function for function in functions if isinstance(function, VirtualFunction))
        return Inventory(pfs, lone_vfs, self._rails, self._link_layers, rail_select=self._rail_select)

    def addresses(self) -> list[PciAddress]:
        """List the PCI functions. A name that is no address is no function that Railnet could use.

        Raises:
            OSError: the root is not a sysfs.
        """
        try:
            names = os.listdir(self._devices)
        except FileNotFoundError:
            os.stat(self._buses)  # a machine without PCI has other buses; a folder without buses is not a sysfs
            return []
        return sorted(address for name in names if (address := _address(name)) is not None)

    def card(self, address: PciAddress) -> "CardFunctions | None":
        """Look whether a function is a PF or a VF whose PF is not on this node. Return None if it is neither, or has gone away."""
        try:
            with self.folder(address) as folder:
                return _card(address, folder)
        except OSError as error:
            if error.errno in OF_THE_DAEMON:
                raise
            return None  # it has gone away, or is not what a function is

    def pf_of(self, address: PciAddress) -> PciAddress | None:
        """Return the PF of a VF; None if a function is no VF, or has gone away."""
        with suppress(*_GONE), self.folder(address) as folder:
            target = folder.target("physfn")
            return None if target is None else _address(target)
        return None

    def card_by_names(self, address: PciAddress) -> "CardFunctions | None":
        """Do the same for a PF whose files do not answer: by the names of its files alone, without reading one."""
        with suppress(*_GONE), self.folder(address) as folder:
            names = folder.names(".")
            if "sriov_totalvfs" in names and not _OF_NETWORKS.isdisjoint(names):
                class_code = _INFINIBAND_CLASS if "infiniband" in names else _ETHERNET_CLASS
                return _pf_card(address, folder, names, PciIds(vendor="", device="", class_code=class_code))
        return None

    def path(self, function: PciAddress) -> str:
        """Return the path of a function's folder."""
        return f"{self._devices}/{function}"

    def folder(self, function: PciAddress) -> SysfsFolder:
        """Open a function's folder.

        Raises:
            OSError: as `SysfsFolder`.
        """
        return SysfsFolder(self.path(function))

    def reread(self, vf: VirtualFunction) -> VirtualFunction:
        """Read one VF again, and no other function."""
        with suppress(*_GONE), self.folder(vf.address) as folder:
            return replace(vf, **_read_state(folder), fault=folder.fault)
        return replace(vf, driver=None, netdev=None, rdma=None, fault=None)

    def reread_pf(self, pf: PhysicalFunction) -> PhysicalFunction:
        """Read one PF again, without its VFs. Its carrier is not read here, and becomes None."""
        with suppress(*_GONE), self.folder(pf.address) as folder:
            _check_numbers_of_vfs(folder)
            return replace(pf, **_read_state(folder), carrier=None, fault=folder.fault)
        return replace(pf, driver=None, netdev=None, rdma=None, carrier=None, fault=None)

    def netdev(self, function: PciAddress) -> Netdev | None:
        """Read the netdev of one function. Return None while it is in another namespace, or the function has no driver.

        Raises:
            Unreadable: whether it has one cannot be read.
        """
        with suppress(*_GONE), self.folder(function) as folder:
            netdev = _netdev(folder)
            if netdev is None:  # else it is on the node, whatever its MTU is
                folder.require()
            return netdev
        return None

    def names_of_netdevs(self, function: PciAddress) -> list[str]:
        """List the names of a function's netdevs in the daemon's namespace. No file is read for it, so no firmware is asked."""
        with suppress(*_GONE):
            return os.listdir(f"{self.path(function)}/net")
        return []

    def has_driver(self, function: PciAddress) -> bool:
        """Return whether a function is bound to a driver.

        Raises:
            Unreadable: that cannot be read.
        """
        with suppress(*_GONE), self.folder(function) as folder:
            driver = folder.target("driver")
            folder.require()
            return driver is not None
        return False

    def driver_and_netdev(self, function: PciAddress) -> tuple[bool, Netdev | None]:
        """Return whether a function is bound to a driver, and its netdev, as `has_driver` and `netdev` do, in one look.

        Raises:
            Unreadable: one of them cannot be read.
        """
        with suppress(*_GONE), self.folder(function) as folder:
            driver = folder.target("driver")
            folder.require()
            netdev = _netdev(folder)
            if netdev is None:
                folder.require()
            return driver is not None, netdev
        return False, None

    def port(self, function: PciAddress) -> Port | None:
        """Read the first data port of one function. Return None while the function shows no RDMA device.

        Raises:
            Unreadable: it cannot be read.
        """
        with suppress(*_GONE), self.folder(function) as folder:
            ports = [
                port
                for name in folder.names("infiniband")
                for port in _data_ports(folder, name, _port_numbers(folder, name))[:1]
            ]
            folder.require()
            return next(iter(ports), None)
        return None

    def rate(self, function: PciAddress) -> str | None:
        """Read the rate of the first data port of one function in Gb/s, such as `400`. Return None if it cannot be read, or has another form."""
        with suppress(*_GONE), self.folder(function) as folder:
            rates = [
                folder.value(f"{first_data_port(folder, name)}/rate", parse_rate) for name in folder.names("infiniband")
            ]
            return next((rate for rate in rates if rate is not None), None)
        return None

    def pcie_root(self, function: PciAddress) -> str | None:
        """Return the PCIe root complex above a function, such as `pci0000:00`, as k8s.io/dynamic-resource-allocation/deviceattribute does.

        None if the function has gone away, or if the first folder below /sys/devices is no root of PCI. No file is read for it, so no
        firmware is asked.
        """
        try:
            _, _, below = os.readlink(self.path(function)).partition("/devices/")
        except OSError:
            return None
        root = below.partition("/")[0]
        return root if _PCIE_ROOT.fullmatch(root) else None

    def pkeys(self, function: PciAddress) -> tuple[int, ...]:
        """Read the partition keys that the subnet manager gave the first data port of one function, without the table's unused entries.

        Bit 15 of a key means full membership. Return none while the function shows no RDMA device.

        Raises:
            Unreadable: one cannot be read.
        """
        with suppress(*_GONE), self.folder(function) as folder:
            tables = [f"{first_data_port(folder, name)}/pkeys" for name in folder.names("infiniband")]
            indexes = [(table, name) for table in tables for name in folder.names(table) if name.isdecimal()]
            entries = [
                f"{table}/{name}" for table, name in sorted(indexes, key=lambda index: (index[0], int(index[1])))
            ]
            pkeys = tuple(pkey for entry in entries if (pkey := folder.number(entry, 0)) & 0x7FFF)
            folder.require()
            return pkeys
        return ()

    def roce_port(self, function: PciAddress) -> RocePort | None:
        """Read the GIDs and the traffic class of the first data port of one function. Return None while the function shows no RDMA device.

        The kernel gives a new GID the lowest free entry (find_gid(), drivers/infiniband/core/cache.c). So the table, which may have
        hundreds of entries, is read until many in a row are unused.

        Raises:
            Unreadable: one cannot be read.
        """
        with suppress(*_GONE), self.folder(function) as folder:
            names = folder.names("infiniband")
            if names:
                path = first_data_port(folder, names[0])
                # MLNX_OFED's file; it says `Global tclass=106`, or nothing.
                traffic_class = f"infiniband/{names[0]}/tc/{path.rpartition('/')[2]}/traffic_class"
                port = RocePort(_gids(folder, path), folder.text(traffic_class))
                folder.require()
                return port
            folder.require()
        return None

    def set_drivers_autoprobe(self, pf: PciAddress, on: bool) -> None:
        """Choose whether new VFs are bound to a driver at once (kernel 4.12, 0e7df22401a3)."""
        _write(f"{self.path(pf)}/sriov_drivers_autoprobe", "1" if on else "0")

    def set_numvfs(self, pf: PciAddress, count: int) -> None:
        """Create `count` VFs if the PF has none, or remove all with 0. Any other change raises EBUSY."""
        _write(f"{self.path(pf)}/sriov_numvfs", str(count))

    def set_guid(self, pf: PciAddress, vf_index: int, guid: Guid) -> None:
        """Set node and port GUID of one VF by MLNX_OFED's files, and let the VF's link state follow the port's.

        The VF's driver reads the GUIDs when it is bound.

        Raises:
            OSError: ENOENT, the PF's driver has no such files.
        """
        folder = f"{self.path(pf)}/sriov/{vf_index}"
        for name, value in (("node", str(guid)), ("port", str(guid)), ("policy", "Follow")):
            _write(f"{folder}/{name}", value)

    def bind(self, function: PciAddress, driver: str) -> None:
        """Bind a function to a driver. Raise EBUSY if it has one."""
        _write(f"{self._drivers}/{driver}/bind", str(function))

    def unbind(self, function: PciAddress, driver: str) -> None:
        """Unbind a function from its driver. Its netdev and RDMA device go away."""
        _write(f"{self._drivers}/{driver}/unbind", str(function))

    def count_of_vfs(self, pf: PciAddress) -> int | None:
        """Count the VFs that a PF shows. Return None if there is no such function."""
        with suppress(*_GONE), self.folder(pf) as folder:
            return len(_virtual_functions(folder, folder.names(".")))
        return None


class CardFunctions(NamedTuple):
    """A PF with the addresses of its VFs by index, or a VF that has no PF on this node (`vfs` is then None)."""

    address: PciAddress
    pci_ids: "PciIds"
    ofed_guid_files: bool = False
    vfs: tuple[tuple[int, PciAddress], ...] | None = None
    fault: str | None = None

    @property
    def functions(self) -> tuple[PciAddress, ...]:
        """The PF first, then its VFs; or the VF alone."""
        return (self.address, *(address for _, address in self.vfs or ()))


class CardReading:
    """Reads the functions of one card one after the other, in the order of `CardFunctions.functions`, and puts them together.

    The kernel gives all VFs of a PF the same vendor, device and class, and the PF's NUMA node: these are read once.

    Source: pci_iov_scan_device() and pci_read_vf_config_common(), drivers/pci/iov.c.
    """

    def __init__(self, sysfs: Sysfs, card: CardFunctions) -> None:
        self.card = card
        self.sysfs = sysfs
        self._numa_node = -1
        self._ids_of_vfs: PciIds | None = None  # of the first VF whose ids can be read
        self._indexes = {address: index for index, address in card.vfs or ()}
        self._found: dict[PciAddress, PhysicalFunction | VirtualFunction] = {}

    def read(self, address: PciAddress) -> None:
        """Read one function. One that has gone away is left out."""
        with suppress(*_GONE), self.sysfs.folder(address) as folder:
            if address != self.card.address:
                self._found[address] = self._vf(address, folder)
            elif self.card.vfs is None:
                self._found[address] = self._lone_vf(folder)
            else:
                self._found[address] = self._pf(folder)

    def put_fault(self, address: PciAddress, fault: str, before: Inventory) -> None:
        """Note that a function was not read, and why. Its facts are those of an earlier inventory, if it was known then."""
        known = before.pf(address) or before.vf(address)
        if known is None:
            known = self._unread(address)
        self._found[address] = replace(known, fault=fault)

    def function(self) -> PhysicalFunction | VirtualFunction | None:
        """Return the PF with its VFs, or the lone VF; None if it has gone away."""
        function = self._found.get(self.card.address)
        if not isinstance(function, PhysicalFunction):
            return function
        vfs = (self._found.get(address) for _, address in self.card.vfs or ())
        return replace(function, vfs=tuple(self._with_ids(vf) for vf in vfs if isinstance(vf, VirtualFunction)))

    def _pf(self, folder: SysfsFolder) -> PhysicalFunction:
        self._numa_node = folder.number("numa_node", -1)
        state = _read_state(folder)
        totalvfs, numvfs = _check_numbers_of_vfs(folder)
        return PhysicalFunction(
            address=self.card.address,
            **self.card.pci_ids,
            **state,
            numa_node=self._numa_node,
            totalvfs=totalvfs,
            numvfs=numvfs,
            ofed_guid_files=self.card.ofed_guid_files,
            vfs=(),
            fault=self.card.fault or folder.fault,
        )

    def _lone_vf(self, folder: SysfsFolder) -> VirtualFunction:
        address, numa_node, state = self.card.address, folder.number("numa_node", -1), _read_state(folder)
        return VirtualFunction(
            address=address,
            index=0,
            pf=None,
            numa_node=numa_node,
            **self.card.pci_ids,
            **state,
            fault=self.card.fault or folder.fault,
        )

    def _vf(self, address: PciAddress, folder: SysfsFolder) -> VirtualFunction:
        ids = self._ids_of_vfs
        if ids is None:
            ids = _read_pci_ids(folder)
            self._ids_of_vfs = ids if folder.fault is None else None
        state = _read_state(folder)
        return VirtualFunction(
            address=address,
            index=self._indexes[address],
            pf=self.card.address,
            numa_node=self._numa_node,
            **ids,
            **state,
            fault=folder.fault,
        )

    def _with_ids(self, vf: VirtualFunction) -> VirtualFunction:
        return vf if vf.fault is None or self._ids_of_vfs is None else replace(vf, **self._ids_of_vfs)

    def _unread(self, address: PciAddress) -> PhysicalFunction | VirtualFunction:
        ids: PciIds = self.card.pci_ids
        if address == self.card.address and self.card.vfs is not None:
            return PhysicalFunction(
                address=address,
                **ids,
                driver=None,
                numa_node=-1,
                totalvfs=len(self.card.vfs),
                numvfs=len(self.card.vfs),
                netdev=None,
                rdma=None,
                ofed_guid_files=self.card.ofed_guid_files,
                vfs=(),
            )
        pf = None if self.card.vfs is None else self.card.address
        index = self._indexes.get(address, 0)
        ids = self._ids_of_vfs or ids
        return VirtualFunction(
            address=address, index=index, pf=pf, **ids, driver=None, numa_node=self._numa_node, netdev=None, rdma=None
        )


class PciIds(TypedDict):
    """A function's PCI ids. They do not change while the function exists."""

    vendor: str
    device: str
    class_code: int


class _State(TypedDict):
    """The facts that change while a function exists."""

    driver: str | None
    netdev: Netdev | None
    rdma: RdmaDevice | None


def _gids(folder: SysfsFolder, port: str) -> tuple[Gid, ...]:
    gids: list[Gid] = []
    unused = 0
    for index in sorted(int(name) for name in folder.names(f"{port}/gid_attrs/types") if name.isdecimal()):
        # EINVAL for an unused entry (show_port_gid_attr(), drivers/infiniband/core/sysfs.c), which is no fault
        version = VERSIONS.get(folder.text(f"{port}/gid_attrs/types/{index}") or "")
        address = None if version is None else folder.value(f"{port}/gids/{index}", IPv6Address)
        if version is not None and address is not None:
            gids.append(Gid(index, address, version))
            unused = 0
            continue
        unused += 1
        if unused == _UNUSED_GIDS:
            break
    return tuple(gids)


def _address(name: str) -> PciAddress | None:
    with suppress(ValueError):
        return PciAddress.parse(name)
    return None


def _read_pci_ids(folder: SysfsFolder) -> PciIds:
    vendor, device = (folder.value(name, _parse_pci_id) or "" for name in ("vendor", "device"))
    return PciIds(vendor=vendor, device=device, class_code=folder.number("class", 0))


def _parse_pci_id(text: str) -> str:
    match = _PCI_ID.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r:.80} is not a PCI id of the form 0x15b3")
    return match[1]


def _card(address: PciAddress, folder: SysfsFolder) -> CardFunctions | None:
    pci_ids = _read_pci_ids(folder)
    is_network = pci_ids["class_code"] >> 16 == _NETWORK_CONTROLLER
    if folder.fault is None and not is_network:
        return None
    names = folder.names(".")
    if not is_network and _OF_NETWORKS.isdisjoint(names):
        return None  # its class cannot be read, and nothing else says that it is a network controller
    if "sriov_totalvfs" in names:
        return _pf_card(address, folder, names, pci_ids)
    lone = pci_ids["vendor"] == _MELLANOX and pci_ids["device"] in _MELLANOX_VFS
    if lone and "physfn" not in names:  # else its PF is present: the VF is being created or removed
        return CardFunctions(address, pci_ids, fault=folder.fault)
    return None


def _pf_card(address: PciAddress, folder: SysfsFolder, names: Iterable[str], pci_ids: PciIds) -> CardFunctions:
    vfs = tuple(_virtual_functions(folder, names))
    return CardFunctions(address, pci_ids, "sriov" in names, vfs, folder.fault)


def _check_numbers_of_vfs(folder: SysfsFolder) -> tuple[int, int]:
    return folder.number("sriov_totalvfs", 0), folder.number("sriov_numvfs", 0)


def _read_state(folder: SysfsFolder) -> _State:
    return _State(driver=folder.target("driver"), netdev=_netdev(folder), rdma=_rdma(folder))


def _virtual_functions(folder: SysfsFolder, names: Iterable[str]) -> list[tuple[int, PciAddress]]:
    vfs = []
    for name in names:
        if (match := _VIRTFN.fullmatch(name)) is not None:
            target = folder.target(name)
            address = None if target is None else _address(target)
            if address is not None:
                vfs.append((int(match[1]), address))
            elif target is not None:  # else it is being removed
                folder.note(name, f"{target!r:.80} is not a PCI address")
    return sorted(vfs)


def _netdev(folder: SysfsFolder) -> Netdev | None:
    """Read the netdev of port 1: of the complete netdevs, the lowest `dev_port`, then the oldest."""
    netdevs = []
    for name in folder.names("net"):
        ifindex = folder.number(f"net/{name}/ifindex", 0)
        dev_port, mtu = folder.number(f"net/{name}/dev_port", 0), folder.number(f"net/{name}/mtu", 0)
        # No ifindex: the netdev was renamed or moved after its folder was listed.
        if ifindex and not (dev_port and _has_port(folder, dev_port + 1)):
            netdevs.append((dev_port, ifindex, Netdev(name, ifindex, mtu)))
    return min(netdevs)[2] if netdevs else None


def _has_port(folder: SysfsFolder, port: int) -> bool:
    """Return whether a function's RDMA device has a port with this number. mlx4 puts two ports on one function."""
    return any(str(port) in folder.names(f"infiniband/{name}/ports") for name in folder.names("infiniband"))


def _rdma(folder: SysfsFolder) -> RdmaDevice | None:
    for name in folder.names("infiniband"):
        faults = folder.faults
        node_guid = folder.value(f"infiniband/{name}/node_guid", Guid.parse)
        if node_guid is None and folder.faults == faults:  # the device is going away
            continue
        mad, numbers = folder.names("infiniband_mad"), _port_numbers(folder, name)
        ports = _data_ports(folder, name, numbers)
        first = ports[0].number if ports else 1
        return RdmaDevice(
            name=name,
            node_guid=node_guid or _NO_GUID,
            port=next(iter(ports), None),
            uverbs=_device_node(folder, "infiniband_verbs", folder.names("infiniband_verbs")),
            umad=_device_node(folder, "infiniband_mad", _of_port(folder, mad, "umad", first)),
            issm=_device_node(folder, "infiniband_mad", _of_port(folder, mad, "issm", first)),
            data_ports=tuple(port.number for port in ports) or (1,),
            port_numbers=numbers or (1,),
        )
    return None


def _of_port(folder: SysfsFolder, names: Iterable[str], kind: str, port: int) -> list[str]:
    """Return the devices of one kind that belong to a port. Only an RDMA device with several ports has several of a kind."""
    devices = [name for name in names if name.startswith(kind)]
    if len(devices) > 1:
        return [name for name in devices if folder.number(f"infiniband_mad/{name}/port", 1) == port]
    return devices


def first_data_port(folder: SysfsFolder, device: str) -> str:
    """Return the folder of the port that stands for an RDMA device. A device with one port is asked for nothing."""
    numbers = _port_numbers(folder, device)
    if len(numbers) > 1:
        numbers = tuple(port.number for port in _data_ports(folder, device, numbers))
    return f"infiniband/{device}/ports/{next(iter(numbers), 1)}"


def _data_ports(folder: SysfsFolder, device: str, numbers: tuple[int, ...]) -> tuple[Port, ...]:
    """Read the data ports of an RDMA device; no port that cannot be one, since each file may ask the firmware."""
    ports: list[Port] = []
    is_mlx4s = numbers[:1] == (1,) and len(numbers) <= MLX4_PORTS
    for number in numbers[:1] if is_mlx4s else numbers:
        port = _port(folder, f"infiniband/{device}/ports/{number}", number)
        if port is not None:
            ports.append(port)
        if number == 1 and ports and ports[0].is_active:
            break
    return data_ports(ports)


def _port_numbers(folder: SysfsFolder, device: str) -> tuple[int, ...]:
    return tuple(sorted(int(name) for name in folder.names(f"infiniband/{device}/ports") if name.isdecimal()))


def _port(folder: SysfsFolder, path: str, number: int) -> Port | None:
    state, phys_state = folder.text(f"{path}/state"), folder.text(f"{path}/phys_state")
    if state is None or phys_state is None:
        return None
    faults = folder.faults
    link_layer = folder.value(f"{path}/link_layer", _parse_link_layer)
    if link_layer is None and folder.faults != faults:
        return None
    return Port(state, phys_state, link_layer or "InfiniBand", number)


def _parse_link_layer(text: str) -> LinkLayer:
    if text not in _LINK_LAYER:
        raise ValueError(f"{text!r:.80} is not a link layer, InfiniBand or Ethernet")
    return _LINK_LAYER[text]


def _device_node(folder: SysfsFolder, path: str, names: Iterable[str]) -> DeviceNode | None:
    for name in names:
        numbers = folder.value(f"{path}/{name}/dev", _parse_device_numbers)
        if numbers is not None:
            return DeviceNode(name, *numbers)
    return None


def _parse_device_numbers(text: str) -> tuple[int, int]:
    match = _DEVICE_NUMBERS.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r:.80} is not a device number of the form 231:192")
    return int(match[1]), int(match[2])


def _write(path: str, text: str) -> None:
    """Write a line to a file of sysfs by one write(2), which is one request to the kernel."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, f"{text}\n".encode())
    finally:
        os.close(fd)
