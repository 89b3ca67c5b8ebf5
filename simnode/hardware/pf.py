"""A PF, its VFs, and the files by which they are commanded: numvfs, autoprobe, MLNX_OFED's GUID files.

Events come from `hca`; what a bound function has is in `bound`.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from simnode.hardware import sysfs_content
from simnode.hardware.bound_function import BoundFunction, Surroundings
from simnode.hardware.hardware_model import PF_MODEL, VF_MODEL, Model, SimulatedPf
from simnode.hardware.sysfs_content import DRIVER, RdmaFacts
from vf.address import PciAddress
from vf.guid import Guid

_FIRST_LID = 0x1D
_POLICIES = ("Down", "Up", "Follow")
_NO_OVERRIDE = ("(null)", "")


class Numbers:
    """The lowest free numbers of RDMA devices, as the kernel gives them."""

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def take(self) -> int:
        """Take the lowest free number."""
        number = next(number for number in range(len(self._taken) + 1) if number not in self._taken)
        self._taken.add(number)
        return number

    def give_back(self, number: int) -> None:
        """Make a number free."""
        self._taken.discard(number)


@dataclass(slots=True)
class Admin:
    """What the PF was told of one VF; it lasts as long as the PF's driver, longer than the VF (`vfs_ctx` in mlx5)."""

    node: Guid = Guid(0)
    port: Guid = Guid(0)
    policy: str = "Follow"


class Function:
    """What binding and unbinding mean for PFs and VFs alike."""

    def __init__(self, node: Surroundings, numbers: Numbers, directory: str, address: PciAddress, model: Model) -> None:
        self._node, self._numbers = node, numbers
        self.directory, self.address, self._model = directory, address, model
        self.bound: BoundFunction | None = None

    def probe(self, netdev_name: str, admin: Admin) -> None:
        """Bind the driver, which reads the GUIDs now."""
        tree = self._node.tree
        number = self._numbers.take()
        active = admin.port.usable and admin.policy != "Down"
        rdma = RdmaFacts(f"mlx5_{number}", number, self._model, admin.node, admin.port, active, _FIRST_LID + number)
        tree.link(f"{self.directory}/driver", f"/bus/pci/drivers/{DRIVER}")
        tree.link(f"/bus/pci/drivers/{DRIVER}/{self.address}", self.directory)
        tree.replace(f"{self.directory}/uevent", sysfs_content.uevent(self.address, self._model, DRIVER))
        self.bound = BoundFunction(self._node, self.directory, netdev_name, rdma)

    def unbind(self) -> None:
        """Unbind the driver; a function without one is left alone."""
        if self.bound is None:
            return
        number = self.bound.rdma.number
        self.bound.unbind()
        self.bound = None
        self._numbers.give_back(number)
        tree = self._node.tree
        tree.remove(f"{self.directory}/driver")
        tree.remove(f"/bus/pci/drivers/{DRIVER}/{self.address}")
        tree.replace(f"{self.directory}/uevent", sysfs_content.uevent(self.address, self._model, None))

    def settle(self, changed: frozenset[int] | None = None) -> None:
        """Make sysfs tell where the netdev is; see `BoundFunction.settle`."""
        if self.bound is not None:
            self.bound.settle(changed)

    def set_port(self, *, active: bool) -> None:
        """Bring the port up or down."""
        if self.bound is not None:
            self.bound.set_active(self.bound.rdma._replace(active=active))


class VirtualFunction(Function):
    """One enabled VF."""

    def __init__(self, pf: "PhysicalFunction", index: int) -> None:
        address = pf.facts.vf_address(index)
        directory = sysfs_content.device_path(pf.facts, address)
        super().__init__(pf.node, pf.numbers, directory, address, VF_MODEL)
        self._pf, self.index = pf, index
        entries = sysfs_content.pci_function(address, VF_MODEL, pf.facts.numa_node)
        entries |= {"physfn": sysfs_content.Link(pf.directory), "sriov_vf_msix_count": "0\n"}
        pf.node.tree.add(directory, entries)
        pf.node.tree.link(f"/bus/pci/devices/{address}", directory)
        pf.node.tree.link(f"{pf.directory}/virtfn{index}", directory)

    def bind(self) -> None:
        """Bind the driver unless the kernel would refuse: bound already, or not to be probed (pci_device_can_probe)."""
        override = self._node.tree.read(f"{self.directory}/driver_override") not in _NO_OVERRIDE
        if self.bound is None and (self._pf.autoprobe or override):
            self.probe(f"{self._pf.facts.netdev}v{self.index}", self._pf.admin[self.index])

    def remove(self) -> None:
        """Take the VF off the bus."""
        self.unbind()
        self._node.tree.remove(f"{self._pf.directory}/virtfn{self.index}")
        self._node.tree.remove(f"/bus/pci/devices/{self.address}")
        self._node.tree.remove(self.directory)


