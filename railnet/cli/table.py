"""A text table: aligned columns under their heads. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from railnet.cli.escapes import printable


class Column(NamedTuple):
    """A column's head; numbers are aligned on the right."""

    head: str
    number: bool = False


def aligned(columns: Sequence[Column], rows: Sequence[Sequence[str]], rule: str = "") -> Iterator[str]:
    """Yield the lines: the heads, a line of `rule` characters if `rule` is given, and the rows, with `printable` cells."""
    safe = [tuple(map(printable, row)) for row in rows]
    heads = [column.head for column in columns]
    widths = [max(map(len, cells)) for cells in zip(heads, *safe, strict=True)]
    ruled = [[rule * width for width in widths]] if rule else []
    for row in (heads, *ruled, *safe):
        cells = (
            cell.rjust(width) if column.number else cell.ljust(width)
            for column, cell, width in zip(columns, row, widths, strict=True)
        )
        yield "  ".join(cells).rstrip()
