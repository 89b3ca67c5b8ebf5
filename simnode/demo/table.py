"""The demo's output as a table: a line for each pod and each further rail of it, then the checks."""

from collections.abc import Iterable, Iterator
from typing import Any

from railnet.cli.table import Column, aligned
from simnode.demo.scenario import Findings

_COLUMNS = (
    *map(Column, ("node", "pod", "eth0", "net", "address", "VF", "GUID", "rail")),
    Column("ADD ms", number=True),
)


def rendered(findings: Findings) -> Iterator[str]:
    """Yield the lines."""
    yield ""
    yield from (f"  {line}" for line in aligned(_COLUMNS, list(_rows(findings.pods)), rule="─"))
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