class PhysicalFunction(Function):
    """One PF with its driver bound, and its VFs in index order."""

    def __init__(self, facts: SimulatedPf, node: Surroundings, watch: Callable[[str], None], numbers: Numbers) -> None:
        super().__init__(node, numbers, sysfs_content.device_path(facts, facts.address), facts.address, PF_MODEL)
        self.facts, self.node, self.numbers, self._watch = facts, node, numbers, watch
        self.autoprobe = True
        self.admin = [Admin() for _ in range(facts.totalvfs)]
        self.vfs: list[VirtualFunction] = []
        entries = sysfs_content.pci_function(facts.address, PF_MODEL, facts.numa_node) | sysfs_content.pf_sriov(
            facts, VF_MODEL
        )
        node.tree.add(self.directory, entries)
        node.tree.link(f"/bus/pci/devices/{facts.address}", self.directory)
        self.probe(facts.netdev, Admin(facts.guid, facts.guid))
        watch(self.directory)
        self._enable(facts.numvfs)

    def set_port(self, *, active: bool) -> None:
        """Bring the port up or down; the netdev's carrier follows, as IPoIB's does."""
        super().set_port(active=active)
        if self.bound is not None:
            self.bound.set_carrier(active)

    def obey(self, path: Path) -> None:
        """Do what writing this file means; a file of another function is none of ours."""
        own = self.node.tree.path(self.directory)
        if not path.is_relative_to(own):
            return
        try:
            text = path.read_text(errors="replace").strip()
        except FileNotFoundError:  # written just before its VF was disabled
            return
        match path.relative_to(own).parts:
            case ("sriov_numvfs",):
                self._obey_numvfs(text)
            case ("sriov_drivers_autoprobe",):
                self._obey_autoprobe(text)
            case ("sriov", index, _) if index.isdigit() and int(index) < len(self.vfs):
                self._obey_admin(self.admin[int(index)], path, text)
            case _:
                pass

    def settle(self, changed: frozenset[int] | None = None) -> None:
        """Make sysfs tell where every netdev is."""
        super().settle(changed)
        for vf in self.vfs:
            vf.settle(changed)

    def remove(self) -> None:
        """Take the PF and its VFs away."""
        self._disable()
        self.unbind()
        self.node.tree.remove(self.directory)

    def _obey_numvfs(self, text: str) -> None:
        """Enable or disable VFs; what sriov_numvfs_store refuses (ERANGE, EBUSY, EINVAL) leaves the old number."""
        wanted = int(text) if text.isascii() and text.isdigit() else -1
        if wanted == 0:
            self._disable()
        elif not self.vfs and 0 < wanted <= self.facts.totalvfs:
            self._enable(wanted)
        self.node.tree.replace(f"{self.directory}/sriov_numvfs", f"{len(self.vfs)}\n")

    def _obey_autoprobe(self, text: str) -> None:
        if text in ("0", "1"):
            self.autoprobe = text == "1"
        self.node.tree.replace(f"{self.directory}/sriov_drivers_autoprobe", f"{int(self.autoprobe)}\n")

    def _obey_admin(self, admin: Admin, path: Path, text: str) -> None:
        """Take a GUID or a policy; the file then shows what counts."""
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
        if not self.facts.ofed:
            return
        admin, directory = self.admin[index], f"{self.directory}/sriov/{index}"
        self.node.tree.add(directory, sysfs_content.ofed_vf(admin.node, admin.port, admin.policy))
        self._watch(directory)

    def _disable(self) -> None:
        while self.vfs:
            self.vfs.pop().remove()
        self.node.tree.remove(f"{self.directory}/sriov")
        self.node.tree.replace(f"{self.directory}/sriov_numvfs", "0\n")
