"""The files of prepared claims in the host's folder of CDI specifications; their content is `railnet.dra.cdi_spec`'s.

The container runtime reads the folder whenever a container is created (containerd 2, CRI-O), so a file appears whole or not at all.
"""

import logging
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from railnet.dra import cdi_spec
from railnet.dra.prepared_claim import PreparedClaim
from railnet.kernel.files import open_below, read_regular, sync, unlink, write_atomically

_log = logging.getLogger(__name__)
# A constant of CDI for what is made while the host runs (cncf-tags/container-device-interface, pkg/cdi/spec-dirs.go, DefaultDynamicDir).
_PARENT, _NAME = "/var/run", "cdi"
_MOST_BYTES = 1 << 20
_FOLDER_FLAGS = os.O_PATH | os.O_DIRECTORY


class CdiFiles:
    """The folder on the host whose root is at `root`. Every method blocks: the disk may be slow."""

    def __init__(self, root: Path, metadata: Path) -> None:
        """Nothing is read or written yet. `metadata` is the host's folder of the files that containers get (`railnet.dra.device_metadata_files`)."""
        self._root, self._metadata = root, metadata

    def write(self, claim: PreparedClaim) -> None:
        """Write a claim's file, unless it has the right content; it survives a power cut when this returns.

        Raises:
            OSError: the folder cannot be made or written.
        """
        content = cdi_spec.encode(claim, self._metadata)
        with self._folder() as folder:
            path = folder / cdi_spec.file_name(claim.identity.uid)
            with suppress(OSError):
                if read_regular(path, _MOST_BYTES) == content:
                    return
            write_atomically(path, content, 0o644, durable=True)  # every runtime may read it, as other drivers' files

    def remove(self, uid: str) -> None:
        """Remove a claim's file; nothing happens if there is none.

        Raises:
            OSError: the kernel refuses.
        """
        with suppress(FileNotFoundError), self._folder(make=False) as folder:
            unlink(folder / cdi_spec.file_name(uid))
            sync(folder)

    def sweep(self, kept: Collection[str]) -> None:
        """Remove the files of claims that are not prepared, and what interrupted writes left; a refusal is logged."""
        try:
            with self._folder(make=False) as folder:
                for path in folder.iterdir():
                    uid = cdi_spec.uid_of(path.name)
                    if uid is not None and (uid not in kept or path.name.startswith(".")):
                        _log.info("%s/%s/%s is of no prepared claim and is removed", _PARENT, _NAME, path.name)
                        unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            _log.error("%s/%s cannot be swept: %s", _PARENT, _NAME, error.strerror)

    @contextmanager
    def _folder(self, *, make: bool = True) -> Iterator[Path]:
        """Open the folder; yield a path by which this process reaches it, also where /var/run is a link."""
        try:
            fd = open_below(self._root, f"{_PARENT}/{_NAME}", _FOLDER_FLAGS)
        except FileNotFoundError:
            if not make:
                raise
            self._make()
            fd = open_below(self._root, f"{_PARENT}/{_NAME}", _FOLDER_FLAGS)
        try:
            yield Path(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)

    def _make(self) -> None:
        parent = open_below(self._root, _PARENT, _FOLDER_FLAGS)
        try:
            with suppress(FileExistsError):  # a runtime or another driver made it meanwhile
                os.mkdir(_NAME, 0o755, dir_fd=parent)
        finally:
            os.close(parent)
