"""What `railnet doctor --bundle` finds in a bundle: the findings that were made when it was gathered, and what is missing. Pure.

Nothing is looked at again: the findings are those of the machine and the moment of the bundle.
"""

import json
from collections.abc import Iterator
from typing import Any

from railnet.bundle.archive import Bundle
from railnet.doctor.finding_kinds import KINDS, Finding

_REPORT = "doctor.json"
_LONGEST = 2000


def findings(bundle: Bundle) -> tuple[Finding, ...]:
    """Return the findings of all nodes and of the cluster, each with the node where it was made."""
    of_reports = [
        finding
        for path in sorted(bundle.files)
        if path.rpartition("/")[2] == _REPORT
        for finding in _of_report(path, bundle.files[path])
    ]
    return (*of_reports, *(Finding("not-in-the-bundle", entry.what, entry.why) for entry in bundle.left_out))


def _of_report(path: str, content: bytes) -> Iterator[Finding]:
    folder = path.rpartition("/")[0]
    node = folder.removeprefix("nodes/") if folder.startswith("nodes/") else ""
    try:
        listed = json.loads(content)["findings"]
        for entry in listed:
            yield _finding(entry, f"{node}: " if node else "")
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        yield Finding("could-not-be-read", path, f"it is no report of railnet doctor: {error!s:.200}")


def _finding(entry: Any, prefix: str) -> Finding:
    name, where, seen = (str(entry[key])[:_LONGEST] for key in ("name", "where", "seen"))
    if name not in KINDS:
        return Finding("could-not-be-read", f"{prefix}{where}", f"a newer Railnet found {name:.80} here: {seen}")
    return Finding(name, f"{prefix}{where}", seen)
