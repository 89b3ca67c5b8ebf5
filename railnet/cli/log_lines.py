"""The lines of a log: text from outside, such as the name that a pod's author gives an owner, cannot end a line or reach a terminal."""

import logging
from types import TracebackType

from railnet.cli.escapes import printable_lines

_FORM = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class PrintableLines(logging.Formatter):
    """A message begins a line, and its further lines are indented, so that none looks like another message."""

    def __init__(self) -> None:
        """Have the form of a container's log."""
        super().__init__(_FORM)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name of logging.Formatter
        """Return the lines of a record without its traceback."""
        return "\n    ".join(printable_lines(super().formatMessage(record)))

    def formatException(self, ei: _ExceptionInfo) -> str:  # noqa: N802 - the name of logging.Formatter
        """Return a traceback."""
        return "\n".join(printable_lines(super().formatException(ei)))
