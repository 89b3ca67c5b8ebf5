"""Files written so that a reader, or the next start, sees the old content or the new one and nothing between."""

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file by rename(2) within its folder.

    No fsync: what Railnet writes so lives on a tmpfs, or can be derived again after a power cut.

    Raises:
        OSError: the folder is missing or full; the old content stays and no temporary file is left.
    """
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(fd, "wb") as file:
            file.write(content)
            os.fchmod(fd, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def below(root: Path, absolute: str) -> Path:
    """Find a path of the host's in its mount namespace as seen at `root` (/proc/1/root from a container, else /)."""
    return root / absolute.lstrip("/")
