"""Container images of one layer, made of programs in PATH; `oci` writes their archives."""

import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.cluster import oci

_APPLETS = ("cat", "cp", "grep", "head", "ip", "ls", "nc", "nslookup", "ping", "sh", "sleep", "true")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_FOLDERS = ("dev", "etc", "proc", "run", "sys", "tmp")


class Image(NamedTuple):
    """What an image has.

    Attributes:
        name: the full name.
        files: by path in the image, without a leading slash, the file whose bytes it gets.
        links: by path in the image, where the link leads.
        command: the image's default command, or its arguments where there is an entry point.
        entrypoint: what a container runs whose pod gives only arguments.
    """

    name: str
    files: Mapping[str, Path]
    links: Mapping[str, str] = {}
    command: Sequence[str] = ()
    entrypoint: Sequence[str] = ()

    def write(self, archive: Path) -> None:
        """Write the image as an OCI archive."""
        oci.write(archive, self.name, _layer(self), self.command, _PATH, self.entrypoint)


def busybox(name: str) -> Image:
    """Return an image with a shell and a few more commands; it sleeps by default."""
    links = {f"bin/{applet}": "busybox" for applet in _APPLETS}
    return Image(name, {"bin/busybox": program("busybox")}, links, ["/bin/sleep", "2147483647"])


def of_program(name: str, path: str, source: str) -> Image:
    """Return an image of one static program at a path, which is the image's entry point."""
    return Image(name, {path: program(source)}, entrypoint=[f"/{path}"])


def program(name: str) -> Path:
    """Return the path of a program.

    Raises:
        FileNotFoundError: PATH has no such program.
    """
    path = shutil.which(name)
    if path is None:
        raise FileNotFoundError(f"there is no {name} in PATH: start this by scripts/with-cluster")
    return Path(path)


def with_libraries(source: Path) -> dict[str, Path]:
    """Return the shared libraries that a program of this machine needs, with the loader, by their paths."""
    printed = subprocess.run(["ldd", source], check=True, capture_output=True, text=True).stdout
    paths = (word for line in printed.splitlines() for word in line.split() if word.startswith("/"))
    return {path.removeprefix("/"): Path(path) for path in paths}


def _layer(image: Image) -> io.BytesIO:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for folder in dict.fromkeys((*_FOLDERS, *_parents(image))):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        for path, source in image.files.items():
            content = source.read_bytes()
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
        for path, target in image.links.items():
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return raw


def _parents(image: Image) -> Iterator[str]:
    """Yield each folder of a file or link, parents first."""
    for path in (*image.files, *image.links):
        yield from map(str, reversed(list(Path(path).parents)[:-1]))
