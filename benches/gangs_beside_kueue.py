"""Gangs that come and go on a whole control plane: placed by Railnet's gates, its PodGroups, Kueue's topology-aware scheduling, or nothing.

Run by `scripts/bench gangs-beside-kueue`, inside scripts/with-control-plane, on nodes without a kubelet. In turn all get the same Jobs, from one
seed, on the same nodes. What is measured is what watches of pods and Jobs report, not what the controllers say of themselves. It has no targets.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from operator import itemgetter
from pathlib import Path
from statistics import mean
from typing import NamedTuple, TextIO

from benches.gang_load.figures import Span, bound_at, placed, usage
from benches.gang_load.gangs import Fabric, Gang, Load, load
from benches.gang_load.record import PodTimes, Record
from simnode.placement.figures import percentile
from tests.cluster.process import Program, wait_until
from tests.control_plane.api import JsonObject
from tests.control_plane.controllers import Controllers
from tests.control_plane.gang_cluster import LEAF, gating, preferred, required
from tests.control_plane.gang_engine_cluster import grouping, packing
from tests.control_plane.gang_jobs import CONSTRAINT, GROUP
from tests.control_plane.kueue import PREFERRED, QUEUE, QUEUE_LABEL, REQUIRED, Kueue
from tests.control_plane.nodes import node, some_nodes
from tests.control_plane.process_use import Used, used
from tests.control_plane.server import ApiServer
from tests.control_plane.watched import Reported, Watched

ENGINES = ("gates", "kubernetes", "packing", "kueue", "none")
DEFAULT_ENGINES = ("gates", "kubernetes", "kueue")
NODES, LEAF_NODES, GPUS = 640, 16, 8
MINUTES, GANGS, SHARE = 15.0, 5000, 0.9
ONE_GANG = 5000
LARGE = 64  # pods, of a gang that is reported apart as well
_LIFE = "pod-complete.stage.kwok.x-k8s.io/delay"
_FOR_EVER = 1_000_000.0
_LONG_SECONDS = 1200.0
_DRAIN_SECONDS = 300.0
_STALLED_SECONDS = 60.0

Figures = dict[str, float]
"""By what was measured, with its unit."""


class Engine(NamedTuple):
    """What places gangs.

    Attributes:
        programs: its own, by name.
        adapted: makes a Job one that it places.
        is_idle: whether it holds nothing of Jobs that are gone.
    """

    programs: Mapping[str, Program]
    adapted: Callable[[JsonObject, Gang], JsonObject]
    is_idle: Callable[[], bool]


class WatchedPods(Watched):
    """A watch of which only times are kept: the objects of all events would take gigabytes."""

    def __init__(self, server: ApiServer, namespace: str, record: Record) -> None:
        """Watch the pods of a namespace."""
        super().__init__(server.api, f"/api/v1/namespaces/{namespace}/pods")
        self._record = record

    def take(self, event: Reported) -> None:
        """Keep the times of a pod."""
        self._record.observe_pod(event.at, event.kind, event.object)


class WatchedJobs(Watched):
    """A watch of which only the Jobs that failed are kept."""

    def __init__(self, server: ApiServer, namespace: str, record: Record) -> None:
        """Watch the Jobs of a namespace."""
        super().__init__(server.api, f"/apis/batch/v1/namespaces/{namespace}/jobs")
        self._record = record

    def take(self, event: Reported) -> None:
        """Keep the name of a Job that failed."""
        self._record.observe_job(event.object)


def main() -> None:
    """Measure, and print."""
    arguments = parsed()
    fabric = Fabric(arguments.nodes, LEAF_NODES, GPUS)
    gangs = load(fabric, arguments.gangs, 60 * arguments.minutes, SHARE) if arguments.gangs else None
    large = Gang("one", min(arguments.one_gang, fabric.gpus), required=False, comes=0, lives=_FOR_EVER)
    table: dict[str, Figures] = {}
    with ApiServer() as server, some_nodes(server.api, nodes(fabric)), tempfile.TemporaryDirectory() as folder:
        for name in arguments.engine or DEFAULT_ENGINES:
            files = Path(folder) / name
            files.mkdir()
            with engine(name, server, files, fabric) as running:
                bench = Bench(server, fabric, running, f"gangs-{name}")
                table[name] = bench.load(gangs) if gangs else {}
                table[name] |= bench.one_gang(large) if large.pods else {}
            report({name: table[name]}, as_json=False, stream=sys.stderr)
    report(table, arguments.json, sys.stdout)


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(prog="scripts/bench gangs-beside-kueue", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"how long gangs come ({MINUTES:g})")
    parser.add_argument("--gangs", type=int, default=GANGS, help=f"how many come; 0 for none ({GANGS})")
    parser.add_argument("--nodes", type=int, default=NODES, help=f"nodes of {GPUS} GPUs, {LEAF_NODES} a leaf ({NODES})")
    parser.add_argument("--one-gang", type=int, default=ONE_GANG, help=f"pods of one gang; 0 for none ({ONE_GANG})")
    parser.add_argument(
        "--engine",
        action="append",
        choices=ENGINES,
        help=f"what places them ({', '.join(DEFAULT_ENGINES)}, in turn); packing: PodGroups, and a scheduler that packs",
    )
    return parser.parse_args()


class Bench:
    """The measurements with one engine, whose Jobs are in a namespace of their own."""

    def __init__(self, server: ApiServer, fabric: Fabric, running: Engine, namespace: str) -> None:
        """Make the namespace."""
        self._server, self._fabric, self._engine, self._namespace = server, fabric, running, namespace
        self._leaf_of = {node_name(number): number // fabric.leaf_nodes for number in range(fabric.nodes)}
        self._jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self._created: dict[str, float] = {}
        server.namespace(namespace)

    def load(self, gangs: Load) -> Figures:
        """Measure gangs that come and go, beside those that have filled the cluster."""
        with self._recorded() as record:
            filled = self._fill([gang._replace(lives=_FOR_EVER) for gang in gangs.first], record)
            before, began = self._used(), time.monotonic()
            latest = self._come_and_go(gangs)
            ended = time.monotonic()
            lasted = self._used()
            self._wait_for(gangs.then, record)
            figures = self._of_gangs(gangs, record, (began, ended))
        self._clear()
        return {
            "the first gangs: pods": float(sum(gang.pods for gang in gangs.first)),
            **filled,
            "a gang lives on average, s": gangs.life,
            "Jobs created or deleted later than planned, s at most": latest,
            **figures,
            **spent(before, lasted),
        }

    def one_gang(self, gang: Gang) -> Figures:
        """Measure one large gang on an empty cluster."""
        title = f"one gang of {gang.pods:,} pods"
        with self._recorded() as record:
            before = self._used()
            seconds = self._start_all([gang], record)
            after = self._used()
            pods = list(record.pods.values())
            span = placed(self._fabric, gang, pods, self._leaf_of)
        self._clear()
        return {
            f"{title}: all bound after its creation, s": seconds,
            f"{title}: the first bound after its creation, s": min(pod.bound or 0 for pod in pods)
            - self._created[gang.name],
            f"{title}: leaves beyond the least": float(span.leaves - span.least_leaves),
            f"{title}: nodes beyond the least": float(span.nodes - span.least_nodes),
            f"{title}: pods lost": float(sum(pod.lost for pod in pods)),
            **{f"{title}: {what}": amount for what, amount in spent(before, after).items()},
        }

    @contextmanager
    def _recorded(self) -> Iterator[Record]:
        record = Record()
        self._created = {}
        with WatchedPods(self._server, self._namespace, record), WatchedJobs(self._server, self._namespace, record):
            yield record

    def _fill(self, gangs: Sequence[Gang], record: Record) -> Figures:
        """Create gangs at once, and wait until all are bound, or none was for a minute: where pods are spread, no leaf may be left for a large one."""
        began = time.monotonic()
        for gang in gangs:
            self._create(gang)

        def latest() -> float:
            return max((pod.bound for pod in list(record.pods.values()) if pod.bound is not None), default=began)

        def rests() -> bool:
            return all_bound(gangs, record) or time.monotonic() - latest() > _STALLED_SECONDS

        wait_until(rests, _LONG_SECONDS, "the gangs that come first to be bound")
        unbound = sum(record.bound.get(gang.name, 0) < gang.pods for gang in gangs)
        return {
            "the first gangs: the last one bound after, s": latest() - began,
            "the first gangs: not bound": float(unbound),
        }

    def _start_all(self, gangs: Sequence[Gang], record: Record) -> float:
        began = time.monotonic()
        for gang in gangs:
            self._create(gang)
        wait_until(lambda: all_bound(gangs, record), _LONG_SECONDS, "the gangs that come first to be bound")
        return time.monotonic() - began

    def _come_and_go(self, gangs: Load) -> float:
        """Create each gang when it comes, and delete the first ones; return by how much the latest Job was late."""
        began, latest = time.monotonic(), 0.0
        goes = ((gang.lives, partial(self._delete, gang.name)) for gang in gangs.first)
        comes = ((gang.comes, partial(self._create, gang)) for gang in gangs.then)
        for when, act in sorted((*goes, *comes), key=itemgetter(0)):
            time.sleep(max(0.0, began + when - time.monotonic()))
            latest = max(latest, time.monotonic() - began - when)
            act()
        return latest

    def _delete(self, name: str) -> None:
        self._server.api.delete(f"{self._jobs}/{name}?propagationPolicy=Background")

    def _create(self, gang: Gang) -> None:
        self._created[gang.name] = time.monotonic()
        answer = self._server.api.create(self._jobs, self._engine.adapted(job(gang), gang))
        if answer.status != 201:  # noqa: PLR2004 - Created
            raise RuntimeError(f"the Job of {gang.name} was not created: {answer.message}")

    def _wait_for(self, gangs: Sequence[Gang], record: Record) -> None:
        """Wait until all gangs are bound, or so long that the others count as never bound."""
        try:
            wait_until(lambda: all_bound(gangs, record), _DRAIN_SECONDS, "all gangs to be bound")
        except TimeoutError as error:
            print(f"scripts/bench gangs-beside-kueue: {error}", file=sys.stderr)

    def _of_gangs(self, gangs: Load, record: Record, between: tuple[float, float]) -> Figures:
        pods = list(record.pods.values())
        by_gang: dict[str, list[PodTimes]] = {}
        for pod in pods:
            by_gang.setdefault(pod.gang, []).append(pod)
        bound = {gang: bound_at(gang, by_gang.get(gang.name, ())) for gang in gangs.then}
        waits = {gang: at - self._created[gang.name] for gang, at in bound.items() if at is not None}
        kept = [(gang, [pod for pod in by_gang[gang.name] if not pod.lost]) for gang in waits]
        spans = [placed(self._fabric, gang, where, self._leaf_of) for gang, where in kept]
        named = {gang.name: gang for gang in (*gangs.first, *gangs.then)}
        share = usage(self._fabric, named, self._created, pods, self._leaf_of, between)
        return {
            "gangs": float(len(gangs.then)),
            "their pods": float(sum(gang.pods for gang in gangs.then)),
            **of_waits("from creation to bound", list(waits.values())),
            **of_waits(f"… of gangs of {LARGE} pods and more", [s for gang, s in waits.items() if gang.pods >= LARGE]),
            **of_spans(spans),
            "GPUs in use, %": 100 * share.used,
            "GPUs idle while something that fits waits, %": 100 * share.idle,
            "gangs never bound": float(len(gangs.then) - len(waits)),
            "pods evicted or failed": float(sum(pod.lost for gang in gangs.then for pod in by_gang.get(gang.name, ()))),
            "Jobs failed": float(len(record.failed)),
        }

    def _used(self) -> dict[str, Used]:
        plane = self._server.plane
        others = {"API server": plane.apiserver, "scheduler": plane.scheduler, "controller manager": plane.controllers}
        return {name: used(program) for name, program in {**self._engine.programs, **others}.items()}

    def _clear(self) -> None:
        """Delete all Jobs, and wait until nothing is left of them."""
        for body in self._server.api.items(self._jobs):
            self._delete(body["metadata"]["name"])
        wait_until(self._is_empty, _LONG_SECONDS, f"Jobs and pods in {self._namespace} to be gone")
        wait_until(self._engine.is_idle, _LONG_SECONDS, "what is kept of the Jobs to be gone")

    def _is_empty(self) -> bool:
        pods = f"/api/v1/namespaces/{self._namespace}/pods"
        return not any(self._server.api.items(f"{path}?limit=1") for path in (self._jobs, pods))


def report(table: Mapping[str, Figures], as_json: bool, stream: TextIO) -> None:
    """Print a line for each figure, with a column for each engine."""
    rounded = {name: {what: round(value, 2) for what, value in figures.items()} for name, figures in table.items()}
    if as_json:
        print(json.dumps(rounded), file=stream)
        return
    print(f"{'':<72}" + "".join(f"{name:>12}" for name in rounded), file=stream)
    for what in dict.fromkeys(what for figures in rounded.values() for what in figures):
        cells = (f"{figures[what]:>12g}" if what in figures else f"{'':>12}" for figures in rounded.values())
        print(f"{what:<72}" + "".join(cells), file=stream, flush=True)


def of_waits(title: str, waits: Sequence[float]) -> Figures:
    """Return the percentiles of waits, if there are any."""
    return {f"{title}: p{percent}, s": percentile(waits, percent) for percent in (50, 99) if waits}


def of_spans(spans: Sequence[Span]) -> Figures:
    """Return how many leaves and nodes gangs use that they need not use."""
    if not spans:
        return {}
    return {
        "gangs in more leaves than the least, %": 100 * mean(span.leaves > span.least_leaves for span in spans),
        "leaves beyond the least, of 100 that would do": beyond((span.leaves, span.least_leaves) for span in spans),
        "gangs on more nodes than the least, %": 100 * mean(span.nodes > span.least_nodes for span in spans),
        "nodes beyond the least, of 100 that would do": beyond((span.nodes, span.least_nodes) for span in spans),
    }


def beyond(pairs: Iterable[tuple[int, int]]) -> float:
    """Return by how many in a hundred what is used is more than the least."""
    more, least = 0, 0
    for number, enough in pairs:
        more, least = more + number - enough, least + enough
    return 100 * more / least


def spent(before: Mapping[str, Used], after: Mapping[str, Used]) -> Figures:
    """Return what programs used between two looks, and the most memory that they ever had."""
    seconds = {f"{name}: s of a processor": after[name].seconds - before[name].seconds for name in after}
    return {**seconds, **{f"{name}: MiB at most": float(after[name].most) for name in after}}


def all_bound(gangs: Iterable[Gang], record: Record) -> bool:
    """Return whether all gangs have had so many pods bound as they have pods."""
    return all(record.bound.get(gang.name, 0) >= gang.pods for gang in gangs)


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"node-{number}"


def nodes(fabric: Fabric) -> list[JsonObject]:
    """Return the nodes, leaf after leaf."""
    labels = (f"leaf-{number // fabric.leaf_nodes}" for number in range(fabric.nodes))
    return [
        node(node_name(number), {LEAF: leaf}, rdma_ib_vf=str(fabric.node_gpus)) for number, leaf in enumerate(labels)
    ]


def job(gang: Gang) -> JsonObject:
    """Return a gang's Job, which nothing places yet; it is gone soon after it is complete."""
    amounts = {"rdma/ib_vf": "1"}
    container = {"name": "main", "image": "train:1", "resources": {"requests": amounts, "limits": amounts}}
    template = {
        "metadata": {"labels": {}, "annotations": {_LIFE: f"{gang.lives:.1f}s"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    spec = {"completions": gang.pods, "parallelism": gang.pods, "completionMode": "Indexed", "template": template}
    return {"metadata": {"name": gang.name, "labels": {}}, "spec": {**spec, "ttlSecondsAfterFinished": 1}}


def gated(body: JsonObject, gang: Gang) -> JsonObject:
    """Make a Job a gang of Railnet's, of either engine."""
    metadata = body["spec"]["template"]["metadata"]
    metadata["labels"] = {f"{GROUP}/name": gang.name, f"{GROUP}/min-available": str(gang.pods)}
    text = required() if gang.required else json.dumps({"preferred": json.loads(preferred())["preferred"]})
    metadata["annotations"][CONSTRAINT] = text
    return body


def queued(body: JsonObject, gang: Gang) -> JsonObject:
    """Make a Job one of Kueue's queue."""
    body["metadata"]["labels"][QUEUE_LABEL] = QUEUE
    body["spec"]["suspend"] = True
    body["spec"]["template"]["metadata"]["annotations"][REQUIRED if gang.required else PREFERRED] = LEAF
    return body


@contextmanager
def engine(name: str, server: ApiServer, files: Path, fabric: Fabric) -> Iterator[Engine]:
    """Run what places gangs."""
    with ExitStack() as ending:
        if name in ("gates", "kubernetes", "packing"):
            if name != "gates":
                ending.enter_context(server.serving_pod_groups())
            if name == "packing":
                ending.enter_context(server.scheduling_by(packing()))
            reviews = ending.enter_context(gating(server, files) if name == "gates" else grouping(server, files))
            replica = Controllers(server, files, options=["--gangs"])
            ending.callback(replica.stop)
            replica.start()
            replica.wait()
            yield Engine({"controllers": replica.program, "webhook": reviews.replicas[0].program}, gated, lambda: True)
        elif name == "kueue":
            kueue = ending.enter_context(Kueue(server, files, LEAF))
            kueue.queue("gangs-kueue", fabric.gpus)
            yield Engine({"controllers": kueue.program}, queued, lambda: kueue.workloads() == 0)
        else:
            yield Engine({}, lambda body, _: body, lambda: True)


if __name__ == "__main__":
    main()
