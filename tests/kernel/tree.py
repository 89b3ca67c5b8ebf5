"""A hand-written sysfs tree: one PF with a VF at home, one whose netdev and RDMA device are in a pod, one without a driver.

In the kernel's form: every text ends in a newline, ids have `0x`, links are relative.
"""

from pathlib import Path

PF, AT_HOME, IN_POD, UNBOUND = "0000:03:00.0", "0000:03:00.1", "0000:03:00.2", "0000:03:00.3"


class Tree:
    """Writes what a test cares about below a folder that stands for /sys."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.devices = root / "bus/pci/devices"
        self.devices.mkdir(parents=True)

    def function(self, address: str, files: dict[str, str], driver: str | None = "mlx5_core") -> Path:
        """Write a PCI function, with its driver and the driver's own files."""
        folder = self.root / "devices/pci0000:00" / address
        for name, text in {"vendor": "0x15b3\n", "class": "0x020700\n", **files}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        (self.devices / address).symlink_to(f"../../../devices/pci0000:00/{address}")
        if driver is not None:
            drivers = self.root / "bus/pci/drivers" / driver
            drivers.mkdir(parents=True, exist_ok=True)
            (drivers / "bind").touch()
            (drivers / "unbind").touch()
            (folder / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
        return folder

    def whole(self) -> None:
        """Write the node of this module's first line."""
        sriov = {"sriov_totalvfs": "16\n", "sriov_numvfs": "3\n", "sriov_drivers_autoprobe": "1\n", "numa_node": "1\n"}
        pf = self.function(
            PF, {"device": "0x101b\n", **sriov, **netdev("ibs5", 4), **rdma(0, "4: ACTIVE", "5: LinkUp")}
        )
        self.function(AT_HOME, {"device": "0x101c\n", **netdev("ibs5v0", 9), **rdma(4, "1: DOWN", "3: Disabled")})
        self.function(IN_POD, {"device": "0x101c\n"})
        self.function(UNBOUND, {"device": "0x101c\n"}, driver=None)
        for index, address in enumerate((AT_HOME, IN_POD, UNBOUND)):
            (pf / f"virtfn{index}").symlink_to(f"../{address}")
            (pf.parent / address / "physfn").symlink_to(f"../{PF}")


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
