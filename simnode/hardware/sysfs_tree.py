"""Writing a sysfs tree so that a reader never meets half of it: a directory appears and goes in one rename.

What stands in the tree is described by `sysfs`; this module only puts it on disk.
"""

import itertools
import os
import shutil
from pathlib import Path

from simnode.hardware.sysfs_content import Link, Tree, relative


class SysfsTree:
    """A sysfs root directory; every path given is absolute within it, `/devices/…`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._staging = root / ".simnode"  # rename(2) needs the same mount
        self._serial = itertools.count()
        self._staging.mkdir(parents=True)

    def path(self, inside: str) -> Path:
        """Return the path on disk."""
        return self.root / inside.lstrip("/")

    def add(self, directory: str, entries: Tree) -> None:
        """Make a directory appear with all its entries at once."""
        staged = self._staged()
        staged.mkdir()
        self._write(staged, directory, entries)
        final = self.path(directory)
        final.parent.mkdir(parents=True, exist_ok=True)
        staged.rename(final)

    def fill(self, directory: str, entries: Tree) -> None:
        """Add entries one by one to a directory that may exist."""
        self._write(self.path(directory), directory, entries)

    def replace(self, path: str, text: str) -> None:
        """Write new content to a file; leave a file that has the content already, with what another program writes meanwhile."""
        if self.path(path).exists() and self.path(path).read_text(errors="replace") == text:
            return
        staged = self._staged()
        staged.write_text(text)
        staged.rename(self.path(path))

    def read(self, path: str) -> str:
        """Read a file without the newline at its end."""
        return self.path(path).read_text().rstrip("\n")

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link, its target written relative as sysfs does."""
        self.path(path).parent.mkdir(parents=True, exist_ok=True)
        self.path(path).symlink_to(relative(target, path))

    def leads_to(self, path: str, directory: str) -> bool:
        """Return whether a symbolic link leads below a directory of the tree."""
        return self.path(path).resolve().is_relative_to(self.path(directory).resolve())

    def remove(self, path: str) -> None:
        """Make a file, link or whole directory go at once; nothing there is success."""
        staged = self._staged()
        try:
            self.path(path).rename(staged)
        except FileNotFoundError:
            return
        if staged.is_dir() and not staged.is_symlink():
            shutil.rmtree(staged)
        else:
            staged.unlink()

    def rename(self, old: str, new: str) -> None:
        """Rename a directory."""
        self.path(old).rename(self.path(new))

    def empty(self) -> None:
        """Remove everything in the root."""
        for child in self.root.iterdir():
            shutil.rmtree(child) if child.is_dir() and not child.is_symlink() else child.unlink()

    def _staged(self) -> Path:
        return self._staging / str(next(self._serial))

    def _write(self, disk: Path, directory: str, entries: Tree) -> None:
        for name, entry in entries.items():
            path = disk / name
            os.makedirs(path.parent, exist_ok=True)
            if isinstance(entry, Link):
                path.symlink_to(relative(entry.target, f"{directory}/{name}"))
            else:
                path.write_text(entry)
