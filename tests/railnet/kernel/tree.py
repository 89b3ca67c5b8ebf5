"""Writer of sysfs trees: PCI functions as values become files, folders and links in the kernel's form.

Every text ends with a newline, ids have `0x`, links are relative. The functions of real nodes are in `nodes`. `Tree.whole`
writes a small node: one PF with a VF whose netdev is on the node, one whose netdev and RDMA device are in a pod, and one
without a driver.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

PF, ON_NODE, IN_POD, UNBOUND = "0000:03:00.0", "0000:03:00.1", "0000:03:00.2", "0000:03:00.3"
OTHER_PF, OTHER_VF = "0000:83:00.0", "0000:83:00.1"
CLASSES = ("net", "infiniband", "infiniband_verbs", "infiniband_mad")


class Function(NamedTuple):
    """One PCI function: its files with their exact text, and its links to other functions (`physfn`, `virtfn0`)."""

    address: str
    files: Mapping[str, str]
    driver: str | None = "mlx5_core"
    bridges: str = "pci0000:00"
    links: Mapping[str, str] = {}


class Tree:
    """Writes functions below a folder that replaces /sys."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.devices = root / "bus/pci/devices"
        self.devices.mkdir(parents=True)

    def write(self, functions: Iterable[Function]) -> None:
        for function in functions:
            self._write(function)

    def function(self, address: str, files: dict[str, str], driver: str | None = "mlx5_core") -> Path:
        """Write an InfiniBand function of Mellanox with these files and defaults for the rest."""
        return self._write(Function(address, {"vendor": "0x15b3\n", "class": "0x020700\n", **files}, driver))

    def whole(self) -> None:
        """Write the small node of this module's docstring."""
        sriov = {"sriov_totalvfs": "16\n", "sriov_numvfs": "3\n", "sriov_drivers_autoprobe": "1\n", "numa_node": "1\n"}
        pf = self.function(
            PF, {"device": "0x101b\n", **sriov, **netdev("ibs5", 4), **rdma(0, "4: ACTIVE", "5: LinkUp")}
        )
        self.function(ON_NODE, {"device": "0x101c\n", **netdev("ibs5v0", 9), **rdma(4, "1: DOWN", "3: Disabled")})
        self.function(IN_POD, {"device": "0x101c\n"})
        self.function(UNBOUND, {"device": "0x101c\n"}, driver=None)
        for index, address in enumerate((ON_NODE, IN_POD, UNBOUND)):
            (pf / f"virtfn{index}").symlink_to(f"../{address}")
            (pf.parent / address / "physfn").symlink_to(f"../{PF}")

    def second_card(self) -> str:
        """Write another PF with one VF, whose netdev is on the node; return the VF's address."""
        sriov = {"sriov_totalvfs": "16\n", "sriov_numvfs": "1\n", "sriov_drivers_autoprobe": "1\n", "numa_node": "1\n"}
        pf = self.function(
            OTHER_PF, {"device": "0x101b\n", **sriov, **netdev("ibs6", 14), **rdma(5, "4: ACTIVE", "5: LinkUp")}
        )
        self.function(OTHER_VF, {"device": "0x101c\n", **netdev("ibs6v0", 19), **rdma(6, "4: ACTIVE", "5: LinkUp")})
        (pf / "virtfn0").symlink_to(f"../{OTHER_VF}")
        (pf.parent / OTHER_VF / "physfn").symlink_to(f"../{OTHER_PF}")
        return OTHER_VF

    def _write(self, function: Function) -> Path:
        folder = self.root / "devices" / function.bridges / function.address
        folder.mkdir(parents=True)
        for parent in {(folder / name).parent for name in function.files}:
            parent.mkdir(parents=True, exist_ok=True)
        for name, text in function.files.items():
            (folder / name).write_text(text)
        for name, address in function.links.items():
            (folder / name).symlink_to(f"../{address}")
        link(self.devices / function.address, folder)
        self._link_classes(folder)
        if function.driver is not None:
            link(folder / "driver", self._driver(function.driver))
        return folder

    def _link_classes(self, folder: Path) -> None:
        for class_ in CLASSES:
            for device in (folder / class_).glob("*"):
                (self.root / "class" / class_).mkdir(parents=True, exist_ok=True)
                link(self.root / "class" / class_ / device.name, device)

    def _driver(self, name: str) -> Path:
        folder = self.root / "bus/pci/drivers" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "bind").touch()
        (folder / "unbind").touch()
        return folder


def link(path: Path, target: Path) -> None:
    path.symlink_to(os.path.relpath(target, path.parent))


def netdev(name: str, ifindex: int, mtu: int = 4092) -> dict[str, str]:
    return {f"net/{name}/ifindex": f"{ifindex}\n", f"net/{name}/mtu": f"{mtu}\n"}


def rdma(number: int, state: str, phys_state: str) -> dict[str, str]:
    device = f"infiniband/mlx5_{number}"
    return {
        f"{device}/node_guid": f"b859:9f03:00f9:8f8{number}\n",
        f"{device}/ports/1/state": f"{state}\n",
        f"{device}/ports/1/phys_state": f"{phys_state}\n",
        f"{device}/ports/1/link_layer": "InfiniBand\n",
        f"infiniband_verbs/uverbs{number}/dev": f"231:{192 + number}\n",
        f"infiniband_mad/umad{number}/dev": f"231:{number}\n",
        f"infiniband_mad/issm{number}/dev": f"231:{64 + number}\n",
    }
