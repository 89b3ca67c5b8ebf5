"""What `railnet demo` prints for people: a line for each pod and each further rail of it, then what was looked at."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from railnet.demo_scenario import Findings

_HEAD = ("node", "pod", "eth0", "net", "address", "VF", "GUID", "rail", "ADD ms")
_RIGHT = len(_HEAD) - 1  # numbers are aligned on the right


def rendered(findings: Findings) -> Iterator[str]:
    """Give the lines."""
    yield ""
    yield from _table(list(_rows(findings.pods)))
    yield ""
    yield from _pings(findings)
    for entry in findings.checks:
        yield f"  {_mark(entry['ok'])} {entry['what']}"
    yield f"  {_mark(not findings.left_over)} left over: {findings.left_over}  (links, namespaces, mounts, processes, files)"
    yield from (f"      {item}" for item in findings.left_over_items)
    yield ""


def _rows(pods: Iterable[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    node = None
    for pod in pods:
        own = ("" if pod["node"] == node else pod["node"], pod["name"], pod["eth0"])
        node, milliseconds = pod["node"], f"{pod['add_ms']:.1f}"
        for rail in pod["rails"] or [dict.fromkeys(("ifname", "address", "vf", "guid", "rail"), "-")]:
            details = (rail["ifname"], rail["address"], rail["vf"], rail["guid"], str(rail["rail"]))
            yield (*own, *details, milliseconds)
            own, milliseconds = ("", "", ""), ""


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
    yield _line(_HEAD, widths)
    yield _line(["─" * width for width in widths], widths)
    for row in rows:
        yield _line(row, widths)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    padded[_RIGHT] = cells[_RIGHT].rjust(widths[_RIGHT])
    return "  " + "  ".join(padded).rstrip()


def _pings(findings: Findings) -> Iterator[str]:
    node = {pod["name"]: pod["node"] for pod in findings.pods}
    rows = []
    for entry in findings.pings:
        source, target = entry["from"], entry["to"]
        carried = [f"{octets} bytes on rail {rail}" for rail, octets in enumerate(entry.get("rail_bytes", ()))]
        between = f"on {node[source]}" if node[source] == node[target] else f"{node[source]} → {node[target]}"
        rows.append((entry["network"], f"{source} → {target}", between, ", ".join(carried)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for entry, row in zip(findings.pings, rows, strict=True):
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"  {_mark(entry['ok'])} {cells}".rstrip()


def _mark(ok: bool) -> str:
    return "✓" if ok else "✗"
