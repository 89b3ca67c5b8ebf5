"""When this machine started."""

from pathlib import Path

_STAT = Path("/proc/stat")


def boot_time(stat: Path = _STAT) -> float:
    """Give the time of the boot in seconds since the epoch, as the clock would have told it that is right now.

    Raises:
        OSError, ValueError: the kernel does not say it.

    Source: btime of proc(5), whole seconds, which moves when somebody sets the clock (getboottime64()).
    """
    for line in stat.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "btime":
            return float(value)
    raise ValueError(f"{stat} has no btime")
