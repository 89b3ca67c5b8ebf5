"""The metrics that Railnet exports: the texts of all three programs, made by the programs' own code, and what is in them.

Where a label's values are words of the code, they are taken from there: a stage that is renamed is renamed here, too.
"""

import asyncio
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, NamedTuple, get_args, get_type_hints

from cni.primary_gc.state_files import StateFolder
from cni.request_handler import _VERBS
from deviceplugin.devices import OfferedVf
from railnet.admission.review import Outcome
from railnet.apiserver.client import RequestFailed
from railnet.apiserver.request import ApiObject, Collection, Request, create, get, watch
from railnet.configuration import Configuration, Publish
from railnet.controllers_process.metrics import ControllersMetrics, CountingApiServer
from railnet.daemon.metrics import Gauges, Metrics
from railnet.daemon.node_object.rail_errors import RailErrors
from railnet.daemon.rail_counters import RailCounters
from railnet.fabric.rdma_counter_deltas import OF_A_PF, OF_A_VF
from railnet.jobs.operators import OPERATORS
from railnet.kernel.kernel_log import KernelLog
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.record import SandboxPod
from railnet.vf.vf_table import Owner, VfTable
from railnet.webhook.metrics import AdmissionMetrics
from tests.deviceplugin.builders import a_vf
from tests.railnet.controllers.cluster_in_memory import Cluster, Refusal
from tests.railnet.kernel.tree import ON_NODE, OTHER_PF, OTHER_VF, PF, Tree
from tests.railnet.vf.builders import FIRST, a_record, an_attachment

ROOT = Path(__file__).resolve().parents[2]
Program = Literal["node", "admission", "controllers"]
_SAMPLE = re.compile(r'(?P<name>\w+)(?:\{(?P<labels>(?:\w+="[^"\\]*",?)*)\})? (?P<value>\S+)')
# What Prometheus adds to each sample of a target (docs/operations.md, "Monitoring"). The operator's PodMonitor adds more.
TARGETS: Mapping[Program, Mapping[str, str]] = {
    "node": {"job": "railnet-node", "instance": "127.0.0.1:9474", "node": "gpu-7"},
    "admission": {"job": "railnet-admission", "instance": "10.244.0.9:8080"},
    "controllers": {"job": "railnet-controllers", "instance": "10.244.0.10:8080"},
}


class Series(NamedTuple):
    """One sample of a text, with its target's labels; `family` is the name in its TYPE line."""

    program: Program
    family: str
    name: str
    labels: Mapping[str, str]
    value: float
    kind: str


def parse(program: Program, text: str) -> Iterator[Series]:
    """Yield the samples of a text with the labels of its target, which must not be among the sample's own."""
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        found = _SAMPLE.fullmatch(line)
        assert found is not None, line
        own = dict(re.findall(r'(\w+)="([^"]*)"', found["labels"] or ""))
        target = TARGETS[program]
        assert not own.keys() & target.keys(), line
        name = found["name"]
        family = name if name in kinds else re.sub("_(bucket|sum|count)$", "", name)
        yield Series(program, family, name, {**target, **own}, float(found["value"]), kinds[family])


def families(text: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))


@cache
def texts() -> Mapping[Program, str]:
    """Return what each program answers to GET /metrics after it has counted at least one of everything."""
    return {"node": _of_node(), "admission": _of_admission(), "controllers": _of_controllers()}


@cache
def exported() -> tuple[Series, ...]:
    """Return all samples, and `up`, which Prometheus itself makes for each target."""
    found = [one for program, text in texts().items() for one in parse(program, text)]
    up = [Series(program, "up", "up", labels, 1, "gauge") for program, labels in TARGETS.items()]
    return (*found, *up)


def _stages() -> set[str]:
    """Return the stages that requests report: each is a literal of a `timed`."""
    sources = (path.read_text() for path in (ROOT / "cni").rglob("*.py"))
    return {stage for source in sources for stage in re.findall(r'\btimed\("(\w+)"\)', source)}


def _kinds_of_leaks() -> Iterable[str]:
    (kind,) = set(re.findall(r'_took_back\("(\w+)"\)', (ROOT / "cni/recovery/sweep.py").read_text()))
    return kind, *get_args(get_type_hints(StateFolder)["kind"])


