"""Where this node's kubelet has its root folder: as the configuration says, else as kubelet's own process says."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from errno import ETIMEDOUT
from functools import partial
from pathlib import Path

from railnet.configuration import HostConfiguration
from railnet.kernel.files import open_below, read_below
from railnet.kernel.processes.command_lines import CommandLine, command_lines, environment
from railnet.kernel.processes.listening_sockets import listening_paths
from railnet.kernel.threads.bounded_threads import BoundedThreads
from railnet.kernel.threads.file_reads import read_in_time
from railnet.kernel.threads.thread_opened_descriptor import ThreadOpenedDescriptor
from railnet.kernel.waiting import take_outcome
from railnet.kubelet.dra_manager_state import NAME
from railnet.kubelet.root_folder import DEFAULT, POD_RESOURCES, REGISTRY, KubeletFolder, root_folder, runs_kubelet

_PROC = Path("/proc")  # the host's processes: the DaemonSet's pod is in the host's PID namespace
_SECONDS = 2.0  # thousands of processes take a tenth of it
_MOST_LOOKS = 4
_NO_KUBELET = KubeletFolder(Path(DEFAULT), "kubelet's default: no running kubelet shows another --root-dir")


class KubeletSearch:
    """Kubelet's root folder, looked for when a registration begins: kubelet may start later, or again with another one."""

    def __init__(self, host: HostConfiguration, proc: Path = _PROC, seconds: float = _SECONDS) -> None:
        """Search in `proc`; a look waits for at most `seconds`."""
        self._host, self._proc, self._seconds = host, proc, seconds
        self._threads = BoundedThreads(_MOST_LOOKS)
        self._late: list[_Look] = []
        # The registrations of all pools look at one moment: a process that hangs must not take the threads of all looks.
        self._turn = asyncio.Lock()
        self.folder = KubeletFolder(host.kubelet or Path(DEFAULT), "no kubelet was looked for yet")
        self._looked = self._found = False

    async def look(self) -> KubeletFolder:
        """Look again. While no kubelet runs, the folder is the one that was found last, else kubelet's default: kubelet may just be restarted.

        A process that hangs may hold its command line for ever. It costs one look its time, and the next looks leave it out.

        Raises:
            OSError: ETIMEDOUT, a process is not read in time, and no other one is the kubelet: it is not known where kubelet's folder is.
        """
        async with self._turn:
            folder = await self._answer()
            self.folder = folder or (self.folder if self._found else _NO_KUBELET)
            self._looked, self._found = True, self._found or folder is not None
        return self.folder

    def known(self) -> KubeletFolder | None:
        """Return the folder as it was last seen, or as it is configured; None if no look has succeeded yet."""
        return self.folder if self._looked or self._host.kubelet is not None else None

    def open_dra_manager_state(self) -> int:
        """Open kubelet's record of prepared claims; the caller owns the descriptor. For a thread: the disk may hang.

        Raises:
            OSError: there is none; ETIMEDOUT: it is not known yet where it is.
        """
        if self.known() is None:
            raise OSError(ETIMEDOUT, "not known yet", "kubelet's root folder")
        return open_below(self._host.root, f"{self.folder.path}/{NAME}")

    async def _answer(self) -> KubeletFolder | None:
        if self._host.kubelet is not None:
            return _configured(self._host)
        for look in [look for look in self._late if look.call.future.done()]:
            self._late.remove(look)
            return look.folder()
        hung = [look.process for look in self._late if look.process is not None]
        if len(self._late) >= _MOST_LOOKS:
            raise _hangs(hung)
        look = _Look(frozenset(hung), self._threads, partial(running_kubelet, self._host.root, self._proc))
        if not await look.call.ends_within(self._seconds):
            self._late.append(look)
            raise _hangs([look.process])
        return look.folder()

    @asynccontextmanager
    async def pod_resources(self) -> AsyncIterator[Path]:
        """Open the socket of pod-resources; yield a path by which this process reaches it, also where a link leads to the folder.

        Raises:
            OSError: there is none; ETIMEDOUT, its disk does not answer.
        """
        socket, descriptor = f"{self.folder.path}/{POD_RESOURCES}", ThreadOpenedDescriptor()
        opened = partial(open_below, self._host.root, socket, os.O_PATH)
        try:
            fd = await read_in_time(socket, partial(descriptor.open, opened))
            yield Path(f"/proc/self/fd/{fd}")
        finally:
            descriptor.close()


