"""flannel's own state of a container, kept safe over a DEL.

flannel writes down which delegate it ran with which configuration, and deletes that on DEL also when the delegate failed;
the next DEL then finds nothing, succeeds, and the address stays (flannel-io/cni-plugin v1.2.0 to v1.9.1, flannel_linux.go,
doCmdDel: `cleanup` never sees the delegate's error). So a second name is given to the file before each DEL, and taken away
after a good one.

An empty state is of a flannel that was killed between making the file and writing it, which it does before it runs anything.
Its DEL would fail over it for ever.
"""

import posix

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = "/var/lib/cni/flannel"
_KEPT = ".railnet"  # the second name: `.<container id>.railnet`, which is no container id


class Kept:
    """The state of one container over one DEL by flannel's plugin; where there is none, nothing happens."""

    __slots__ = ("_kept", "_path")

    def __init__(self, path: str) -> None:
        """Give the state at `path` its second name; a state that an earlier DEL has lost is put back first."""
        folder, _, name = path.rpartition("/")
        self._path, self._kept = path, f"{folder}/{kept_name(name)}"
        if not _link(self._kept, self._path):  # there is a state, or nothing is kept
            _unlink(self._kept)
        if _is_empty(self._path):
            _unlink(self._path)
        _link(self._path, self._kept)

    def ended(self, success: bool) -> None:
        """Put the state back after a DEL that failed; the second name goes."""
        if not success:
            _link(self._kept, self._path)
        _unlink(self._kept)


def kept(environ: "Mapping[bytes, bytes]", stdin: bytes, root: str = "") -> Kept | None:
    """Keep the state that flannel's plugin, executed thus for a DEL, is about to delete; None where no container is named.

    `root` is where the host's files are seen, "" on the host.
    """
    container_id = environ.get(b"CNI_CONTAINERID", b"").decode("utf-8", "backslashreplace")
    return Kept(f"{root}{_folder(stdin)}/{container_id}") if container_id else None


def kept_name(container_id: str) -> str:
    """Give the second name of a state."""
    return f".{container_id}{_KEPT}"


def container_of(kept: str) -> str | None:
    """Give the container whose state's second name this is; None if it is none."""
    right = kept.startswith(".") and kept.endswith(_KEPT)
    return kept[1 : -len(_KEPT)] if right else None


def _folder(stdin: bytes) -> str:
    if b'"dataDir"' not in stdin:  # nearly always: then the fast lane need not read JSON
        return FOLDER
    from cni.host.netconf import load_object

    return str(load_object(stdin, "flannel's configuration").get("dataDir") or FOLDER)


def _link(path: str, name: str) -> bool:
    try:
        posix.link(path, name)
    except OSError:  # ENOENT: no state; EEXIST: it is there. What else may be wrong is the plugin's to tell
        return False
    return True


def _is_empty(path: str) -> bool:
    try:
        return posix.stat(path).st_size == 0
    except OSError:
        return False


def _unlink(path: str) -> None:
    try:
        posix.unlink(path)
    except OSError:
        return
