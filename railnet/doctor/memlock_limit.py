"""Reads how much memory processes of the node may lock: the container runtime's, and those of pods."""

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from railnet.doctor.facts import PodProcess, RuntimeProcess
from railnet.kernel.files import read_regular

_RUNTIMES = frozenset({"containerd", "crio"})
_PAUSE = "pause"  # holds a pod's namespaces, and never registers memory
_MEMLOCK = re.compile(r"^Max locked memory +(\d+|unlimited) ", re.MULTILINE)  # proc_pid_limits(), fs/proc/base.c
_EFFECTIVE = re.compile(r"^CapEff:\t([0-9a-f]{16})$", re.MULTILINE)  # task_cap(), fs/proc/array.c
_IPC_LOCK = 1 << 14  # CAP_IPC_LOCK, include/uapi/linux/capability.h
# kubelet names a pod's cgroup `pod<uid>`, and as a systemd slice `kubepods-burstable-pod<uid with _>.slice` (cgroup_manager_linux.go).
_POD = re.compile(r"\bpod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})\b", re.ASCII)
_MOST_BYTES = 65536


def read(proc: Path, pods: Collection[str]) -> tuple[tuple[RuntimeProcess, ...], tuple[PodProcess, ...]]:
    """Return the container runtime's processes, and those of the pods with these UIDs. One that ends meanwhile is left out."""
    runtimes: list[RuntimeProcess] = []
    of_pods: list[PodProcess] = []
    for pid in sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal()):
        with suppress(OSError):
            folder = proc / str(pid)
            name = _text(folder / "comm").strip()
            if name in _RUNTIMES:
                runtimes += (RuntimeProcess(name, pid, memlock) for memlock in _memlock(folder))
            elif pods and name != _PAUSE and (uid := pod_uid(_text(folder / "cgroup"))) in pods:
                of_pods += (PodProcess(uid, name, pid, memlock, _has_ipc_lock(folder)) for memlock in _memlock(folder))
    return tuple(runtimes), tuple(of_pods)


def pod_uid(cgroup: str) -> str:
    """Return the pod's UID from a process's file `cgroup`; empty if the process is of no pod."""
    match = _POD.search(cgroup)
    return "" if match is None else match[1].replace("_", "-")


def _memlock(folder: Path) -> Iterator[int | None]:
    """Yield the soft limit in bytes, None for unlimited; nothing if the file has another form."""
    match = _MEMLOCK.search(_text(folder / "limits"))
    if match is not None:
        yield None if match[1] == "unlimited" else int(match[1])


def _has_ipc_lock(folder: Path) -> bool:
    match = _EFFECTIVE.search(_text(folder / "status"))
    return match is not None and bool(int(match[1], 16) & _IPC_LOCK)


def _text(path: Path) -> str:
    return read_regular(path, _MOST_BYTES).decode(errors="backslashreplace")
