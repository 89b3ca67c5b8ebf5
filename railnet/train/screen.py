"""Lines that replace each other on a terminal; elsewhere, each line that is new is printed once."""

import shutil
from collections.abc import Sequence
from typing import TextIO

from railnet.cli.escapes import printable

_UP_AND_CLEAR = "\x1b[{}F\x1b[J"
_CLEAR = "\x1b[J"


class Screen:
    """The lines that a command shows while it waits."""

    def __init__(self, out: TextIO) -> None:
        """Write to a file, which may be a terminal."""
        self._out, self.live = out, out.isatty()
        self._shown: Sequence[str] = ()

    def show(self, lines: Sequence[str]) -> None:
        """Show these lines in place of the last ones; on a terminal, as much of them as fits."""
        lines = [printable(line) for line in lines]
        if self.live:
            size = shutil.get_terminal_size()
            lines = [line[: size.columns - 1] for line in lines[: size.lines - 1]]
            self._out.write((_UP_AND_CLEAR.format(len(self._shown)) if self._shown else _CLEAR) + _joined(lines))
        else:
            self._out.write(_joined([line for line in lines if line not in self._shown]))
        self._shown = lines
        self._out.flush()


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
