"""The file of a bundle: a tar.gz with a manifest. Written whole or not at all; read with bounds, and nothing of it is put on a disk.

What reads a bundle trusts nothing in it: it came by e-mail.
"""

import gzip
import io
import json
import os
import re
import tarfile
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from railnet import VERSION
from railnet.bundle.parts import BundleParts, LeftOut
from railnet.errors import Misconfigured

MANIFEST = "manifest.json"
_TOP = "railnet-bundle"
_FORMAT = 1
_MOST_FILES = 20_000
_MOST_FILE_BYTES = 8 << 20  # more than MOST_FILE_BYTES of this version: a newer one may take more
_MOST_BYTES = 256 << 20  # decompressed, with tar's headers
_NAME = re.compile(r"(?!.*(^|/)\.\.?(/|$))[A-Za-z0-9._@+-]{1,255}(/[A-Za-z0-9._@+-]{1,255}){0,7}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._@+/-]")


class Bundle(NamedTuple):
    """What a bundle has.

    Attributes:
        manifest: what it was asked for, by which version, when.
        files: the content of each file, by its path.
        left_out: what is missing.
    """

    manifest: Mapping[str, Any]
    files: Mapping[str, bytes]
    left_out: tuple[LeftOut, ...]


@contextmanager
def new(path: Path) -> Iterator[BinaryIO]:
    """Open a new file for a bundle, which only its owner may read; it has its name when the block ends without an error.

    Raises:
        Misconfigured: no file can be made there; said before anything is gathered.
        OSError: the file cannot get its name.
    """
    part = path.with_name(f".{path.name}.part") if path.name else path
    try:
        if path.is_dir():
            raise Misconfigured(f"{path} is a folder; name a file in it, such as {path / 'report.tar.gz'}")
        if path.exists() and not path.is_file():
            raise Misconfigured(f"{path} is no regular file, and a bundle would replace it; name another file")
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        raise Misconfigured(
            f"{path} cannot be written: the folder {path.parent} does not exist; make it, or name another"
        ) from None
    except OSError as error:
        raise Misconfigured(
            f"{path} cannot be written: {error.strerror}; name a file in a folder in which you may write"
        ) from None
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write(file: BinaryIO, parts: BundleParts, asked: Mapping[str, Any]) -> None:
    """Write a bundle into a file that `new` has opened.

    Raises:
        OSError: it cannot be written.
    """
    names = {safe(name): text.encode(errors="replace") for name, text in parts}
    manifest = {
        "format": _FORMAT,
        "version": VERSION,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "asked": dict(asked),
        "files": {name: len(content) for name, content in names.items()},
        "left_out": [entry._asdict() for entry in parts.left_out],
    }
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in {MANIFEST: (json.dumps(manifest, indent=1) + "\n").encode(), **names}.items():
            entry = tarfile.TarInfo(f"{_TOP}/{name}")
            entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(content))


def safe(name: str) -> str:
    """Return a name that `read` takes: other characters become `_`, and a part that is only dots too."""
    parts = [_UNSAFE.sub("_", each)[:255] for each in name.split("/") if each]
    return "/".join(each if each.strip(".") else "_" for each in parts)


def read(path: Path) -> Bundle:
    """Read a bundle.

    Raises:
        Misconfigured: it cannot be read, is no bundle, or is larger than a bundle is.
    """
    try:
        with path.open("rb") as file:
            return bundle_of(unpacked(file))
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        EOFError,
        zlib.error,
        tarfile.TarError,
        RecursionError,
    ) as error:
        reason = getattr(error, "strerror", None) or error
        raise Misconfigured(
            f"{path} cannot be read as a bundle: {reason!s:.300}; give a file of `railnet bundle`"
        ) from None


def bundle_of(files: dict[str, bytes]) -> Bundle:
    """Return the bundle that some files are; the manifest is taken out of them.

    Raises:
        ValueError, LookupError, TypeError, RecursionError: the manifest is none.
    """
    manifest = json.loads(files.pop(MANIFEST, b"{}"))
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise ValueError(f"its manifest has not the format {_FORMAT}")
    left_out = tuple(LeftOut(str(entry["what"]), str(entry["why"])) for entry in manifest.get("left_out", []))
    return Bundle(manifest, files, left_out)


class _BoundedReader(io.RawIOBase):
    """Decompressed bytes, of which there may be a limited number: a few kilobytes can stand for terabytes."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file, self._left = gzip.GzipFile(fileobj=file), _MOST_BYTES

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= self._left:
            raise ValueError(f"it has more than {_MOST_BYTES >> 20} MiB")
        content = self._file.read(size)
        self._left -= len(content)
        return content


def unpacked(file: BinaryIO) -> dict[str, bytes]:
    """Return the content of each file of an archive, by its path.

    Raises:
        OSError, EOFError, zlib.error, tarfile.TarError: it is no tar.gz. ValueError: it has what no bundle has.
    """
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=_BoundedReader(file), mode="r|") as archive:
        for entry in archive:
            name = entry.name.removeprefix(f"{_TOP}/")
            if not entry.isreg() or entry.name == name or _NAME.fullmatch(name) is None:
                raise ValueError(f"it has {entry.name!r:.80}, which is no file that a bundle has")
            if entry.size > _MOST_FILE_BYTES or len(files) >= _MOST_FILES or name in files:
                raise ValueError(f"its file {name!r:.80} is too large, is there twice, or is one of too many")
            opened = archive.extractfile(entry)
            files[name] = b"" if opened is None else opened.read()
    return files
