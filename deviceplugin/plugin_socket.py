"""A pool's socket in the folder of kubelet's plugin watcher: its file, which is on a disk of the host.

`deviceplugin.registration` decides when there is one. A disk may hang, so all functions here but `close` are for a thread.
"""

import logging
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

from railnet.errors import Misconfigured
from railnet.kernel.files import open_below, unlink
from railnet.kernel.threads.thread_opened_descriptor import ThreadOpenedDescriptor

_log = logging.getLogger(__name__)
_SUN_PATH_BYTES = 107  # sockaddr_un.sun_path has 108 with the final zero (linux/un.h)


def require_folder(root: Path, folder: Path) -> None:
    """Make sure that a folder of the host exists.

    Raises:
        OSError: it cannot be opened.
    """
    os.close(_opened(root, folder))


class PluginSocket:
    """The socket of one registration. `close` ends it, whatever a thread does meanwhile.

    Attributes:
        name: the name of the socket in the folder.
        seen_by_kubelet: the path of the socket, as kubelet sees it.
    """

    def __init__(self, root: Path, folder: Path, resource: str, start_ms: int) -> None:
        """Name a socket in `folder`, a path of the host whose root folder is at `root`.

        Raises:
            Misconfigured: the path is too long for a Unix socket.
        """
        self.name = socket_name(resource, start_ms)
        self.seen_by_kubelet = folder / self.name
        _check_length(self.seen_by_kubelet)
        self._root, self._folder, self._resource = root, folder, resource
        self._descriptor = ThreadOpenedDescriptor()  # of the folder

    def open(self) -> None:
        """Open the folder, and remove the sockets of earlier starts."""
        self._descriptor.open(lambda: _opened(self._root, self._folder))
        remove_stale_sockets(self._reached, self._resource)

    def bind(self, bind: Callable[[str], object]) -> None:
        """Have `bind` make the socket under a name that kubelet ignores. The path that `bind` gets ends with this call: gRPC looks for its socket again, on the event loop, when a server ends.

        Raises:
            OSError: it cannot be made.
        """
        own = os.dup(self._descriptor.fd)
        try:
            bind(f"unix:/proc/self/fd/{own}/.{self.name}")
        except RuntimeError as error:  # gRPC raises it for any errno, without the errno
            raise OSError(f"no socket can be bound in {self._folder}: {error}") from error
        finally:
            os.close(own)

    def show(self) -> None:
        """Rename the socket, so that kubelet finds it; its server must answer by now."""
        hidden = self._reached / f".{self.name}"
        hidden.chmod(0o600)
        hidden.rename(self._reached / self.name)

    def exists(self) -> bool:
        """Return whether kubelet can find the socket."""
        return (self._reached / self.name).exists()

    def remove(self) -> None:
        """Remove the socket's file, wherever its registration was broken off; do nothing where the folder was not opened."""
        if self._descriptor.is_open:
            for name in (self.name, f".{self.name}"):
                _remove(self._reached / name)

    def close(self) -> None:
        """Close the folder. It does not wait for the disk."""
        self._descriptor.close()

    @property
    def _reached(self) -> Path:
        """The path by which this process reaches the folder."""
        return Path(f"/proc/self/fd/{self._descriptor.fd}")


def socket_name(resource: str, start_ms: int) -> str:
    """Return the name of a socket, unique to one start; starts are milliseconds since 1970."""
    return f"railnet-{_pool(resource)}-{start_ms:011x}.sock"


def remove_stale_sockets(folder: Path, resource: str) -> None:
    """Remove the sockets of earlier starts for this resource on which no process listens.

    A socket that cannot be removed stays and is logged: no name is used twice, so it is in the way of nothing.
    """
    name = re.compile(rf"\.?railnet-{re.escape(_pool(resource))}-[0-9a-f]{{11}}\.sock")
    for path in folder.iterdir():
        if name.fullmatch(path.name) and not _is_listened_on(path):
            _remove(path)


def _opened(root: Path, folder: Path) -> int:
    return open_below(root, str(folder), os.O_PATH | os.O_DIRECTORY)


def _remove(path: Path) -> None:
    try:
        unlink(path)
    except OSError as error:
        _log.warning("%s stays: %s", path, error.strerror)


def _pool(resource: str) -> str:
    return resource.translate(str.maketrans("/.", "--"))


def _is_listened_on(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)  # EAGAIN means that a process listens and its backlog is full
        try:
            client.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except BlockingIOError:
            return True
        except OSError:  # EACCES, ELOOP, EIO: it is not known, and such a socket of ours does not exist
            return False
        return True


def _check_length(path: Path) -> None:
    if len(os.fsencode(path)) > _SUN_PATH_BYTES:
        raise Misconfigured(
            f"host.kubelet or the pool's resource is too long: the socket's path {path} has more than {_SUN_PATH_BYTES} bytes; "
            "shorten one of them"
        )
