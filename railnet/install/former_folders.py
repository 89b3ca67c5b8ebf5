"""Leave the CNI folders that Railnet used before its configuration named others: a runtime must find no stale file of Railnet's there."""

import logging
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from railnet.configuration import HostConfiguration
from railnet.daemon.conflist import conflist
from railnet.daemon.conflist.conflist import ConflistFolder
from railnet.install import cni_folders_record, running_plugins
from railnet.install.executable_location import ExecutableLocation
from railnet.kernel.files import followed

_log = logging.getLogger(__name__)
_END_SECONDS = 1.0


def conflist_folders(host: HostConfiguration) -> list[ConflistFolder]:
    """Find the other folders of configurations in which Railnet's is, or a copy of Railnet's."""
    current = ConflistFolder.of(host)
    folders = (ConflistFolder(host.root, path) for path in _others(host, "conf"))
    return [
        folder
        for folder in folders
        if folder.reached().is_dir()
        and not _is_same(folder.reached(), current.reached())
        and (conflist.copies(folder) or conflist.files_beside_railnet(folder))
    ]


def executable_locations(host: HostConfiguration) -> list[ExecutableLocation]:
    """Find the other folders of plugins in which Railnet's executable is, or a bundle."""
    current = ExecutableLocation.of(host)
    locations = (ExecutableLocation(host.root, path) for path in _others(host, "bin"))
    return [
        location
        for location in locations
        if not _is_same(location.reached(), current.reached())
        and (location.reached_executable().exists() or location.reached_bundles().exists())
    ]


def leave(host: HostConfiguration, searched: Collection[str]) -> bool:
    """Remove Railnet's files from the folders that are not configured any more; return whether none is left.

    For a daemon whose configuration the runtime uses by now. `searched` are the folders, paths on the host, in which the runtime was seen to
    look for plugins: nothing is removed unless the configured one is among them. The runtime looks for the executable of a DEL there, too, so
    nothing needs an older one but requests that run.

    Raises:
        OSError: a folder cannot be read or written.
    """
    if not _is_searched(ExecutableLocation.of(host), searched):
        return False
    for folder in conflist_folders(host):
        from railnet.install import conflist_removal  # noqa: PLC0415 - hardly any daemon needs it

        _log.info("Railnet's configuration is in %s now, and leaves %s", host.cni_conf, folder.path)
        conflist_removal.remove(folder)
    locations = executable_locations(host)
    if not locations:
        return True
    if running_plugins.await_end(host.root, _END_SECONDS):
        return False
    _remove(locations)
    return True


def _is_searched(location: ExecutableLocation, searched: Collection[str]) -> bool:
    if any(os.path.normpath(folder) == location.folder for folder in searched):
        return True
    reached = location.reached()
    return any(_is_same(followed(location.root, folder), reached) for folder in searched)


def _remove(locations: Iterable[ExecutableLocation]) -> None:
    for location in locations:
        location.reached_executable().unlink(missing_ok=True)
        shutil.rmtree(location.reached_bundles(), ignore_errors=True)
        _log.info("%s is removed: Railnet's executable is in another folder now", location.executable)


def _others(host: HostConfiguration, kind: str) -> Iterator[str]:
    """Yield the recorded paths of one kind beside the configured one, each once."""
    current = getattr(cni_folders_record.CniFolders.of(host), kind)
    yield from dict.fromkeys(
        path for folders in cni_folders_record.recorded(host.root) if (path := getattr(folders, kind)) != current
    )


def _is_same(folder: Path, other: Path) -> bool:
    """Return whether two paths are one folder: a link or a mount may lead from the runtime's usual folder to its own."""
    try:
        return folder.samefile(other)
    except (FileNotFoundError, NotADirectoryError):
        return False
