"""Text from outside, as a terminal may show it. Pure."""

from collections.abc import Iterator

_LONGEST_LINE = 4096  # characters, before any is replaced


def printable(line: str) -> str:
    """Return a line in which each character that cannot be printed, such as in a link name that a pod chose, is its number.

    Of a line that is longer than a page of a terminal, the beginning is shown, and how much more there is.
    """
    if len(line) > _LONGEST_LINE:
        return f"{printable(line[:_LONGEST_LINE])}… ({len(line) - _LONGEST_LINE} characters more)"
    return line if line.isprintable() else "".join(map(_shown, line))


def printable_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, each `printable`."""
    return map(printable, text.split("\n"))


def _shown(sign: str) -> str:
    return sign if sign.isprintable() else ascii(sign)[1:-1]
