"""Empty folders at real paths, in a private mount namespace: the disk below them is never touched.

What a folder is filled with belongs elsewhere; so does the making of the namespace itself.
"""

import os
import stat
from pathlib import Path

from simnode.linux import libc

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}


def mount_empty(path: Path, mode: int = 0o755) -> None:
    """Make `path` an empty folder of a tmpfs, also where its parents do not exist."""
    if not path.is_dir():
        _cover_nearest_parent(path)
        path.mkdir(parents=True)
    # Each by a name of its own: kubelet's cadvisor takes file systems of one name for one.
    libc.mount(str(path), str(path), fstype="tmpfs", flags=libc.MS_NOSUID, data=f"mode={mode:o}")


def _cover_nearest_parent(path: Path) -> None:
    """Put a tmpfs on the nearest existing parent of `path`, with all that the parent contained bound back into it."""
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
    """Show `source` at `target`, which must not exist: a symbolic link is copied, anything else is bind-mounted."""
    if source.is_symlink():
        target.symlink_to(source.readlink())
        return
    if source.is_dir():
        target.mkdir()
    else:
        target.touch()
    libc.mount(str(source), str(target), flags=libc.MS_BIND | libc.MS_REC)


def mount_dev() -> None:
    """Make /dev a tmpfs with the devices a plain program needs, `net/tun`, and an empty `infiniband`."""
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
