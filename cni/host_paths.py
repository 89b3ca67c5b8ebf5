"""Where the daemon sees its host, and how long it waits there."""

from dataclasses import dataclass
from pathlib import Path

from cni.host import lock
from vf.record import Record


@dataclass(frozen=True, slots=True)
class HostPaths:
    """Where the host's mount namespace is seen, and flannel's file; how long an ADD waits for a DEL; what a delegate may take.

    `locks` is the folder of the executables' locks; `boot` names the present boot, "" where that is not known.
    """

    root: Path
    flannel: Path
    wait_seconds: float
    delegate_seconds: float
    locks: Path = Path(lock.FOLDER)
    boot: str = ""

    def is_of_an_older_boot(self, record: Record) -> bool:
        """Tell whether a record is surely of a boot before the present one, whose namespaces are all gone."""
        return "" not in (record.boot, self.boot) and record.boot != self.boot
