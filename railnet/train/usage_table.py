"""The view of the cluster's resources as text, and as JSON. Pure."""

from collections.abc import Iterator
from typing import Any

from railnet.cli.table import Column, aligned
from railnet.jobs.cluster_usage import JobUse, Share, Usage
from railnet.jobs.gang.overview import GangUse
from railnet.jobs.rails_apart import as_json as apart_as_json
from railnet.jobs.rails_apart import words as apart_words
from railnet.objects.resource_amounts import CPU, MILLI, amount_text

_SHARES = (
    Column("CPU", number=True),
    Column("MEMORY", number=True),
    Column("GPUS", number=True),
    Column("RAILS", number=True),
)
_CLUSTER = (Column("NODES"), *_SHARES)
_JOBS = (Column("NAMESPACE"), Column("JOB"), Column("PODS", number=True), Column("RUNNING", number=True), *_SHARES)
_OPERATOR = Column("OPERATOR")
_GANGS = (
    Column("NAMESPACE"),
    Column("GANG"),
    Column("PODS", number=True),
    Column("WAITING", number=True),
    Column("RUNNING", number=True),
    Column("PLACE"),
)
_MOST_PLACES = 3
_OTHER = "(other pods)"
_MOST_REASONS = 3


def rendered(usage: Usage, *, nodes: bool, wide: bool = False) -> Iterator[str]:
    """Yield the lines; `wide` adds the operator of each job.

    Without `nodes`, nothing is known of the cluster as a whole, and nothing is said of it.
    """
    if nodes:
        rows = [
            (f"{usage.usable} of {usage.nodes} take pods", *_known(usage, _cells(usage.room))),
            ("requested", *_cells(usage.held)),
            ("free", *_known(usage, _cells(usage.free))),
        ]
        yield from aligned(_CLUSTER, rows)
        if usage.nodes_of_unknown_rails:
            yield (
                f"rails are unknown: nodes with pods that have rails, and without rails of their own: {usage.nodes_of_unknown_rails}; "
                "VFs in ResourceSlices are not counted here"
            )
        yield ""
    if not usage.jobs:
        yield "no pods"
        return
    columns = (*_JOBS, _OPERATOR) if wide else _JOBS
    rows_of_jobs = (row for jobs in usage.namespaces.values() for row in _rows(jobs))
    yield from aligned(columns, [row[: len(columns)] for row in rows_of_jobs])
    if usage.gangs:
        yield ""
        yield from aligned(_GANGS, [_gang_row(gang) for gang in usage.gangs])
    waiting = [
        *(line for job in usage.jobs for line in _waiting(job)),
        *(_gang_line(gang) for gang in usage.gangs if gang.gated or gang.why),
        *(f"{job.namespace}/{job.name}: {apart_words(job.apart)}" for job in usage.jobs if job.apart is not None),
        *([usage.reach.trouble] if usage.reach.trouble else []),
    ]
    if waiting:
        yield ""
        yield from waiting


def as_json(usage: Usage, *, nodes: bool) -> dict[str, Any]:
    """Return the view as JSON has it: cores, bytes, and numbers of devices; null for rails that are unknown."""
    unknown = {"rails": None} if usage.nodes_of_unknown_rails else {}
    cluster = {
        "nodes": usage.nodes,
        "usable": usage.usable,
        "allocatable": {**_numbers(usage.room), **unknown},
        "requested": _numbers(usage.held),
        "free": {**_numbers(usage.free), **unknown},
        "nodesOfUnknownRails": usage.nodes_of_unknown_rails,
    }
    jobs, gangs = [_job(job) for job in usage.jobs], [_gang(gang) for gang in usage.gangs]
    return {**({"cluster": cluster} if nodes else {}), "jobs": jobs, "gangs": gangs}


