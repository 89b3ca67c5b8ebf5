"""Where the plugin executable is on a host, and what belongs to it."""

from pathlib import Path
from typing import NamedTuple

from railnet.configuration import HostConfiguration
from railnet.kernel.files import followed

NAME = "railnet"
_BUNDLES, _CANDIDATE = ".railnet", ".candidate"


class ExecutableLocation(NamedTuple):
    """The folder in which the runtime looks for plugins: its path on the host, whose root folder is at `root`.

    Railnet's names in it are `NAME` and one folder, with the bundles of all versions.
    """

    root: Path
    folder: str = str(HostConfiguration().cni_bin)

    @classmethod
    def of(cls, host: HostConfiguration) -> "ExecutableLocation":
        """Return the configured one."""
        return cls(host.root, str(host.cni_bin))

    @property
    def executable(self) -> str:
        """The executable's path on the host."""
        return f"{self.folder}/{NAME}"

    @property
    def bundles(self) -> str:
        """The path on the host of the folder of bundles."""
        return f"{self.folder}/{_BUNDLES}"

    @property
    def candidate(self) -> str:
        """The path on the host of an executable that is tried out."""
        return f"{self.bundles}/{_CANDIDATE}"

    def reached(self) -> Path:
        """Return the path by which this process reaches the folder.

        Raises:
            OSError: links of its path lead in a circle.
        """
        return followed(self.root, self.folder)

    def reached_executable(self) -> Path:
        """Return the path by which this process reaches the executable."""
        return self.reached() / NAME

    def reached_bundles(self) -> Path:
        """Return the path by which this process reaches the folder of bundles."""
        return self.reached() / _BUNDLES

    def reached_candidate(self) -> Path:
        """Return the path by which this process reaches an executable that is tried out."""
        return self.reached_bundles() / _CANDIDATE
