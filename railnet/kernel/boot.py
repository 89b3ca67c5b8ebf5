"""The id and the time of the machine's present boot. An inode identifies a network namespace within one boot only."""

from pathlib import Path

_STAT = Path("/proc/stat")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # a random UUID, the same in every container (random(4))


def boot_id() -> str:
    """Return the id of the present boot.

    Raises:
        OSError: /proc is not mounted.
    """
    return _BOOT_ID.read_text(encoding="ascii").strip()


def boot_time(stat: Path = _STAT) -> float:
    """Return the time of the boot in seconds since the epoch, by the present setting of the clock.

    Raises:
        OSError, ValueError: the kernel does not report it.

    Source: btime of proc(5), in whole seconds. It moves when the clock is set (getboottime64()).
    """
    for line in stat.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "btime":
            return float(value)
    raise ValueError(f"{stat} has no btime")
