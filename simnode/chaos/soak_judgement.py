"""The judgement of a soak, and its table. Pure: `tests/control_plane/soak` observes.

A well-behaved job may not fail, lose what it was given, or wait longer than twice the longest time that a job of its kind waited alone, under
the same faults, in the same soak. What Kubernetes paused after a fault of the node had failed a pod of the job, or its sandbox, is not its wait
(`job_pauses`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from simnode.chaos.job_pauses import Span, explained
from simnode.placement.figures import percentile

TIMES_ALONE = 2.0
# Few jobs come alone in a short soak, and perhaps no fault meets one of them. A leader that was killed needs so long to know all objects again,
# and an API server comes back after twelve seconds.
FLOOR_SECONDS = 20.0


class JobLife(NamedTuple):
    """A well-behaved job, from its creation to its end.

    Attributes:
        kind: what it asks for.
        beside: whether hostile tenants were there.
        waited: seconds until it had all that it asks for; None if it never had.
        harm: what it lost, and how it failed.
        pauses: when Kubernetes did nothing for it since the node had failed a pod of it, before it had all that it asks for.
        story: what the API server said of it at the end of its wait, a line for each event; only of a job that waited long.
    """

    kind: str
    name: str
    beside: bool
    waited: float | None
    harm: tuple[str, ...] = ()
    pauses: tuple[Span, ...] = ()
    story: tuple[str, ...] = ()


class Part(NamedTuple):
    """A program: the most memory of any process of it, and the processor time of all; `limit_mib` is that of its manifest, if it has one."""

    peak_mib: int
    seconds: float
    limit_mib: int | None = None


@dataclass(slots=True)
class Soaked:
    """All that was observed.

    Attributes:
        node_faults: from when until when each fault of the real node was.
        operations: how many steps of hostile tenants there were, by kind; those that the API server refused as a whole count.
        violations: what was found wrong beside the jobs: an address in a slice that no node gave, a program that ended.
    """

    seed: int
    lives: list[JobLife] = field(default_factory=list)
    operations: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    node_faults: list[Span] = field(default_factory=list)
    parts: dict[str, Part] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


def judged(soaked: Soaked) -> list[str]:
    """Return all that is wrong, in words."""
    return [*soaked.violations, *_harmed(soaked.lives), *_late(soaked), *_large(soaked.parts)]


def waits(lives: Iterable[JobLife], kind: str, *, beside: bool) -> list[float]:
    """Return how long the jobs of a kind waited."""
    return [life.waited for life in lives if (life.kind, life.beside) == (kind, beside) and life.waited is not None]


def limit(soaked: Soaked, kind: str) -> float:
    """Return how long a job of a kind may wait beside hostile tenants, without what Kubernetes paused."""
    return max(FLOOR_SECONDS, TIMES_ALONE * max(_own_waits(soaked, kind, beside=False), default=0.0))


def paused(soaked: Soaked, kind: str) -> list[float]:
    """Return the seconds of each job of a kind in which Kubernetes paused after a fault of the node."""
    seconds = (explained(life.pauses, soaked.node_faults) for life in soaked.lives if life.kind == kind)
    return [one for one in seconds if one]


def _own_waits(soaked: Soaked, kind: str, *, beside: bool) -> Iterator[float]:
    for life in soaked.lives:
        if (life.kind, life.beside) == (kind, beside) and life.waited is not None:
            yield life.waited - explained(life.pauses, soaked.node_faults)


def _harmed(lives: Iterable[JobLife]) -> Iterator[str]:
    for life in lives:
        if life.waited is None:
            yield f"{life.kind} job {life.name} never had what it asks for"
        yield from (f"{life.kind} job {life.name}: {harm}" for harm in life.harm)


def _late(soaked: Soaked) -> Iterator[str]:
    for kind in _kinds(soaked.lives):
        most = limit(soaked, kind)
        for life in soaked.lives:
            permitted = most + explained(life.pauses, soaked.node_faults)
            if life.kind == kind and life.beside and life.waited is not None and life.waited > permitted:
                late = f"{kind} job {life.name} waited {life.waited:.1f} s; permitted are {permitted:.1f} s"
                yield "\n    ".join((late, *life.story))
        for beside, when in ((False, "alone"), (True, "beside hostile tenants")):
            if not waits(soaked.lives, kind, beside=beside):
                yield f"no {kind} job ended its wait {when}: the soak is too short, or all of them hang"


def _large(parts: Mapping[str, Part]) -> Iterator[str]:
    for name, part in parts.items():
        if part.limit_mib is not None and part.peak_mib > part.limit_mib:
            yield f"{name} had {part.peak_mib} MiB at most; its container may have {part.limit_mib}"


def _kinds(lives: Iterable[JobLife]) -> list[str]:
    return sorted({life.kind for life in lives})


def summary(soaked: Soaked) -> dict[str, Any]:
    """Return all figures in the form of `scripts/soak --json`."""
    lives = soaked.lives
    return {
        "seed": soaked.seed,
        "operations": dict(soaked.operations.most_common()),
        "faults": dict(soaked.faults.most_common()),
        "jobs": {
            kind: {
                "alone": _percentiles(waits(lives, kind, beside=False)),
                "beside": _percentiles(waits(lives, kind, beside=True)),
                "limit": round(limit(soaked, kind), 1),
                "paused": _percentiles(paused(soaked, kind)),
            }
            for kind in _kinds(lives)
        },
        "parts": {name: part._asdict() for name, part in soaked.parts.items()},
        "violations": judged(soaked),
    }


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {"count": 0}
    of = {f"p{percent}": round(percentile(seconds, percent), 1) for percent in (50, 99)}
    return {"count": len(seconds), **of, "longest": round(max(seconds), 1)}


def rendered(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield a summary as lines of text."""
    yield f"{sum(figures['operations'].values())} operations of hostile tenants, {sum(figures['faults'].values())} faults"
    for title in ("operations", "faults"):
        for kind, count in figures[title].items():
            yield f"  {title[:-1] + ': ' + kind:<48}{count:>6}"
    yield f"{'seconds that jobs waited':<26}{'jobs':>6}{'p50':>8}{'p99':>8}{'longest':>9}{'permitted':>11}"
    for kind, figure in figures["jobs"].items():
        for when in ("alone", "beside"):
            of = figure[when]
            cells = "".join(f"{of.get(key, ''):>{width}}" for key, width in (("p50", 8), ("p99", 8), ("longest", 9)))
            yield f"  {kind + ', ' + when:<24}{of['count']:>6}{cells}{figure['limit'] if when == 'beside' else '':>11}"
    for kind, figure in figures["jobs"].items():
        if (of := figure["paused"])["count"]:
            yield f"  {kind}: a fault of the node failed pods of {of['count']} jobs, for which Kubernetes then paused for {of['longest']} s at most"
    yield f"{'programs':<26}{'MiB at most':>14}{'permitted':>11}{'s of a processor':>18}"
    for name, part in figures["parts"].items():
        yield f"  {name:<24}{part['peak_mib']:>14}{part['limit_mib'] or '':>11}{part['seconds']:>18.1f}"
    yield f"seed {figures['seed']}"
    yield from figures["violations"]
    yield f"violations: {len(figures['violations'])}"
