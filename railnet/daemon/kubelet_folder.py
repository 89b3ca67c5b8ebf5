"""Where this node's kubelet has its root folder: as the configuration says, else as kubelet's own process says."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from railnet.configuration import HostConfiguration
from railnet.kernel.files import open_below, read_below
from railnet.kernel.processes.command_lines import command_lines, environment
from railnet.kubelet.root_folder import DEFAULT, POD_RESOURCES, REGISTRY, KubeletFolder, root_folder

_PROC = Path("/proc")  # the host's processes: the DaemonSet's pod is in the host's PID namespace


class KubeletSearch:
    """Kubelet's root folder, looked for when a registration begins: kubelet may start later, or again with another one."""

    def __init__(self, host: HostConfiguration, proc: Path = _PROC) -> None:
        self._host, self._proc = host, proc
        self.folder = KubeletFolder(host.kubelet or Path(DEFAULT), "no kubelet was looked for yet")

    def look(self) -> KubeletFolder:
        """Look again. It reads the command line of every process, so it is for a thread."""
        self.folder = find(self._host, self._proc)
        return self.folder

    @contextmanager
    def pod_resources(self) -> Iterator[Path]:
        """Open the socket of pod-resources; yield a path by which this process reaches it, also where a link leads to the folder.

        Raises:
            OSError: there is none.
        """
        fd = open_below(self._host.root, f"{self.folder.path}/{POD_RESOURCES}", os.O_PATH)
        try:
            yield Path(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)


def find(host: HostConfiguration, proc: Path = _PROC) -> KubeletFolder:
    """Return the configured folder, else that of the running kubelet, else kubelet's default."""
    if host.kubelet is not None:
        return KubeletFolder(host.kubelet, "host.kubelet of node.yaml")
    running = running_kubelet(host.root, proc)
    return running or KubeletFolder(Path(DEFAULT), "kubelet's default: no running kubelet shows another --root-dir")


def running_kubelet(root: Path, proc: Path = _PROC) -> KubeletFolder | None:
    """Return the folder of the kubelet that runs on this host.

    A process of that name may be the kubelet of a node in a container, or no kubelet. Kubelet makes its plugins_registry when it starts, so
    the host must show at that path the folder that the process itself has there.
    """
    for process in command_lines(proc):
        with suppress(OSError, ValueError):
            path = root_folder(process.words, _Environment(proc, process.pid), lambda name: _text(root, name))
            if path is not None and _is_shared(root, proc / str(process.pid) / "root", f"{path}/{REGISTRY}"):
                return KubeletFolder(Path(path), f"--root-dir of kubelet, process {process.pid}")
    return None


def has_kubelet(proc: Path = _PROC) -> bool:
    """Return whether a process has the command line of a kubelet, of this host or of a node in a container."""
    return any(root_folder(process.words, {}, lambda _: "") is not None for process in command_lines(proc))


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
