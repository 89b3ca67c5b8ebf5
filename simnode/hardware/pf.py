"""A PF and its VFs, and the sysfs files that command them: sriov_numvfs, autoprobe, MLNX_OFED's GUID files.

`hca` calls this module for each written file; `bound_pci_function` has the devices of a bound function.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress
from simnode.hardware import sysfs_content
from simnode.hardware.bound_pci_function import BoundFunction, FunctionContext
from simnode.hardware.pf_properties import VF_MODEL, Model, SimulatedPf
from simnode.hardware.sysfs_content import DRIVER, RdmaAttributes

_FIRST_LID = 0x1D
_POLICIES = ("Down", "Up", "Follow")
_NO_OVERRIDE = ("(null)", "")


class RdmaNumbers:
    """The numbers of RDMA devices; a new device has the lowest free number, as in the kernel."""

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def take(self) -> int:
        """Reserve and return the lowest free number."""
        number = next(number for number in range(len(self._taken) + 1) if number not in self._taken)
        self._taken.add(number)
        return number

    def release(self, number: int) -> None:
        """Free a number."""
        self._taken.discard(number)


@dataclass(slots=True)
class VfAdminState:
    """The GUIDs and the policy that were set for one VF; the PF's driver keeps them when the VF is gone (`vfs_ctx` in mlx5)."""

    node: Guid = Guid(0)
    port: Guid = Guid(0)
    policy: str = "Follow"


class PciFunction:
    """A PCI function that can be bound and unbound: the common part of PF and VF."""

    def __init__(
        self,
        node: FunctionContext,
        numbers: RdmaNumbers,
        pf: SimulatedPf,
        address: PciAddress,
        model: Model,
    ) -> None:
        self._node, self._numbers, self._card = node, numbers, pf
        self.directory, self.address, self._model = sysfs_content.device_path(pf, address), address, model
        self.bound: BoundFunction | None = None

    def probe(self, netdev_name: str, admin: VfAdminState) -> None:
        """Bind the driver, which reads the GUIDs at this moment."""
        tree = self._node.tree
        number = self._numbers.take()
        active = admin.port.usable and admin.policy != "Down"
        rdma = RdmaAttributes(
            f"mlx5_{number}",
            number,
            self._model,
            admin.node,
            admin.port,
            active,
            _FIRST_LID + number,
            self._card.ports,
            self._card.data_ports,
        )
        tree.link(f"{self.directory}/driver", f"/bus/pci/drivers/{DRIVER}")
        tree.link(f"/bus/pci/drivers/{DRIVER}/{self.address}", self.directory)
        tree.replace(f"{self.directory}/uevent", sysfs_content.uevent(self.address, self._model, DRIVER))
        self.bound = BoundFunction(self._node, self.directory, netdev_name, rdma)

    def unbind(self) -> None:
        """Unbind the driver; do nothing if no driver is bound."""
        if self.bound is None:
            return
        number = self.bound.rdma.number
        self.bound.unbind()
        self.bound = None
        self._numbers.release(number)
        tree = self._node.tree
        tree.remove(f"{self.directory}/driver")
        tree.remove(f"/bus/pci/drivers/{DRIVER}/{self.address}")
        tree.replace(f"{self.directory}/uevent", sysfs_content.uevent(self.address, self._model, None))

    def settle(self, changed: frozenset[int] | None = None) -> None:
        """Update sysfs to the netdev's place and state; see `BoundFunction.settle`."""
        if self.bound is not None:
            self.bound.settle(changed)

    def set_port(self, *, active: bool) -> None:
        """Set the port up or down."""
        if self.bound is not None:
            self.bound.set_active(self.bound.rdma._replace(active=active))


class VirtualFunction(PciFunction):
    """One enabled VF."""

    def __init__(self, pf: "PhysicalFunction", index: int) -> None:
        address = pf.properties.vf_address(index)
        super().__init__(pf.node, pf.numbers, pf.properties, address, VF_MODEL)
        self._pf, self.index = pf, index
        entries = sysfs_content.pci_function(address, VF_MODEL, pf.properties.numa_node)
        entries |= {"physfn": sysfs_content.Symlink(pf.directory), "sriov_vf_msix_count": "0\n"}
        pf.node.tree.add(self.directory, entries)
        pf.node.tree.link(f"/bus/pci/devices/{address}", self.directory)
        pf.node.tree.link(f"{pf.directory}/virtfn{index}", self.directory)

    def bind(self) -> None:
        """Bind the driver; do nothing if it is bound, or if the kernel would refuse a probe (pci_device_can_probe)."""
        override = self._node.tree.read(f"{self.directory}/driver_override") not in _NO_OVERRIDE
        if self.bound is None and (self._pf.autoprobe or override):
            self.probe(f"{self._pf.properties.netdev}v{self.index}", self._pf.admin[self.index])

    def remove(self) -> None:
        """Remove the VF from the PCI bus."""
        self.unbind()
        self._node.tree.remove(f"{self._pf.directory}/virtfn{self.index}")
        self._node.tree.remove(f"/bus/pci/devices/{self.address}")
        self._node.tree.remove(self.directory)


