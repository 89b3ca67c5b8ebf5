"""The character devices of an RDMA device: their numbers, their sysfs entries, their nodes in /dev/infiniband.

The nodes have no driver: open(2) of a node fails with ENXIO.
"""

import os
import stat
from pathlib import Path
from typing import NamedTuple

from simnode.hardware.sysfs_content import Symlink, Tree

# drivers/infiniband/core/uverbs_main.c: IB_UVERBS_{MAJOR,BASE_MINOR,NUM_FIXED_MINOR}
_IB_MAJOR = 231
_UVERBS_BASE_MINOR = 192
_UVERBS_NUM_FIXED_MINOR = 32
# drivers/infiniband/core/user_mad.c: IB_UMAD_{MINOR_BASE,NUM_FIXED_MINOR}; issm minors follow the umad ones
_UMAD_NUM_FIXED_MINOR = 64
_DYNAMIC_UVERBS_MAJOR = 511  # above the fixed minors the kernel takes free majors from 511 down (include/linux/fs.h)
_DYNAMIC_UMAD_MAJOR = 510
_RDMA_CM = (10, 122)  # a miscellaneous device with a dynamic minor (include/linux/miscdevice.h)

_VERBS_ABI = 6  # include/uapi/rdma/ib_user_verbs.h
_MAD_ABI = 5  # include/uapi/rdma/ib_user_mad.h


class CharDevice(NamedTuple):
    """One character device: its class in sysfs, its name in sysfs and in /dev/infiniband, its numbers and its mode."""

    subsystem: str
    name: str
    major: int
    minor: int
    mode: int


def of_rdma_device(number: int) -> tuple[CharDevice, ...]:
    """Return uverbs, umad and issm of the RDMA device with this number."""
    return (_uverbs(number), *_mad(number))


def _uverbs(number: int) -> CharDevice:
    if number < _UVERBS_NUM_FIXED_MINOR:
        major, minor = _IB_MAJOR, _UVERBS_BASE_MINOR + number
    else:
        major, minor = _DYNAMIC_UVERBS_MAJOR, number - _UVERBS_NUM_FIXED_MINOR
    return CharDevice("infiniband_verbs", f"uverbs{number}", major, minor, 0o666)


def _mad(number: int) -> tuple[CharDevice, CharDevice]:
    fixed = number < _UMAD_NUM_FIXED_MINOR
    major, minor = (_IB_MAJOR, number) if fixed else (_DYNAMIC_UMAD_MAJOR, number - _UMAD_NUM_FIXED_MINOR)
    return (
        CharDevice("infiniband_mad", f"umad{number}", major, minor, 0o600),
        CharDevice("infiniband_mad", f"issm{number}", major, _UMAD_NUM_FIXED_MINOR + minor, 0o600),
    )


RDMA_CM = CharDevice("misc", "rdma_cm", *_RDMA_CM, 0o666)


def entries(device: CharDevice, ibdev: str, function: str) -> Tree:
    """Return the sysfs directory of a character device; `function` is the directory of its PCI function."""
    own: Tree = {"abi_version": "1\n"} if device.subsystem == "infiniband_verbs" else {"port": "1\n"}
    return own | {
        "ibdev": f"{ibdev}\n",
        "dev": f"{device.major}:{device.minor}\n",
        "uevent": f"MAJOR={device.major}\nMINOR={device.minor}\nDEVNAME=infiniband/{device.name}\n",
        "device": Symlink(function),
        "subsystem": Symlink(f"/class/{device.subsystem}"),
    }


def class_entries() -> Tree:
    """Return the files that belong to a class and not to a device, below the sysfs root."""
    return {
        "class/infiniband_verbs/abi_version": f"{_VERBS_ABI}\n",
        "class/infiniband_mad/abi_version": f"{_MAD_ABI}\n",
        "class/misc/rdma_cm": Symlink("/devices/virtual/misc/rdma_cm"),
        "devices/virtual/misc/rdma_cm/dev": f"{RDMA_CM.major}:{RDMA_CM.minor}\n",
        "devices/virtual/misc/rdma_cm/abi_version": "3\n",
    }


def make_node(folder: Path, device: CharDevice) -> None:
    """Make the device node; make a regular file if the kernel allows no nodes, as in a user namespace."""
    node = folder / device.name
    try:
        os.mknod(node, stat.S_IFCHR | device.mode, os.makedev(device.major, device.minor))
    except PermissionError:
        node.touch()
    node.chmod(device.mode)
