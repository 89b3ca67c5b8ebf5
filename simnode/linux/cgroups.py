"""Control groups of one simulated node, for a real kubelet and container runtime: below the caller's groups, removed with the node.

The process that makes the groups stays outside of them, because they can be removed only from there. The node's process
1 enters them.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Self

from railnet.kernel.waiting import block_until
from simnode.linux import libc

_ROOT = Path("/sys/fs/cgroup")
_TYPES = ("cgroup", "cgroup2")  # file systems of version 1, with a hierarchy for each controller, and of version 2
_CPUSET = ("cpuset.cpus", "cpuset.mems")  # version 1 admits no process while these are empty
_REMOVE_SECONDS, _RETRY_SECONDS = 30.0, 0.05  # a killed process leaves its group a little later


class Hierarchy(NamedTuple):
    """A mounted hierarchy: its mount point, file system type and options, and the path of the caller's group in it."""

    target: Path
    fstype: str
    options: str
    own: Path


class Cgroups:
    """One group in each mounted hierarchy; the constructor makes them, `remove` removes them with all groups below."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._made: list[tuple[Hierarchy, int]] = []
        with contextlib.ExitStack() as undo:
            undo.callback(self.remove)
            for hierarchy in hierarchies(
                Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text()
            ):
                fd = os.open(hierarchy.own, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                self._made.append((hierarchy, fd))
                os.mkdir(name, dir_fd=fd)
                _copy(hierarchy.own, hierarchy.own / name)
            undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def enter(self) -> None:
        """Put the calling process into the groups; the process and its children then see no group above them."""
        for hierarchy, _ in self._made:
            (hierarchy.own / self._name / "cgroup.procs").write_text("0")
        libc.unshare(libc.CLONE_NEWCGROUP)

    def mount(self) -> None:
        """Mount the groups at their usual place, below a /sys that only the caller's mount namespace has."""
        libc.mount(
            "cgroup", str(_ROOT), fstype="tmpfs", flags=libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC, data="mode=755"
        )
        for hierarchy, _ in self._made:
            hierarchy.target.mkdir(exist_ok=True)
            libc.mount("cgroup", str(hierarchy.target), fstype=hierarchy.fstype, data=hierarchy.options)

    def remove(self) -> None:
        """Remove the groups; all processes in them must have been killed.

        Raises:
            OSError: EBUSY, a process is still in a group.
        """
        while self._made:
            _, fd = self._made.pop()
            try:
                _remove(self._name, fd)
            finally:
                os.close(fd)


def hierarchies(mountinfo: str, own: str) -> Iterator[Hierarchy]:
    """Read the mounted hierarchies from /proc/self/mountinfo and the caller's groups from /proc/self/cgroup (cgroups(7))."""
    groups = dict(_groups(own))
    mounts = [_mount(line) for line in mountinfo.splitlines()]
    # The last mount at a mount point hides the others.
    seen = {target: (root, fstype, options) for root, target, fstype, options in mounts}
    for target, (root, fstype, options) in seen.items():
        if fstype in _TYPES and target.is_relative_to(_ROOT):
            group = next(path for names, path in groups.items() if names <= set(options))
            yield Hierarchy(target, fstype, ",".join(options), target / PurePosixPath(group).relative_to(root))


def _mount(line: str) -> tuple[str, Path, str, list[str]]:
    """Return root, mount point, file system type and its options, without rw or ro, of a line of mountinfo (proc(5))."""
    mount, _, source = line.partition(" - ")
    root, target = mount.split()[3:5]
    fstype, _, options = source.split(" ", 2)
    return root, Path(target), fstype, options.split(",")[1:]


def _groups(own: str) -> Iterator[tuple[frozenset[str], str]]:
    """Yield controllers and the caller's group of each hierarchy, `name=…` included; version 2 names no controller, and is last."""
    for line in sorted(own.splitlines(), key=lambda line: line.split(":")[1], reverse=True):
        _, names, path = line.split(":", 2)
        yield frozenset(names.split(",") if names else ()), path


def _copy(parent: Path, group: Path) -> None:
    for name in _CPUSET:
        if (group / name).exists() and not (group / name).read_text().strip():
            (group / name).write_text((parent / name).read_text())


def _remove(name: str, fd: int) -> None:
    if not block_until(lambda: _is_removed(name, fd), _REMOVE_SECONDS, _RETRY_SECONDS):
        _remove_tree(name, fd)  # it raises the reason


def _is_removed(name: str, fd: int) -> bool:
    """Try to remove a group with the groups below it; return whether it is gone."""
    try:
        _remove_tree(name, fd)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _remove_tree(name: str, fd: int) -> None:
    for _, folders, _, folder_fd in os.fwalk(name, topdown=False, dir_fd=fd):
        for folder in folders:
            os.rmdir(folder, dir_fd=folder_fd)
    os.rmdir(name, dir_fd=fd)