class PhysicalFunction(PciFunction):
    """One PF with its driver bound, and its VFs in index order."""

    def __init__(
        self, properties: SimulatedPf, node: FunctionContext, watch: Callable[[str], None], numbers: RdmaNumbers
    ) -> None:
        super().__init__(node, numbers, properties, properties.address, properties.model)
        self.properties, self.node, self.numbers, self._watch = properties, node, numbers, watch
        self.autoprobe = True
        self.admin = [VfAdminState() for _ in range(properties.totalvfs)]
        self.vfs: list[VirtualFunction] = []
        entries = sysfs_content.pci_function(
            properties.address, properties.model, properties.numa_node
        ) | sysfs_content.pf_sriov(properties, VF_MODEL)
        node.tree.add(self.directory, entries)
        node.tree.link(f"/bus/pci/devices/{properties.address}", self.directory)
        self.probe(properties.netdev, VfAdminState(properties.guid, properties.guid))
        watch(self.directory)
        self._enable(properties.numvfs)

    def set_port(self, *, active: bool) -> None:
        """Bring the port up or down; the netdev's carrier follows, as IPoIB's does."""
        super().set_port(active=active)
        if self.bound is not None:
            self.bound.set_carrier(active)

    def store_file(self, path: Path) -> None:
        """Execute the command that was written to this file; ignore a file of another PF."""
        own = self.node.tree.path(self.directory)
        if not path.is_relative_to(own):
            return
        try:
            text = path.read_text(errors="replace").strip()
        except FileNotFoundError:  # the VF was disabled after the write
            return
        match path.relative_to(own).parts:
            case ("sriov_numvfs",):
                self._store_numvfs(text)
            case ("sriov_drivers_autoprobe",):
                self._store_autoprobe(text)
            case ("sriov", index, _) if index.isdigit() and int(index) < len(self.vfs):
                self._store_vf_admin(self.admin[int(index)], path, text)
            case _:
                pass

    def settle(self, changed: frozenset[int] | None = None) -> None:
        """Update sysfs to the places and states of the netdevs of the PF and its VFs."""
        super().settle(changed)
        for vf in self.vfs:
            vf.settle(changed)

    def remove(self) -> None:
        """Remove the PF and its VFs from the PCI bus."""
        self._disable()
        self.unbind()
        self.node.tree.remove(f"/bus/pci/devices/{self.address}")
        self.node.tree.remove(self.directory)

    def _store_numvfs(self, text: str) -> None:
        """Enable or disable VFs; keep the old number if sriov_numvfs_store would refuse the new one (ERANGE, EBUSY, EINVAL)."""
        wanted = int(text) if text.isascii() and text.isdigit() else -1
        if wanted == 0:
            self._disable()
        elif not self.vfs and 0 < wanted <= self.properties.totalvfs:
            self._enable(wanted)
        self.node.tree.replace(f"{self.directory}/sriov_numvfs", f"{len(self.vfs)}\n")

    def _store_autoprobe(self, text: str) -> None:
        if text in ("0", "1"):
            self.autoprobe = text == "1"
        self.node.tree.replace(f"{self.directory}/sriov_drivers_autoprobe", f"{int(self.autoprobe)}\n")

    def _store_vf_admin(self, admin: VfAdminState, path: Path, text: str) -> None:
        """Set a GUID or a policy, and write the value that is in force back to the file."""
        if path.name in ("node", "port"):
            with contextlib.suppress(ValueError):
                setattr(admin, path.name, Guid.parse(text.lower()))
        elif path.name == "policy" and text in _POLICIES:
            admin.policy = text
        inside = path.relative_to(self.node.tree.root)
        self.node.tree.replace(f"/{inside}", f"{getattr(admin, path.name)}\n")

    def _enable(self, count: int) -> None:
        for index in range(count):
            self._add_ofed_files(index)
            self.vfs.append(VirtualFunction(self, index))
        self.node.tree.replace(f"{self.directory}/sriov_numvfs", f"{count}\n")
        for vf in self.vfs if self.autoprobe else ():
            vf.bind()

    def _add_ofed_files(self, index: int) -> None:
        if not self.properties.ofed:
            return
        admin, directory = self.admin[index], f"{self.directory}/sriov/{index}"
        self.node.tree.add(directory, sysfs_content.ofed_vf(admin.node, admin.port, admin.policy))
        self._watch(directory)

    def _disable(self) -> None:
        while self.vfs:
            self.vfs.pop().remove()
        self.node.tree.remove(f"{self.directory}/sriov")
        self.node.tree.replace(f"{self.directory}/sriov_numvfs", "0\n")
