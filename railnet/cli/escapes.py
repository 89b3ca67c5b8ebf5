"""Text from outside, as a terminal may show it. Pure."""

from collections.abc import Iterator


def printable(line: str) -> str:
    """Return a line in which each character that cannot be printed, such as in a link name that a pod chose, is its number."""
    return line if line.isprintable() else "".join(map(_shown, line))


def printable_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, each `printable`."""
    return map(printable, text.split("\n"))


def _shown(sign: str) -> str:
    return sign if sign.isprintable() else ascii(sign)[1:-1]
