"""A sysfs tree on disk, of which a reader never sees a half-written part: a directory appears and disappears by one rename.

`sysfs_content` has the content; this module only writes it.
"""

import itertools
import os
import shutil
from pathlib import Path

from simnode.hardware.sysfs_content import Symlink, Tree, relative


class SysfsTree:
    """A sysfs root directory; each path argument is absolute within it, `/devices/…`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._staging = root / ".simnode"  # rename(2) needs the same mount
        self._serial = itertools.count()
        self._staging.mkdir(parents=True)
        # Daemons up to 0.5.1, which tests of upgrades run, take TUN netdevs for VFs' only where this file is.
        (root / "simulated").touch()

    def path(self, inside: str) -> Path:
        """Return the path on disk."""
        return self.root / inside.lstrip("/")

    def add(self, directory: str, entries: Tree) -> None:
        """Make a directory appear at once with all its entries."""
        staged = self._staged()
        staged.mkdir()
        self._write(staged, directory, entries)
        final = self.path(directory)
        final.parent.mkdir(parents=True, exist_ok=True)
        staged.rename(final)

    def fill(self, directory: str, entries: Tree) -> None:
        """Add entries one after the other to a directory that may exist."""
        self._write(self.path(directory), directory, entries)

    def replace(self, path: str, text: str) -> None:
        """Write new content to a file; do not touch a file that has this content, so that another program's write is kept."""
        if self.path(path).exists() and self.path(path).read_text(errors="replace") == text:
            return
        staged = self._staged()
        staged.write_text(text)
        staged.rename(self.path(path))

    def read(self, path: str) -> str:
        """Return a file's content without the newline at its end."""
        return self.path(path).read_text().rstrip("\n")

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link; its target is relative, as in sysfs."""
        self.path(path).parent.mkdir(parents=True, exist_ok=True)
        self.path(path).symlink_to(relative(target, path))

    def leads_to(self, path: str, directory: str) -> bool:
        """Return whether a symbolic link leads into a directory of the tree."""
        return self.path(path).resolve().is_relative_to(self.path(directory).resolve())

    def remove(self, path: str) -> None:
        """Remove a file, a link or a whole directory at once; a missing path is success."""
        staged = self._staged()
        try:
            self.path(path).rename(staged)
        except FileNotFoundError:
            return
        if staged.is_dir() and not staged.is_symlink():
            shutil.rmtree(staged)
        else:
            staged.unlink()

    def empty(self) -> None:
        """Remove all entries of the root."""
        for child in self.root.iterdir():
            shutil.rmtree(child) if child.is_dir() and not child.is_symlink() else child.unlink()

    def _staged(self) -> Path:
        return self._staging / str(next(self._serial))

    def _write(self, disk: Path, directory: str, entries: Tree) -> None:
        for name, entry in entries.items():
            path = disk / name
            os.makedirs(path.parent, exist_ok=True)
            if isinstance(entry, Symlink):
                path.symlink_to(relative(entry.target, f"{directory}/{name}"))
            else:
                path.write_text(entry)
