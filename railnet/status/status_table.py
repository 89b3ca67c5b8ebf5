"""The table of `railnet status`: whether the node is served, its rails, the pods with VFs, and why other VFs are unhealthy."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from railnet.cli.colour import Colour, Words
from railnet.cli.table import Column, aligned

WORDS = Words(
    {"ready": Colour.GREEN, "not ready": Colour.RED, "ACTIVE": Colour.GREEN, "DOWN": Colour.RED, "lost": Colour.RED}
)
_STATES = ("free", "attached", "unhealthy")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_COUNTS = tuple(Column(head, number=True) for head in ("VFS", *map(str.upper, _STATES)))
_RAILS = (*map(Column, ("RAIL", "PF", "RDMA", "NETDEV", "PORT")), *_COUNTS)
_RESOURCES = (Column("RESOURCE"), *_COUNTS)
_ROCE = (
    Column("ROCE RAIL"),
    Column("PF"),
    *(Column(head, number=True) for head in ("MTU", "RDMA MTU")),
    *map(Column, ("LOSSLESS", "PRIORITY BY", "TRAFFIC CLASS")),
)
_SANDBOXES = tuple(map(Column, ("POD", "NET", "VF", "RAIL", "ADDRESS", "GUID", "STATE", "FOR")))


def rendered(told: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a report."""
    yield f"railnet {told['version']}: {'not ready' if told['reasons'] else 'ready'}"
    yield from (f"  {reason}" for reason in told["reasons"])
    yield ""
    if told["rails"]:
        yield from _rails(told)
        yield from (f"  PF {rail['address']}: {rail['fault']}" for rail in told["rails"] if rail.get("fault"))
    else:
        yield "This node has no card that can be a rail. Pods that ask for no rail run as before."
    yield from _unusable_rails(told)
    yield from _roce(told)
    yield from _unknown_leaves(told)
    yield from _not_in_the_cluster(told)
    if told["vfs"]:
        yield ""
        yield from aligned(_RESOURCES, list(_resources(told["vfs"])))
    if told["sandboxes"]:
        yield ""
        yield from _sandboxes(_by_pod(told["sandboxes"]))
        yield from _lost(_by_pod(told["sandboxes"]))
    yield from _unhealthy(told["vfs"])
    yield from _quarantined(told.get("quarantine", ()))  # a daemon of an older version does not send it
    if told["queue"]:
        yield ""
        yield f"{told['queue']} plugins wait for a delegate slot."


def _not_in_the_cluster(told: dict[str, Any]) -> Iterator[str]:
    """Yield what the API server does not have of this node, and why."""
    if told.get("condition"):
        yield ""
        yield "What the node's condition lacks:"
        yield f"  {told['condition']}"
    if told.get("errors"):
        yield ""
        yield "What is wrong with rails that are ACTIVE:"
        yield from (f"  {line}" for line in told["errors"])
    if told.get("kernelLog"):
        yield ""
        yield "Why the kernel's log is not read:"
        yield f"  {told['kernelLog']}"
    if told.get("slices"):
        yield ""
        yield "Why the node's ResourceSlices are not as they should be:"
        yield f"  {told['slices']}"
    if told.get("memlock"):
        yield ""
        yield "Why containers with a rail keep the runtime's limit of locked memory:"
        yield f"  {told['memlock']}"


def _rails(told: dict[str, Any]) -> Iterator[str]:
    """Yield the table of the rails; it has leaf switches if the daemon asks for them."""
    rails, rows = told["rails"], [_rail(rail, told["vfs"]) for rail in told["rails"]]
    if not any("leaf" in rail for rail in rails):
        return aligned(_RAILS, rows)
    leaves = [(rail.get("leaf") or "-",) for rail in rails]
    return aligned((*_RAILS, Column("LEAF/PORT")), [row + leaf for row, leaf in zip(rows, leaves, strict=True)])


def _unknown_leaves(told: dict[str, Any]) -> Iterator[str]:
    unknown = [f"rail {rail['rail']}: {rail['leafReason']}" for rail in told["rails"] if rail.get("leafReason")]
    if unknown or told.get("topology"):
        yield ""
        yield "What topology labels lack:"
    yield from (f"  {reason}" for reason in unknown)
    if told.get("topology"):
        yield f"  {told['topology']}"


