"""What there is on a machine, as kernel and disk tell it; and what two such snapshots differ in.

`python -m simnode.judge.snapshot [--below PID] [--root FOLDER]…` prints one as JSON. Run it as a process of its own: it shares nothing with
what is judged. It knows nothing of Railnet.
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

# kind of thing → name of one → what there is to say about it
Snapshot = Mapping[str, Mapping[str, str]]

_NSFS = "nsfs"  # fs/nsfs.c
_NS_GET_NSTYPE = 0xB703  # include/uapi/linux/nsfs.h
_MAY_END = ("process", "network namespace", "link")  # of the rest of the machine; for these only what is new counts


def take(roots: list[Path], below: int | None = None) -> Snapshot:
    """Look at links, network namespaces, mounts, processes, and files below `roots`; this process itself is left out.

    Args:
        roots: folders.
        below: look only at processes that this one started, and what they started, and at namespaces of theirs or with
            a name; on a machine that does other things meanwhile. It must have adopted their orphans (`libc`).
    """
    processes = _process_ids(below)
    namespaces: dict[int, str] = {}
    for inode, path in _namespaces(processes):
        namespaces.setdefault(inode, path)
    return {
        "link": dict(_links(namespaces)),
        "network namespace": {str(inode): where for inode, where in namespaces.items()},
        "mount": dict(_mounts()),
        "process": dict(_processes(processes)),
        "file": dict(_files(roots)),
    }


def difference(before: Snapshot, after: Snapshot) -> list[str]:
    """Say what `after` has and `before` has not, and which mounts and files are missing; equal snapshots give nothing."""
    left = [
        f"{kind} {name} ({what}) is left over"
        for kind, things in sorted(after.items())
        for name, what in sorted(things.items())
        if name not in before.get(kind, {})
    ]
    missing = [
        f"{kind} {name} ({what}) is missing"
        for kind, things in sorted(before.items())
        for name, what in sorted(things.items())
        if kind not in _MAY_END and name not in after.get(kind, {})
    ]
    return left + missing


def _process_ids(below: int | None) -> list[str]:
    """Give processes but this one and kernel threads, which have no executable."""
    own = str(os.getpid())
    parents = {pid: _parent(pid) for pid in os.listdir("/proc") if pid.isdigit()}
    found = parents if below is None else _descendants(parents, str(below))
    return [pid for pid in found if pid != own and _read_link(f"/proc/{pid}/exe")]


def _parent(pid: str) -> str | None:
    fields = _stat(pid)
    return fields[1] if fields else None


def _stat(pid: str) -> list[str]:
    """Return the fields of /proc/<pid>/stat from the state on (proc(5)); nothing of a process that has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _descendants(parents: Mapping[str, str | None], ancestor: str) -> list[str]:
    below = [ancestor]
    for pid in below:  # it grows
        below += [child for child, parent in parents.items() if parent == pid]
    return below[1:]


def _read_link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _namespaces(processes: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Give network namespaces by inode, with each path by which to enter one; the path that lives longest comes first.

    This process outlives the look, and a mount mostly does; another process may end before its path is used.
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
    """Return the namespaces that a process keeps alive by a descriptor."""
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
    """Return the inode of the network namespace behind a path of /proc; None if it is something else."""
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
        except OSError:  # its last process ended meanwhile
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
    """Return each mount; several at one target are told apart by how many."""
    seen: dict[str, int] = {}
    for mount in _mountinfo():
        seen[mount.target] = seen.get(mount.target, 0) + 1
        times = f" (number {seen[mount.target]})" if seen[mount.target] > 1 else ""
        yield mount.target + times, mount.type


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
            for name in (*folders, *files):
                yield f"{folder}/{name}", f"below {root}"


def main(arguments: list[str]) -> None:
    """Print a snapshot."""
    parser = argparse.ArgumentParser(prog="python -m simnode.judge.snapshot", description=take.__doc__)
    parser.add_argument("--root", action="append", type=Path, default=[], help="list the files below this folder")
    parser.add_argument("--below", type=int, help="look only at what this process started")
    asked = parser.parse_args(arguments)
    json.dump(take(asked.root, asked.below), sys.stdout, indent=1)


if __name__ == "__main__":
    main(sys.argv[1:])
