"""Where the daemon sees its host, and how long it waits there."""

from dataclasses import dataclass
from pathlib import Path

from cni.host import lock


@dataclass(frozen=True, slots=True)
class Host:
    """Where the host's mount namespace is seen, and flannel's file; how long an ADD waits for a DEL; what a delegate may take.

    `locks` is the folder of the executables' locks; `boot` names the present boot, "" where that is not known.
    """

    root: Path
    flannel: Path
    wait_seconds: float
    delegate_seconds: float
    locks: Path = Path(lock.FOLDER)
    boot: str = ""
