"""Empty folders mounted at real paths in a private mount namespace, so that the disk below them is never written.

`namespaces` makes the mount namespace; other modules fill the folders.
"""

import os
import stat
from pathlib import Path

from simnode.linux import libc

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}


def mount_empty(path: Path, mode: int = 0o755) -> None:
    """Make `path` an empty folder of a tmpfs, even if its parents do not exist."""
    if not path.is_dir():
        _cover_nearest_parent(path)
        path.mkdir(parents=True)
    # Each tmpfs has another name: kubelet's cadvisor counts file systems of the same name as one.
    libc.mount(str(path), str(path), fstype="tmpfs", flags=libc.MS_NOSUID, data=f"mode={mode:o}")


def _cover_nearest_parent(path: Path) -> None:
    """Mount a tmpfs on the nearest existing parent of `path`, and bind the parent's entries back into the tmpfs."""
    parent = next(parent for parent in path.parents if parent.is_dir())
    below_fd = os.open(parent, os.O_PATH | os.O_DIRECTORY)
    try:
        mode = stat.S_IMODE(parent.stat().st_mode)
        libc.mount("tmpfs", str(parent), fstype="tmpfs", flags=libc.MS_NOSUID, data=f"mode={mode:o}")
        below = Path(f"/proc/self/fd/{below_fd}")
        for child in sorted(below.iterdir()):
            bind_back(child, parent / child.name)
    finally:
        os.close(below_fd)


def bind_back(source: Path, target: Path) -> None:
    """Make `source` visible at `target`, which must not exist: copy a symbolic link, bind-mount anything else."""
    if source.is_symlink():
        target.symlink_to(source.readlink())
        return
    if source.is_dir():
        target.mkdir()
    else:
        target.touch()
    libc.mount(str(source), str(target), flags=libc.MS_BIND | libc.MS_REC)


def mount_dev() -> None:
    """Make /dev a tmpfs with the devices that an ordinary program needs, `net/tun`, and an empty folder `infiniband`."""
    real_fd = os.open("/dev", os.O_PATH | os.O_DIRECTORY)
    try:
        mount_empty(Path("/dev"))
        _fill_dev(Path(f"/proc/self/fd/{real_fd}"), Path("/dev"))
    finally:
        os.close(real_fd)


def _fill_dev(real: Path, dev: Path) -> None:
    (dev / "net").mkdir()
    (dev / "infiniband").mkdir()
    for name in (*_DEVICES, "net/tun", "pts"):
        if (real / name).exists():
            bind_back(real / name, dev / name)
    for name, target in _DEVICE_LINKS.items():
        (dev / name).symlink_to(target)
    (dev / "shm").mkdir()
    mount_empty(dev / "shm", 0o1777)
