"""Versions of Railnet as source trees: those that were installed on nodes, from git, and this checkout."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from simnode.preinstalled_files import CONFIGURATION

CHECKOUT = Path(__file__).parents[2]
# The last commit of each version before the work on the next one, newest version last. Commits after it that still name the
# version already have changes of the next one. A tag could be moved, and a clone may lack it.
OLD_COMMITS = {
    "0.1.0": "3f709f9c7a5248f8fc40285043d6ec925e6507e8",
    "0.2.0": "feb360984f1af28b15078889698473c3453b9597",
    "0.3.0": "dc1646a9a358a76453630f06e755c59edfa637b7",
    "0.4.0": "4a4f47d035e3ee2424071093b884c567a8a39248",
    "0.5.0": "0e1822b558a08c763d829294068fed4c1817a1d7",
    "0.5.1": "e42e0cd499ec3bcbd3fb42aa81a0cd9c5be46179",
}


@dataclass(frozen=True)
class Version:
    """One version, run as `python -m railnet` in its source tree by the interpreter and the libraries of the tests."""

    source: Path

    @property
    def number(self) -> str:
        """The version as the source tree names it."""
        return self._python("-c", "import railnet; print(railnet.VERSION)").stdout.strip()

    def railnet(self, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run one command of Railnet to its end."""
        return self._python("-m", "railnet", command, *options)

    def install(self) -> None:
        """Run `railnet install`."""
        done = self.railnet("install", "--config", str(CONFIGURATION))
        assert done.returncode == 0, done.stderr

    def _python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.source,  # `python -m` looks for modules there first
            env={**os.environ, "PYTHONPATH": str(self.source)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def extract(commit: str, folder: Path) -> Version:
    """Extract an old version into a folder; the test fails where git does not have it."""
    command = ["git", "-c", f"safe.directory={CHECKOUT}", "-C", str(CHECKOUT), "archive", "--format=tar", commit]
    try:
        archive = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        said = error.stderr.decode().strip() if isinstance(error, subprocess.CalledProcessError) else error
        pytest.fail(
            f"an old version of Railnet cannot be read from git: {CHECKOUT} has no commit {commit} ({said}); "
            "run the tests in a clone with its whole history (`git fetch --unshallow`)",
            pytrace=False,
        )
    subprocess.run(["tar", "--extract", "--directory", folder], input=archive, check=True)
    return Version(folder)
