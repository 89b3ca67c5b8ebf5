"""Which boot of this machine it is, and when it began: what names a namespace by its inode holds for one boot only."""

from pathlib import Path

_STAT = Path("/proc/stat")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # a random UUID, the same in every container (random(4))


def boot_id() -> str:
    """Name the present boot.

    Raises:
        OSError: /proc is not there.
    """
    return _BOOT_ID.read_text(encoding="ascii").strip()


def boot_time(stat: Path = _STAT) -> float:
    """Return the time of the boot in seconds since the epoch, as the clock would have told it that is right now.

    Raises:
        OSError, ValueError: the kernel does not say it.

    Source: btime of proc(5), whole seconds, which moves when the clock is set (getboottime64()).
    """
    for line in stat.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "btime":
            return float(value)
    raise ValueError(f"{stat} has no btime")
