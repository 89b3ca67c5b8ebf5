"""The files by which containers learn of their claims' devices, on a tmpfs; their content is `railnet.dra.device_metadata`'s.

The container runtime mounts a file into a container when it creates the container, by the claim's CDI file. A container keeps the file that it
was created with.
"""

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from railnet.dra import device_metadata
from railnet.dra.device_metadata import NetworkData, host_path
from railnet.dra.devices import DraDevice
from railnet.dra.prepared_claim import PreparedClaim
from railnet.kernel.files import rmdir, unlink, write_atomically
from railnet.vf.pci_address import PciAddress

_log = logging.getLogger(__name__)


class DeviceMetadataFiles:
    """A folder with a folder for each claim. Every method blocks.

    Attributes:
        folder: the path, which is the host's and so the container runtime's, too.
    """

    def __init__(self, folder: Path) -> None:
        """Nothing is read or written yet."""
        self.folder = folder

    def path(self, uid: str, request: str) -> Path:
        """Return where a request's file is."""
        return host_path(self.folder, uid, request)

    def write(self, claim: PreparedClaim, known: Mapping[PciAddress, DraDevice]) -> None:
        """Write the files of a claim that kubelet asks to prepare; a file that is there may already tell of the pod's network, and stays.

        Raises:
            OSError: the folder cannot be written.
        """
        for request in claim.requests:
            if not (path := self.path(claim.identity.uid, request.name)).exists():
                path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                write_atomically(path, device_metadata.encode(claim, request, known, {}), 0o644)

    def tell_network(self, claim: PreparedClaim, known: Mapping[PciAddress, DraDevice], network: NetworkData) -> None:
        """Write the files of a claim whose VFs are in a pod, before the runtime creates the containers; a refusal is logged."""
        try:
            for request in claim.requests:
                if (
                    path := self.path(claim.identity.uid, request.name)
                ).exists():  # else the claim is unprepared by now
                    write_atomically(path, device_metadata.encode(claim, request, known, network), 0o644)
        except OSError as error:
            _log.warning("the containers of %s are not told of its interfaces: %s", claim.identity, error)

    def remove(self, uid: str) -> None:
        """Remove a claim's files; nothing happens if there are none.

        Raises:
            OSError: the kernel refuses.
        """
        with suppress(FileNotFoundError):
            _remove(self.folder / uid)

    def sweep(self, kept: Collection[str]) -> None:
        """Remove the files of claims that are not prepared; a refusal is logged."""
        try:
            for path in self.folder.iterdir():
                if path.name not in kept:
                    _remove(path)
        except FileNotFoundError:
            return
        except OSError as error:
            _log.error("%s cannot be swept: %s", self.folder, error)


def _remove(folder: Path) -> None:
    """Remove a claim's folder, which has files alone."""
    for path in folder.iterdir():
        unlink(path)
    rmdir(folder)