class _Look:
    """One search of /proc, in a thread.

    Attributes:
        process: the process that the thread reads now, None before it has begun.
    """

    def __init__(
        self, without: frozenset[int], threads: BoundedThreads, search: Callable[..., KubeletFolder | None]
    ) -> None:
        """Begin to search; the processes `without` are left out."""
        self.process: int | None = None
        self._without = without
        self.call = threads.begin("search for kubelet", partial(search, may_read=self._may_read))
        self.call.future.add_done_callback(take_outcome)

    def _may_read(self, process: int) -> bool:
        self.process = process
        return process not in self._without

    def folder(self) -> KubeletFolder | None:
        """Return the folder of the kubelet that runs, None if none runs; call it when the search has ended.

        Raises:
            OSError: no kubelet was found, and processes were left out.
        """
        folder: KubeletFolder | None = self.call.future.result()
        if folder is None and self._without:
            raise _hangs(self._without)
        return folder


def _hangs(processes: Iterable[int | None]) -> OSError:
    names = ", ".join(f"/proc/{process or '*'}" for process in sorted(processes, key=lambda process: process or 0))
    why = f"not read within {_SECONDS:g} s, so it is not known which process is kubelet: look in dmesg, or set host.kubelet"
    return OSError(ETIMEDOUT, why, names)


def find(host: HostConfiguration, proc: Path = _PROC) -> KubeletFolder:
    """Return the configured folder, else that of the running kubelet, else kubelet's default."""
    return _configured(host) or running_kubelet(host.root, proc) or _NO_KUBELET


def _configured(host: HostConfiguration) -> KubeletFolder | None:
    return None if host.kubelet is None else KubeletFolder(host.kubelet, "host.kubelet of node.yaml")


def running_kubelet(
    root: Path, proc: Path = _PROC, may_read: Callable[[int], bool] = lambda _: True
) -> KubeletFolder | None:
    """Return the folder of the kubelet that runs on this host.

    A process of that name may be the kubelet of a node in a container, or no kubelet. Kubelet makes its plugins_registry when it starts, so
    the host must show at that path the folder that the process itself has there. `may_read` is as in `command_lines`.
    """
    for process in command_lines(proc, may_read):
        with suppress(OSError, ValueError):
            path = _root_of(process, root, proc)
            if path is not None and _is_shared(root, proc / str(process.pid) / "root", f"{path}/{REGISTRY}"):
                return KubeletFolder(Path(path), f"--root-dir of kubelet, process {process.pid}")
    return None


def may_have_kubelet(root: Path, proc: Path = _PROC) -> bool:
    """Return whether a kubelet runs that may be this host's: not one of a node in a container, whose folder this host does not have."""
    return any(
        not _is_of_a_container(process, root, proc) for process in command_lines(proc) if runs_kubelet(process.words)
    )


def _is_of_a_container(process: CommandLine, root: Path, proc: Path) -> bool:
    """Return whether a kubelet has made its folder, and the host has none there, or another one. What cannot be read is not known."""
    try:
        path = _root_of(process, root, proc)
        if path is None:
            return False
        registry = f"{path}/{REGISTRY}"
        own = _identity(proc / str(process.pid) / "root", registry)
    except (OSError, ValueError):
        return False
    try:
        return _identity(root, registry) != own
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)


def _root_of(process: CommandLine, root: Path, proc: Path) -> str | None:
    """Return the root folder that a process has, if it is a kubelet, by its own paths.

    Raises:
        OSError, ValueError: it cannot be known.
    """
    return root_folder(
        process.words,
        _Environment(proc, process.pid),
        lambda name: _text(root, name),
        lambda: listening_paths(proc, process.pid),
    )


class _Environment(dict[str, str]):
    """The environment of a process, read when it is asked for: only MicroK8s' kubelet needs it."""

    def __init__(self, proc: Path, pid: int) -> None:
        super().__init__()
        self._proc, self._pid = proc, pid

    def get(self, name: str, default: str = "") -> str:  # type: ignore[override]
        return environment(self._proc, self._pid).get(name, default)


def _text(root: Path, path: str) -> str:
    return read_below(root, path).decode()


def _is_shared(root: Path, of_process: Path, folder: str) -> bool:
    return _identity(root, folder) == _identity(of_process, folder)


def _identity(root: Path, folder: str) -> tuple[int, int]:
    fd = open_below(root, folder, os.O_PATH | os.O_DIRECTORY)
    try:
        status = os.fstat(fd)
        return status.st_dev, status.st_ino
    finally:
        os.close(fd)
