"""The report of `railnet doctor`: a table of what was found, then for each kind what it means and what to do; or JSON. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any

from railnet import VERSION
from railnet.cli.colour import Colour, Words
from railnet.cli.table import Column, aligned
from railnet.doctor.finding import SEVERITIES, Finding

WORDS = Words({"error": Colour.RED, "warning": Colour.YELLOW, "nothing found": Colour.GREEN})
_COLUMNS = tuple(map(Column, ("SEVERITY", "FINDING", "WHERE", "SEEN")))
_WIDTH = 110
_PAGE = "docs/doctor.md"


def as_json(found: Sequence[Finding]) -> dict[str, Any]:
    """Return the report for programs."""
    return {
        "version": VERSION,
        "findings": [
            {
                "severity": one.kind.severity,
                "name": one.name,
                "where": one.where,
                "seen": one.seen,
                "meaning": one.kind.meaning,
                "remedy": one.kind.remedy,
                "page": f"{_PAGE}#{one.name}",
            }
            for one in found
        ],
    }


def rendered(found: Sequence[Finding]) -> Iterator[str]:
    """Yield the lines."""
    counted = Counter(one.kind.severity for one in found)
    counts = ", ".join(f"{counted[one]} {one}{'' if counted[one] == 1 else 's'}" for one in SEVERITIES if counted[one])
    yield f"railnet {VERSION}: {counts or 'nothing found'}"
    if not found:
        return
    yield ""
    yield from aligned(_COLUMNS, [(one.kind.severity, one.name, one.where, one.seen) for one in found])
    for name, kind in {one.name: one.kind for one in found}.items():
        yield ""
        yield f"{name} ({_PAGE}#{name})"
        yield from _paragraph("meaning", kind.meaning)
        yield from _paragraph("to do", kind.remedy)


def _paragraph(head: str, text: str) -> Iterator[str]:
    yield from wrap(
        text,
        _WIDTH,
        initial_indent=f"  {head + ':':<9}",
        subsequent_indent=" " * 11,
        break_long_words=False,
        break_on_hyphens=False,
    )