def _rows(jobs: tuple[JobUse, ...]) -> Iterator[tuple[str, ...]]:
    """Yield a namespace's row with its sums, and below it one for each job, with the operator as its last cell; a namespace without jobs has one row."""
    held, wanted = Share(), Share()
    for job in jobs:
        held, wanted = held.plus(job.held), wanted.plus(job.wanted)
    pods, running = sum(job.running + job.waiting for job in jobs), sum(job.running for job in jobs)
    yield (jobs[0].namespace, "", str(pods), str(running), *_cells(held, wanted), "")
    if len(jobs) > 1 or jobs[0].name:
        for job in jobs:
            numbers = (str(job.running + job.waiting), str(job.running))
            yield ("", job.name or _OTHER, *numbers, *_cells(job.held, job.wanted), job.operator or "-")


def _gang_row(gang: GangUse) -> tuple[str, ...]:
    pods = str(gang.pods) if gang.least is None else f"{gang.pods} of {max(gang.least, gang.pods)}"
    places = [", ".join(f"{key}={value}" for key, value in place) or "any nodes" for place in gang.places]
    more = [f"{len(places) - _MOST_PLACES} more"] if len(places) > _MOST_PLACES else []
    place = "; ".join([*places[:_MOST_PLACES], *more])
    return gang.namespace, gang.name, pods, str(gang.gated), str(gang.running), place


def _gang_line(gang: GangUse) -> str:
    """Return what a gang waits for, since when, where it may be, and which gang is before it."""
    since = f" since {gang.created}" if gang.created else ""
    behind = f", behind gang {gang.behind}" if gang.behind else ""
    why = f": {gang.why}" if gang.why else ""
    return f"gang {gang.namespace}/{gang.name} waits{since} for a place {gang.level}{behind}{why}"


def _gang(gang: GangUse) -> dict[str, Any]:
    return {
        "namespace": gang.namespace,
        "gang": gang.name,
        "minAvailable": gang.least,
        "pods": gang.pods,
        "gated": gang.gated,
        "running": gang.running,
        "places": [dict(place) for place in gang.places],
        "why": gang.why or None,
        "since": gang.created or None,
        "level": gang.level,
        "behind": gang.behind or None,
    }


def _waiting(job: JobUse) -> Iterator[str]:
    name = f"{job.namespace}/{job.name or _OTHER}"
    for why, count in job.reasons[:_MOST_REASONS]:
        yield f"{name}: {count} {'pods wait' if count > 1 else 'pod waits'}: {why}"
    if len(job.reasons) > _MOST_REASONS:
        yield f"{name}: {sum(count for _, count in job.reasons[_MOST_REASONS:])} more pods wait for other reasons"


def _cells(held: Share, wanted: Share | None = None) -> tuple[str, ...]:
    """Return a share's cells; what is requested and not yet given follows a plus."""
    more = wanted or Share()
    return tuple(
        f"{amount_text(resource, mine)}{f'+{amount_text(resource, others)}' if others else ''}"
        for resource, mine, others in zip(Share._fields, held, more, strict=True)
    )


def _known(usage: Usage, cells: tuple[str, ...]) -> tuple[str, ...]:
    """Return cells of a share of the cluster, with `unknown` for rails that are."""
    return (*cells[:-1], "unknown") if usage.nodes_of_unknown_rails else cells


def _job(job: JobUse) -> dict[str, Any]:
    return {
        "namespace": job.namespace,
        "job": job.name or None,
        "operator": job.operator or None,
        "running": job.running,
        "waiting": job.waiting,
        "requested": _numbers(job.held),
        "wanted": _numbers(job.wanted),
        "reasons": [{"why": why, "pods": count} for why, count in job.reasons],
        "railsApart": apart_as_json(job.apart),
    }


def _numbers(share: Share) -> dict[str, float]:
    """Return a share as JSON has it: whole cores as whole numbers."""
    cores, thousandths = divmod(share.cpu, MILLI)
    return {**share._asdict(), CPU: share.cpu / MILLI if thousandths else cores}