def _of_node() -> str:
    metrics = Metrics(restarts=1)
    assert len(_stages()) > 4
    for verb in _VERBS:
        for code in (0, 11, 102, None):
            metrics.served(verb, code, 0.2)
        for stage in _stages():
            metrics.stage(verb, stage, 0.1)
    for kind in _kinds_of_leaks():
        metrics.took_back(kind)
    offers = {
        "rdma/ib_vf": [
            (OfferedVf(a_vf(), 0, None), False),
            (OfferedVf(a_vf(), 0, None), True),
            (OfferedVf(a_vf(driver=None), 0, "no driver"), False),
            (OfferedVf(a_vf(), 1, "the port of its PF"), False),
        ]
    }
    with tempfile.TemporaryDirectory() as folder:
        counters = asyncio.run(_counters(Path(folder)))
    gauges = Gauges(
        vfs=lambda: offers,
        registrations=lambda: {"rdma/ib_vf": 1},
        queue=lambda: 2,
        hung_reads=lambda: {PF: 1},
        hung_writes=lambda: {PF: 1},
        rails=lambda: {0: True, 1: False},
        lost=lambda: {1: 2},
        counters=lambda: counters,
    )
    return metrics.text(gauges)


async def _counters(root: Path) -> str:
    """Return the counters' text of a node with two cards whose functions have every counter, and a pod on the first VF."""
    tree = Tree(root)
    tree.whole()
    tree.second_card()
    for function, names in ((PF, OF_A_PF), (OTHER_PF, OF_A_PF), (ON_NODE, OF_A_VF), (OTHER_VF, OF_A_VF)):
        (device,) = (tree.devices / function / "infiniband").iterdir()
        for name in names:
            file = device / "ports/1" / name
            file.parent.mkdir(exist_ok=True)
            file.write_text("15\n")  # local_link_integrity_errors has four bits: it is saturated
    table = VfTable(Sysfs(root).inventory())
    record = a_record(
        an_attachment(vf=FIRST, rail=0), container_id="one", ifname="eth0", pod=SandboxPod("ml", "mnist-0", "one")
    )
    table.claim(FIRST, Owner("one", "eth0", "one"))
    counters = RailCounters(table, Sysfs(root), lambda: [record])
    await counters.fresh()
    return counters.text + _errors(table, root)


class _SpokenLog(KernelLog):
    """A log in which the kernel has said a severe thing and a slight one about the first card, and which was overwritten once."""

    def __init__(self) -> None:
        self.lost = 0

    def records(self, most: int) -> list[bytes]:
        self.lost += 1
        texts = ("Fatal error 3 detected", "Port module event[error]: module 0, Cable error, High Temperature")
        return [f"3,1,2,-;mlx5_core {PF}: {text}\n".encode() for text in texts][:most]


def _errors(table: VfTable, root: Path) -> str:
    configuration = Configuration(publish=Publish(rails_condition=True, kernel_messages=True))
    errors = RailErrors(configuration, table, Sysfs(root), lambda _: None, lambda _: ())
    errors.look_at_log(_SpokenLog())
    return errors.text()


def _of_admission() -> str:
    metrics = AdmissionMetrics(lambda: datetime(2026, 3, 1, tzinfo=UTC))
    server = (ROOT / "railnet/admission/server/server.py").read_text()
    outcomes = {*get_args(Outcome), *re.findall(r'\boutcome(?:, operator)? = "(\w+)"', server)}
    assert outcomes > set(get_args(Outcome))
    for outcome in outcomes:
        for operator in (OPERATORS[0].name, ""):
            metrics.reviewed(outcome, operator, 0.002)
    return metrics.text()


def _of_controllers() -> str:
    metrics, cluster = ControllersMetrics(), Cluster()
    leader = SimpleNamespace(
        objects=lambda: {"pods": 7, "services": 2},
        waiting=lambda: {"names on net1": 1},
        lost=lambda: 1,
        left_out=lambda: 2,
        gangs=lambda: {"waiting": 2, "placed": 7, "failed": 1, "evictions": 4, "plan_seconds": 0.25},
    )
    api = CountingApiServer(cluster, lambda: "a-token", "test", metrics)
    service = ApiObject("v1", "services", "mnist-net1", "ml")
    requests = [create(service, {"metadata": {"namespace": "ml", "name": "mnist-net1"}})] * 2
    for request in (*requests, get(service), get(replace(service, name="other"))):
        _send(api, request)
    list(api.lines(watch(Collection("v1", "services"), "0", 1)))

    def refuse(_request: object) -> None:
        raise Refusal(500)

    cluster.interfere = refuse
    _send(api, get(service))
    return metrics.text(leader)


def _send(api: CountingApiServer, request: Request) -> None:
    with suppress(RequestFailed):
        api.send(request)
