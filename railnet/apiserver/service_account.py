"""The service account that a container has: where the API server is, the token, and the authority that the container trusts.

Source: kubernetes.io/docs/tasks/run-application/access-api-from-pod, "Directly accessing the REST API".
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,65536}")  # RFC 6750, section 2.1
_MAX_PORT = 0xFFFF
# A file that was changed a moment ago may change again without another time of its change: the kernel's clock has steps of some milliseconds.
_SETTLED_SECONDS = 2.0


class _Content(NamedTuple):
    """What was read of a file, and the inode, the time of change and the size that it had before."""

    version: tuple[int, int, int]
    content: bytes


class NotInCluster(Exception):
    """This process is not a container of a cluster, or has no service account; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """The address of the API server, and the folder that kubelet mounts and refreshes: `token` and `ca.crt`."""

    host: str
    port: int
    folder: Path
    _contents: dict[str, _Content] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def authority(self) -> Path:
        """The file of the certificates that the API server's certificate is verified by."""
        return self.folder / "ca.crt"

    def read_authority(self) -> bytes:
        """Return the certificates that the API server's certificate is verified by.

        Raises:
            OSError: the file cannot be read.
        """
        return self._read(self.authority)

    def token(self) -> str:
        """Return the token, as it is now.

        Raises:
            OSError: the file cannot be read, or holds no token.
        """
        file = self.folder / "token"
        text = self._read(file).decode(errors="replace").strip()
        if _TOKEN.fullmatch(text) is None:
            raise OSError(f"{file} holds no token")  # its content may be a secret
        return text

    def _read(self, file: Path) -> bytes:
        """Return a file's content; it is read again when the file has changed.

        To read it takes seven system calls, and in each of them the thread gives the interpreter's lock away.
        """
        status = file.stat()
        version = status.st_ino, status.st_mtime_ns, status.st_size
        known = self._contents.get(file.name)
        if known is not None and known.version == version:
            return known.content
        content = file.read_bytes()
        if time.time() - status.st_mtime > _SETTLED_SECONDS:
            self._contents[file.name] = _Content(version, content)
        return content


def find(environ: Mapping[str, str], folder: Path = FOLDER) -> ServiceAccount:
    """Find the API server by the environment that kubelet gives every container.

    Raises:
        NotInCluster: the environment names no API server, or the folder has no token.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "")
    number = int(port) if re.fullmatch("[0-9]{1,5}", port) else 0
    if not host or not 0 < number <= _MAX_PORT:
        raise NotInCluster(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT name no API server: this process is not in a cluster"
        )
    account = ServiceAccount(host, number, folder)
    for file in (folder / "token", account.authority):
        if not file.exists():
            raise NotInCluster(f"there is no service account: {file} does not exist")
    return account
