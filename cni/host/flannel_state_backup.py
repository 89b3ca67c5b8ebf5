"""Keep flannel's state of a container safe over a DEL.

flannel's plugin writes to a file which delegate it ran with which configuration. A DEL removes that file even if the delegate
failed. The next DEL finds no file and succeeds, and the address stays reserved (flannel-io/cni-plugin v1.2.0 to v1.9.1,
flannel_linux.go, doCmdDel: `cleanup` never sees the delegate's error). So the file gets a second name before each DEL, which is
removed after a DEL that succeeded.

Where the daemon has flannel's delegate executed in place of flannel (`cni.flannel_shortcut`), the executable writes and removes the file as
flannel does, so either can undo what the other has done.

An empty file is left by a plugin that was killed between making the file and writing it, before it ran a delegate. Its DEL would
fail for ever, so an empty file is removed.
"""

import posix

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = "/var/lib/cni/flannel"
_SUFFIX = ".railnet"  # the second name: `.<container id>.railnet`, which is no container id


class KeptState:
    """The state file of one container during one DEL by flannel's plugin; if there is no file, nothing happens."""

    __slots__ = ("_path", "_second")

    def __init__(self, path: str) -> None:
        """Give the state at `path` its second name. A state that an earlier DEL has removed is restored first."""
        folder, _, name = path.rpartition("/")
        self._path, self._second = path, f"{folder}/{second_name(name)}"
        if not _link(self._second, self._path):  # a state exists, or no second name does
            _unlink(self._second)
        if _is_empty(self._path):
            _unlink(self._path)
        _link(self._path, self._second)

    def ended(self, success: bool) -> None:
        """Restore the state after a DEL that failed; remove the second name."""
        if not success:
            _link(self._second, self._path)
        _unlink(self._second)


class DelegatedState:
    """The state of one container during a DEL by flannel's delegate itself: it goes when the delegate has succeeded, and only then."""

    __slots__ = ("_path",)

    def __init__(self, path: bytes) -> None:
        """Nothing is done yet."""
        self._path = path

    def ended(self, success: bool) -> None:
        """Remove the state, and a second name that an earlier DEL left, after a DEL that succeeded."""
        if success:
            folder, _, name = self._path.rpartition(b"/")
            _unlink(folder + b"/" + second_name(name.decode()).encode())
            _unlink(self._path)


def write(path: bytes, state: bytes) -> bool:
    """Write a container's state as flannel does (writeAndSyncFile, mode 0600); False if that is not possible."""
    try:
        fd = posix.open(path, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC | posix.O_CLOEXEC, 0o600)
        try:
            written = posix.write(fd, state)
            posix.fsync(fd)
        finally:
            posix.close(fd)
    except OSError:
        return False
    return written == len(state)


def keep(environ: "Mapping[bytes, bytes]", stdin: bytes, root: str = "") -> KeptState | None:
    """Keep the state that flannel's plugin removes in a DEL with this environment and stdin; None without a container id.

    `root` is where the host's files are seen, "" on the host.
    """
    container_id = environ.get(b"CNI_CONTAINERID", b"").decode("utf-8", "backslashreplace")
    return KeptState(f"{root}{_folder(stdin)}/{container_id}") if container_id else None


def second_name(container_id: str) -> str:
    """Return the second name of a container's state."""
    return f".{container_id}{_SUFFIX}"


def container_of(kept: str) -> str | None:
    """Return the container whose state has this second name; None if it is no second name."""
    right = kept.startswith(".") and kept.endswith(_SUFFIX)
    return kept[1 : -len(_SUFFIX)] if right else None


def _folder(stdin: bytes) -> str:
    if b'"dataDir"' not in stdin:  # nearly always: then the fast lane reads no JSON
        return FOLDER
    from cni.host.json_object import load_object

    return str(load_object(stdin, "flannel's configuration").get("dataDir") or FOLDER)


def _link(path: str, name: str) -> bool:
    try:
        posix.link(path, name)
    except OSError:  # ENOENT: no state; EEXIST: it is there. The plugin itself reports what else is wrong
        return False
    return True


def _is_empty(path: str) -> bool:
    try:
        return posix.stat(path).st_size == 0
    except OSError:
        return False


def _unlink(path: str | bytes) -> None:
    try:
        posix.unlink(path)
    except OSError:
        return
