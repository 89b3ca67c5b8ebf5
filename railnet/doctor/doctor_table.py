"""The report of `railnet doctor`: a table of what was found, then for each kind what it means and what to do; or JSON. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any

from railnet import VERSION
from railnet.cli.colour import Colour, Words
from railnet.cli.table import Column, aligned
from railnet.doctor.finding_kinds import SEVERITIES, Finding

WORDS = Words({"error": Colour.RED, "warning": Colour.YELLOW, "nothing found": Colour.GREEN})
_COLUMNS = tuple(map(Column, ("SEVERITY", "FINDING", "WHERE", "SEEN")))
_WIDTH = 110
_PAGE = "docs/doctor.md"


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the report for programs."""
    return {
        "version": VERSION,
        "findings": [
            {
                "severity": finding.kind.severity,
                "name": finding.name,
                "where": finding.where,
                "seen": finding.seen,
                "meaning": finding.kind.meaning,
                "remedy": finding.kind.remedy,
                "page": f"{_PAGE}#{finding.name}",
            }
            for finding in findings
        ],
    }


def rendered(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the lines."""
    counted = Counter(finding.kind.severity for finding in findings)
    counts = ", ".join(
        f"{counted[severity]} {severity}{'' if counted[severity] == 1 else 's'}"
        for severity in SEVERITIES
        if counted[severity]
    )
    yield f"railnet {VERSION}: {counts or 'nothing found'}"
    if not findings:
        return
    yield ""
    yield from aligned(
        _COLUMNS, [(finding.kind.severity, finding.name, finding.where, finding.seen) for finding in findings]
    )
    for name, kind in {finding.name: finding.kind for finding in findings}.items():
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
