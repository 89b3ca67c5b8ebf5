"""Install the plugin executable with its modules on the host, while the runtime goes on to execute the installed one.

Not here: Railnet's CNI configuration, which the daemon writes once it serves (`railnet.daemon.conflist.keeper`).
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cni.host import lock
from railnet.configuration import Configuration
from railnet.errors import Misconfigured, NotReady
from railnet.install import cni_folders_record, python_bundle, running_plugins
from railnet.install.cni_folders_record import CniFolders
from railnet.install.executable_location import ExecutableLocation
from railnet.kernel.files import sync, sync_tree, write_atomically
from railnet.kernel.processes.host_process import Terms, execute

_ANSWER_SECONDS = 10.0
_END_SECONDS = 5.0

_EXECUTABLE = """#!{interpreter} {flags}
from cni.host.plugin import main

main()
"""


class ExecutableDoesNotWork(NotReady):
    """The new executable does not work on this host; the older executable stays in place."""


def install(configuration: Configuration, try_out: Callable[[Path, str], None] | None = None) -> list[str]:
    """Install on the host seen at `host.root`; return a line for each thing done.

    The executable takes its place by rename, after it has answered: no request finds a file that is busy, half or broken.
    Older bundles go when no request runs from them any more; the next installation looks again at those that stay.

    Args:
        configuration: of it, `host.root` and the CNI folders alone.
        try_out: raises `ExecutableDoesNotWork` if the executable at the host's path does not work on the host at that root.

    Raises:
        ExecutableDoesNotWork: nothing has changed for the runtime.
        Misconfigured: the host has no folder for CNI plugins there. OSError: it cannot be written.
    """
    location = ExecutableLocation.of(configuration.host)
    _require_folder(location)
    cni_folders_record.add(
        CniFolders.of(configuration.host), location.root
    )  # before its files: an uninstall finds them there
    with locked(location):
        version = python_bundle.install(location.reached_bundles(), location.bundles)
        sync_tree(location.reached_bundles() / version)
        interpreter = python_bundle.interpreter(location.bundles, version)
        text = _EXECUTABLE.format(interpreter=interpreter, flags=python_bundle.FLAGS)
        _put(location, text.encode(), try_out or answers)
        return [f"{location.executable}: version {version}", *_remove_older(location, version)]


def _require_folder(location: ExecutableLocation) -> None:
    if not location.reached().is_dir():
        raise Misconfigured(
            f"host.cniBin is {location.folder}, which is no folder of this host; it should be the folder in which the container runtime "
            "looks for CNI plugins (docs/install.md, Distributions, has that of each distribution)"
        )


@contextmanager
def locked(location: ExecutableLocation) -> Iterator[None]:
    """Lock the folder of bundles, made if it is absent: one installation at a time changes the host."""
    folder = location.reached_bundles()
    while (fd := _locked(folder)) is None:
        pass  # another installation that waited has removed it; the next try makes it again
    try:
        yield
    finally:
        os.close(fd)


def _locked(folder: Path) -> int | None:
    """Lock a folder, made if it is absent; None if its last holder has removed it meanwhile. The caller owns the descriptor."""
    folder.mkdir(mode=0o755, exist_ok=True)
    try:
        return lock.open_locked(str(folder), os.O_RDONLY | os.O_DIRECTORY, lock.wait_and_take)
    except FileNotFoundError:
        return None


def answers(root: Path, executable: str) -> None:
    """Run an executable on the host with VERSION and check its answer.

    Raises:
        ExecutableDoesNotWork: it does not, with what it said.
    """
    try:
        done = execute(root, executable, {"CNI_COMMAND": "VERSION"}, b"", Terms(_ANSWER_SECONDS), chroot=True)
    except OSError as error:  # TimeoutError included
        raise ExecutableDoesNotWork(f"the new executable cannot be run on this host: {error}") from None
    if not _is_answer(done.stdout):
        output = (done.stderr or done.stdout)[-2000:].decode(errors="replace").strip()
        raise ExecutableDoesNotWork(f"the new executable does not answer VERSION on this host: {output!r}")


def _is_answer(stdout: bytes) -> bool:
    try:
        return bool(json.loads(stdout)["supportedVersions"])
    except (ValueError, KeyError, TypeError):
        return False


def _put(location: ExecutableLocation, content: bytes, try_out: Callable[[Path, str], None]) -> None:
    candidate, executable = location.reached_candidate(), location.reached_executable()
    write_atomically(candidate, content, 0o755, durable=True)
    try:
        try_out(location.root, location.candidate)
        candidate.replace(executable)
    except BaseException:
        candidate.unlink()
        raise
    sync(executable.parent)


def _remove_older(location: ExecutableLocation, version: str) -> Iterator[str]:
    """Remove every bundle except one, if no request can still load from it.

    A process that has read an older executable began before the new one took its place: once the requests of this moment
    have ended, no process of an older version is left.
    """
    older = [path for path in location.reached_bundles().iterdir() if path.name != version]
    if not older:
        return
    left = running_plugins.await_end(location.root, _END_SECONDS)
    if left:
        yield f"{location.bundles}: {len(left)} requests still run, so older versions stay until the next installation"
        return
    for path in older:
        _remove(path)
        yield f"{path.name}: removed, nothing runs from it any more"


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
