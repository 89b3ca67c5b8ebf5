"""A container image made of Debian's static busybox: of most pods, and of all pods' sandboxes."""

import io
import shutil
import tarfile
from pathlib import Path

from tests.cluster import oci

NAME = "docker.io/local/busybox:1"
_APPLETS = ("cat", "grep", "head", "ip", "ls", "nc", "ping", "sh", "sleep", "true")
_FOLDERS = ("bin", "dev", "etc", "proc", "sys", "tmp")


def write(archive: Path) -> None:
    """Write the image.

    Raises:
        FileNotFoundError: PATH has no busybox.
    """
    program = shutil.which("busybox")
    if program is None:
        raise FileNotFoundError("there is no busybox in PATH: start this by scripts/cluster")
    oci.write(archive, NAME, _layer(Path(program)), ["/bin/sleep", "2147483647"], "/bin")


def _layer(program: Path) -> io.BytesIO:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for folder in _FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        content = program.read_bytes()
        entry = tarfile.TarInfo("bin/busybox")
        entry.size, entry.mode = len(content), 0o755
        tar.addfile(entry, io.BytesIO(content))
        for applet in _APPLETS:
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    return raw
