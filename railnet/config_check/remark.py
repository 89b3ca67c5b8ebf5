"""What `railnet config check` says about one place of a file."""

from typing import Literal, NamedTuple

Level = Literal["error", "warning", "note"]


class Remark(NamedTuple):
    """One thing that the command says.

    Attributes:
        level: an `error` has the daemon or the chart refuse the file, or a pod fail; a `warning` is accepted and probably not meant.
        line: the line, counted from 1; None if the place has none, such as a key that is missing in an empty file.
        key: the path of the value, such as `provision[0].pf`; empty for the whole file.
        message: what is wrong, and what to do.
    """

    level: Level
    line: int | None
    key: str
    message: str


def in_order(remarks: list[Remark]) -> tuple[Remark, ...]:
    """Return the remarks by their lines, those without one last, each once."""
    return tuple(sorted(dict.fromkeys(remarks), key=lambda remark: (remark.line is None, remark.line or 0)))