def _rail(rail: dict[str, Any], vfs: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    counted = Counter(vf["state"] for vf in vfs if vf.get("card") == rail["address"])
    port = (rail["port"] or "").rpartition(" ")[2]  # sysfs says "4: ACTIVE"
    if rail.get("ports", [1]) not in ([], [1]):
        port = f"{port} ({','.join(map(str, rail['ports']))})"
    facts = (rail["address"], rail["rdma"], rail["netdev"], port)
    number = "-" if rail["rail"] is None else str(rail["rail"])
    return (number, *(fact or "-" for fact in facts), str(rail["vfs"]), *_counts(counted))


def _unusable_rails(told: dict[str, Any]) -> Iterator[str]:
    reasons = dict.fromkeys(rail.get("reason") for rail in told["rails"])
    text = "\n".join(told["reasons"])
    unsaid = [reason for reason in reasons if reason is not None and reason not in text]
    if unsaid:
        yield ""
        yield "Rails that no pod gets:"
    yield from (f"  {reason}" for reason in unsaid)


def _resources(vfs: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for resource in dict.fromkeys(vf["resource"] for vf in vfs):
        counted = Counter(vf["state"] for vf in vfs if vf["resource"] == resource)
        yield (resource, str(counted.total()), *_counts(counted))


def _counts(counted: Counter[str]) -> tuple[str, ...]:
    return tuple(str(counted[state]) for state in _STATES)


def _by_pod(sandboxes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(sandboxes, key=lambda sandbox: (sandbox["pod"]["namespace"], sandbox["pod"]["name"], sandbox["id"]))


def _roce(told: dict[str, Any]) -> Iterator[str]:
    if told.get("roce"):
        yield ""
        yield from aligned(_ROCE, [_roce_port(port) for port in told["roce"]])
    yield from (f"  {failure['address']}: {failure['why']}" for failure in told.get("roceUnread", ()))


def _roce_port(port: dict[str, Any]) -> tuple[str, ...]:
    lossless = port["losslessPriorities"]
    priorities = "-" if lossless is None else ", ".join(map(str, lossless)) or "none"
    facts = (port["mtu"], port["rdmaMtu"])
    rail = "-" if port["rail"] is None else str(port["rail"])
    numbers = ("-" if fact is None else str(fact) for fact in facts)
    return (rail, port["address"], *numbers, priorities, port["priorityBy"] or "-", port["trafficClass"] or "-")


def _sandboxes(sandboxes: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the table of the pods; it has GIDs if a rail speaks RoCE."""
    rows = [row for sandbox in sandboxes for row in _sandbox(sandbox)]
    rails = [rail for sandbox in sandboxes for rail in sandbox["rails"] or [{}]]
    if not any("gid" in rail for rail in rails):
        return aligned(_SANDBOXES, rows)
    gids = [(f"{gid['index']}: {gid['address']}" if (gid := rail.get("gid")) else "-",) for rail in rails]
    return aligned((*_SANDBOXES, Column("GID")), [row + gid for row, gid in zip(rows, gids, strict=True)])


def _lost(sandboxes: Iterable[dict[str, Any]]) -> Iterator[str]:
    lost = [(sandbox["pod"], rail) for sandbox in sandboxes for rail in sandbox["rails"] if rail.get("lost")]
    if lost:
        yield ""
        yield "Rails that pods have lost. Delete these pods; their controllers make others:"
    for pod, rail in lost:
        yield f"  {pod['namespace']}/{pod['name']} {rail['ifname']}: VF {rail['vf']} {rail['lost']}"


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


def _quarantined(paths: Sequence[str]) -> Iterator[str]:
    if paths:
        yield ""
        yield "Records that the daemon does not believe; its log says why. Look at the files, then delete them:"
    yield from (f"  {path}" for path in paths)


def _unhealthy(vfs: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield each reason once: all VFs of a PF with a port that is down have the same reason."""
    reasons = Counter(vf["reason"] for vf in vfs if vf["reason"] is not None)
    if reasons:
        yield ""
        yield "Unhealthy VFs, which kubelet gives to no new pod:"
    for reason, count in reasons.items():
        yield f"  {count} {'VF' if count == 1 else 'VFs'}: {reason}"
