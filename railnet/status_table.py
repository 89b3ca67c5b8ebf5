"""What `railnet status` prints for people: whether the node is served, its rails, its pods' VFs, and what is wrong with the others."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

_STATES = ("free", "attached", "unhealthy")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


class _Column(NamedTuple):
    head: str
    number: bool = False  # numbers are aligned on the right


_RAILS = (
    _Column("RAIL"),
    _Column("PF"),
    _Column("RDMA"),
    _Column("NETDEV"),
    _Column("PORT"),
    _Column("VFS", number=True),
    *(_Column(state.upper(), number=True) for state in _STATES),
)
_RESOURCES = (_Column("RESOURCE"), _Column("VFS", number=True), *_RAILS[-len(_STATES) :])
_SANDBOXES = tuple(map(_Column, ("POD", "NET", "VF", "RAIL", "ADDRESS", "GUID", "STATE", "FOR")))


def rendered(told: dict[str, Any]) -> Iterator[str]:
    """Give the lines for what `railnet.report` told."""
    yield f"railnet {told['version']}: {'not ready' if told['reasons'] else 'ready'}"
    yield from (f"  {reason}" for reason in told["reasons"])
    yield ""
    if told["rails"]:
        yield from _table(_RAILS, [_rail(rail, told["vfs"]) for rail in told["rails"]])
    else:
        yield "This node has no card that can be a rail: no pod gets one here, and all others are as before."
    if told["vfs"]:
        yield ""
        yield from _table(_RESOURCES, list(_resources(told["vfs"])))
    if told["sandboxes"]:
        yield ""
        yield from _table(_SANDBOXES, [row for sandbox in _by_pod(told["sandboxes"]) for row in _sandbox(sandbox)])
    yield from _unhealthy(told["vfs"])
    if told["queue"]:
        yield ""
        yield f"{told['queue']} plugins wait for a place to run."


def _rail(rail: dict[str, Any], vfs: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    counted = Counter(vf["state"] for vf in vfs if vf["rail"] == rail["rail"])
    port = (rail["port"] or "").rpartition(" ")[2]  # sysfs says "4: ACTIVE"
    facts = (rail["address"], rail["rdma"], rail["netdev"], port)
    return (str(rail["rail"]), *(fact or "-" for fact in facts), str(rail["vfs"]), *_counts(counted))


def _resources(vfs: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for resource in dict.fromkeys(vf["resource"] for vf in vfs):
        counted = Counter(vf["state"] for vf in vfs if vf["resource"] == resource)
        yield (resource, str(counted.total()), *_counts(counted))


def _counts(counted: Counter[str]) -> tuple[str, ...]:
    return tuple(str(counted[state]) for state in _STATES)


def _by_pod(sandboxes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(sandboxes, key=lambda one: (one["pod"]["namespace"], one["pod"]["name"], one["id"]))


def _sandbox(sandbox: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    pod = sandbox["pod"]
    own = f"{pod['namespace']}/{pod['name']}" if pod["name"] else f"sandbox {sandbox['id'][:20]}"
    end = (sandbox["stage"], _duration(sandbox["seconds"]))
    for rail in sandbox["rails"] or [{"ifname": "", "vf": "", "rail": "", "addresses": (), "guid": ""}]:
        addresses = ", ".join(rail["addresses"])
        yield (own, rail["ifname"], rail["vf"], str(rail["rail"]), addresses or "-", rail["guid"] or "-", *end)
        own, end = "", ("", "")


def _duration(seconds: float) -> str:
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f}{name}"
    return f"{seconds:.0f}s"


def _unhealthy(vfs: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Name each reason once: a PF whose port is down has a hundred VFs that say so."""
    reasons = Counter(vf["reason"] for vf in vfs if vf["reason"] is not None)
    if reasons:
        yield ""
        yield "Not healthy, so kubelet gives them to no new pod:"
    for reason, count in reasons.items():
        yield f"  {count} {'VF' if count == 1 else 'VFs'}: {reason}"


def _table(columns: Sequence[_Column], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, cells)) for cells in zip([column.head for column in columns], *rows, strict=True)]
    for row in ([column.head for column in columns], *rows):
        cells = (
            cell.rjust(width) if column.number else cell.ljust(width)
            for column, cell, width in zip(columns, row, widths, strict=True)
        )
        yield "  ".join(cells).rstrip()
