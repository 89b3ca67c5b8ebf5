"""The machine that a demo runs on: a snapshot of it before, and what is new on it after the demo."""

import os

from simnode.demo import scenario
from simnode.judge.machine_snapshot import Snapshot, added, difference
from simnode.waiting import until_empty

_FOLDERS = (
    "/run",
    "/var/lib/cni",
    "/var/lib/railnet",
    "/etc/cni",
    "/etc/railnet",
    "/opt/cni",
    "/dev/infiniband",
)
_SECONDS, _LOOK_SECONDS = 10.0, 0.5


def look() -> Snapshot:
    """Return a snapshot: of the processes only those below this one, which must have adopted the orphans (`libc.adopt_orphans`)."""
    return scenario.snapshot(_FOLDERS, "--below", str(os.getpid()))


def left_over(before: Snapshot) -> list[str]:
    """Return what is new on the machine and stays for some seconds; other programs may make files and links, too."""
    return until_empty(lambda: difference(before, look()), _SECONDS, _LOOK_SECONDS)


def added_since(before: Snapshot) -> list[str]:
    """Do the same as `left_over`, but not for what is missing: other programs end, too, while a demo stays."""
    return until_empty(lambda: added(before, look()), _SECONDS, _LOOK_SECONDS)
