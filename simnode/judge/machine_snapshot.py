"""A snapshot of a machine: its links, network namespaces, mounts, processes and files; and the difference of two snapshots.

`python -m simnode.judge.machine_snapshot [--below PID] [--root FOLDER]…` prints a snapshot as JSON. It runs as a separate
process, so that it shares nothing with the judged program. This module knows nothing of Railnet.
"""

import argparse
import fcntl
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from simnode.linux import libc, netns

# kind of object → name of the object → a description of it
Snapshot = Mapping[str, Mapping[str, str]]

_NSFS = "nsfs"  # fs/nsfs.c
_NS_GET_NSTYPE = 0xB703  # include/uapi/linux/nsfs.h
_TERMINALS = "/dev/pts"  # of all programs of the machine (Documentation/filesystems/devpts.rst)
_MAY_END = ("process", "network namespace", "link")  # other programs may end them, so that only new ones count


def take(roots: list[Path], below: int | None = None) -> Snapshot:
    """Return all links, network namespaces, mounts and processes without this one, and the files below `roots`.

    Args:
        roots: the folders whose files are listed.
        below: list only the descendants of this process, their namespaces, and named namespaces; for a machine with
            other programs. The process must have adopted the orphans of its descendants (`libc.adopt_orphans`).
    """
    processes = _process_ids(below)
    namespaces: dict[int, str] = {}
    for inode, path in _namespaces(processes):
        namespaces.setdefault(inode, path)
    return {
        "link": dict(_links(namespaces)),
        "network namespace": {str(inode): path for inode, path in namespaces.items()},
        "mount": dict(_mounts()),
        "process": dict(_processes(processes)),
        "file": dict(_files(roots)),
    }


def difference(before: Snapshot, after: Snapshot) -> list[str]:
    """Return a text for each object that is only in `after`, and for each mount and file that is only in `before`."""
    missing = [
        f"{kind} {name} ({what}) is missing"
        for kind, things in sorted(before.items())
        for name, what in sorted(things.items())
        if kind not in _MAY_END and name not in after.get(kind, {})
    ]
    return added(before, after) + missing


def added(before: Snapshot, after: Snapshot) -> list[str]:
    """Return a text for each object that is only in `after`."""
    return [
        f"{kind} {name} ({what}) is left over"
        for kind, things in sorted(after.items())
        for name, what in sorted(things.items())
        if name not in before.get(kind, {})
    ]


def _process_ids(below: int | None) -> list[str]:
    """Return the ids of all processes without this one and without kernel threads, which have no executable."""
    own = str(os.getpid())
    parents = {pid: _parent(pid) for pid in os.listdir("/proc") if pid.isdigit()}
    found = parents if below is None else _descendants(parents, str(below))
    return [pid for pid in found if pid != own and _read_link(f"/proc/{pid}/exe")]


def _parent(pid: str) -> str | None:
    fields = _stat(pid)
    return fields[1] if fields else None


def _stat(pid: str) -> list[str]:
    """Return the fields of /proc/<pid>/stat from the state on (proc(5)); an empty list if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _descendants(parents: Mapping[str, str | None], ancestor: str) -> list[str]:
    below = [ancestor]
    for pid in below:  # the list grows meanwhile
        below += [child for child, parent in parents.items() if parent == pid]
    return below[1:]


def _read_link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _namespaces(processes: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield network namespaces by inode, with each path by which to enter one; the path that exists longest comes first.

    This process exists longer than the snapshot takes, and a mount mostly does; another process may end before its path
    is used.
    """
    own = "/proc/self/ns/net"
    yield netns.inode(own), own
    for fields in _mountinfo():
        if fields.type == _NSFS and fields.root.startswith("net:"):
            yield int(fields.root[5:-1]), fields.target
    for pid in ("self", *processes):
        for task in _tasks(pid):
            path = f"{task}/ns/net"
            if (inode := _inode(path)) is not None:
                yield inode, path
        yield from _open_namespaces(pid)


def _open_namespaces(pid: str) -> Iterator[tuple[int, str]]:
    """Yield the network namespaces that a process keeps alive by a descriptor."""
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for descriptor in descriptors:
        path = f"/proc/{pid}/fd/{descriptor}"
        inode = network_namespace(path)
        if inode is not None:
            yield inode, path


def network_namespace(path: str) -> int | None:
    """Return the inode of the network namespace behind a path of /proc; None if the path is something else."""
    try:
        found = os.stat(path)
        if found.st_dev != os.stat("/proc/self/ns/net").st_dev:
            return None
        with open(path, "rb") as namespace:
            return found.st_ino if fcntl.ioctl(namespace, _NS_GET_NSTYPE) == libc.CLONE_NEWNET else None
    except OSError:
        return None


def _tasks(pid: str) -> list[str]:
    try:
        return [f"/proc/{pid}/task/{task}" for task in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def _links(namespaces: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    for inode, path in namespaces.items():
        try:
            names = netns.run_inside(Path(path), socket.if_nameindex)
        except OSError:  # the namespace died meanwhile
            continue
        for _, name in names:
            yield f"{name} in network namespace {inode}", path


class _Mount:
    """One line of /proc/self/mountinfo (proc(5))."""

    def __init__(self, line: str) -> None:
        fields = line.split()
        separator = fields.index("-")
        self.root, self.target, self.type = fields[3], fields[4], fields[separator + 1]


def _mountinfo() -> Iterator[_Mount]:
    with open("/proc/self/mountinfo", encoding="utf-8") as lines:
        for line in lines:
            yield _Mount(line)


def _mounts() -> Iterator[tuple[str, str]]:
    """Yield each mount; several mounts at one target are distinguished by a number."""
    seen: dict[str, int] = {}
    for mount in _mountinfo():
        seen[mount.target] = seen.get(mount.target, 0) + 1
        number = f" (number {seen[mount.target]})" if seen[mount.target] > 1 else ""
        yield mount.target + number, mount.type


def _processes(processes: Sequence[str]) -> Iterator[tuple[str, str]]:
    for pid in processes:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            started = _stat(pid)[19]
        except (OSError, IndexError):
            continue
        yield f"{pid} started at {started}", command


def _files(roots: list[Path]) -> Iterator[tuple[str, str]]:
    for root in roots:
        for folder, folders, files in os.walk(root):
            if folder == _TERMINALS:
                continue
            for name in (*folders, *files):
                yield f"{folder}/{name}", f"below {root}"


def main(arguments: list[str]) -> None:
    """Print a snapshot."""
    parser = argparse.ArgumentParser(prog="python -m simnode.judge.machine_snapshot", description=take.__doc__)
    parser.add_argument("--root", action="append", type=Path, default=[], help="list the files below this folder")
    parser.add_argument("--below", type=int, help="list only the descendants of this process")
    asked = parser.parse_args(arguments)
    json.dump(take(asked.root, asked.below), sys.stdout, indent=1)


if __name__ == "__main__":
    main(sys.argv[1:])
