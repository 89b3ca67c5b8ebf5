"""A whole run against an API server in memory: what it creates, what it says, and that nothing is left."""

import ast
import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from railnet.apiserver.client import Answer, NoAnswer, RequestFailed
from railnet.apiserver.request import ApiObject, Request
from railnet.objects.network_status import ANNOTATION
from railnet.validate.all_reduce import program, run
from railnet.validate.failure import ValidateFailed
from railnet.validate.findings.judgement import RailLimits
from railnet.validate.mode import Mode
from railnet.validate.probe import probe_pods, rail_probe
from railnet.validate.probe.probe_objects import LABEL, Run
from railnet.validate.reports.report import Report, as_json, rendered
from railnet.validate.validation import AllReduce, Validation, WantedTests
from tests.railnet.train.memory_api_server import MemoryApiServer, status

RUN = Run("railnet-validate-1", "ml")
RUNNING = {"phase": "Running", "containerStatuses": [{"name": "probe", "state": {"running": {}}}]}
SOUND = {"round_trip_seconds": {"median": 2e-5, "p99": 3e-5}, "mtu": 4092, "bits_per_second": 9e10}
CUT = {"failed": {"measurement": "round_trip_seconds", "why": "No route to host"}}
WANTED = WantedTests(frozenset(), "", None, None, seconds=1.0, start_seconds=60.0, seed=0, limits=RailLimits())


def node(name: str, vfs: int = 8, rails: str = "2", ready: str = "True") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"railnet.io/rails": rails}},
        "status": {
            "allocatable": {"rdma/ib_vf": str(vfs)},
            "conditions": [{"type": "Ready", "status": ready, "message": "kubelet has stopped"}],
        },
    }


class Cluster:
    """An API server whose pods run as soon as they are created, and what runs in them.

    Attributes:
        starts: the nodes whose pods run.
        network: what a node publishes of a rail of its pod.
        apart: pairs of rails that do not reach each other.
        answer: what the probe prints, by the addresses of client and server.
        asked: the addresses of each measurement.
        commands: its command.
        rank: what a rank of an all-reduce prints, by the command's options.
        ranks: the commands of all ranks, each with its pod.
        twice: the addresses that were in two tests at the same time.
    """

    def __init__(self, *names: str) -> None:
        self.server = MemoryApiServer()
        self.server.add("namespaces", {"metadata": {"name": "ml"}})
        for name in names:
            self.server.add("nodes", node(name))
        self.starts = set(names)
        self.network: Callable[[str, int], dict[str, Any]] = rail
        self.answer: Callable[[str, str], dict[str, Any]] = lambda source, peer: SOUND
        self.apart: set[tuple[int, int]] = set()
        self.asked: list[tuple[str, str]] = []
        self.commands: list[Sequence[str]] = []
        self.rank: Callable[[dict[str, str]], str] = sound_rank
        self.ranks: list[tuple[str, dict[str, str]]] = []
        self.busy: set[str] = set()
        self.twice: list[str] = []
        self.said: list[str] = []
        self.pods: list[dict[str, Any]] = []
        self.server.after = self.start
        self._lock = threading.Lock()

    def start(self, request: Request) -> Answer | None:
        if request.method == "POST" and request.about.resource == "pods":
            assert isinstance(request.body, dict)
            self.pods.append(request.body)
            affinity = request.body["spec"]["affinity"]["nodeAffinity"]
            (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            (name,) = term["matchFields"][0]["values"]
            if name in self.starts:
                count = request.body["spec"]["containers"][0]["resources"]["limits"]["rdma/ib_vf"]
                networks = [{"name": "cbr0", "interface": "eth0"}, *(self.network(name, one) for one in range(count))]
                annotations = {ANNOTATION: json.dumps(networks)}
                found = {**request.body, "metadata": {**request.body["metadata"], "annotations": annotations}}
                self.server.add("pods", {**found, "status": RUNNING})
        return None

    def run(self, pod: ApiObject, container: str, command: Sequence[str], seconds: float) -> str:
        words = [word for word in command[2:] if word != "--gpu"]
        options = dict(zip(words[::2], words[1::2], strict=True))
        if "--rank" in options:
            self.ranks.append((pod.name, options))
            return self.rank(options)
        ends = (options["--source"], options["--peer"])
        if options.get("--measure") == "reach":
            rails = sorted(int(one.split(".")[2]) for one in ends)
            return json.dumps(
                {"reached": False, "why": "No route"} if tuple(rails) in self.apart else {"reached": True}
            )
        with self._lock:
            self.twice += self.busy.intersection(ends)
            self.busy.update(ends)
            self.asked.append(ends)
            self.commands.append(command)
        answer = json.dumps(self.answer(*ends))
        with self._lock:
            self.busy.difference_update(ends)
        return answer

    def validate(self, run: Run = RUN, **changes: Any) -> Report:
        return Validation(self.server.api, self, run, WANTED._replace(**changes), self.said.append, 0.001).report()

    def left(self) -> list[str]:
        return [*self.server.names("pods"), *self.server.names("configmaps")]


def sound_rank(options: dict[str, str]) -> str:
    """Return what a rank prints that has sent its messages by TCP over its netdev."""
    sizes = [int(size) for size in options["--sizes"].split(",")]
    times = [{"step": "size", "bytes": size, "seconds": 1e-3, "all_reduces": 5, "right": True} for size in sizes]
    met = [{"step": "imported", "torch": "2.5.1", "backend": "gloo", "nccl": ""}, {"step": "met"}]
    told = {
        "steps": [*met, *times, {"step": "done"}],
        "nccl": [],
        "last": [],
        "status": 0,
        "hung": False,
        "transmitted": {"tcp": {options["--netdev"]: 10 * sum(sizes)}, "rdma": {}},
        "device": "",
        "settings": {"memlock": -1, "libibverbs": True, "variables": {}},
    }
    return json.dumps(told)


def rail(name: str, number: int) -> dict[str, Any]:
    """Publish rail N as netN+1, with an address that says the node and the rail."""
    address = f"10.56.{number}.{ord(name[-1])}"
    return {"name": "railnet/default", "interface": f"net{number + 1}", "ips": [address], "mtu": 4092, "rail": number}


def address(name: str, number: int) -> str:
    return str(rail(name, number)["ips"][0])


@pytest.fixture
def cluster() -> Cluster:
    return Cluster("a", "b", "c")


def test_each_rail_is_measured_between_all_nodes_and_nothing_is_left(cluster: Cluster) -> None:
    report = cluster.validate()

    assert sorted(one.pair for one in report.measured) == [
        (number, one, other) for number in (0, 1) for one, other in (("a", "b"), ("a", "c"), ("b", "c"))
    ]
    assert sorted(cluster.asked) == sorted(
        (address(other, number), address(one, number)) for number, one, other in (one.pair for one in report.measured)
    )
    assert (report.findings, report.untested, cluster.left()) == ((), (), [])


def test_no_port_is_in_two_tests_at_the_same_time() -> None:
    cluster = Cluster(*"abcdefgh")
    cluster.validate()

    assert len(cluster.asked) == 2 * 28
    assert cluster.twice == []


def test_cut_rail_of_a_node_is_named_and_the_others_are_sound(cluster: Cluster) -> None:
    cluster.answer = lambda source, peer: CUT if address("b", 1) in (source, peer) else SOUND
    report = cluster.validate()

    assert [(one.kind, one.rail, one.nodes) for one in report.findings] == [("cut", 1, ("b",))]


def test_smaller_mtu_of_a_nodes_rail_is_named(cluster: Cluster) -> None:
    cluster.answer = lambda source, peer: {**SOUND, "mtu": 2044} if address("c", 0) in (source, peer) else SOUND
    report = cluster.validate()

    assert [(one.kind, one.rail, one.nodes) for one in report.findings] == [("mtu", 0, ("c",))]


def test_pods_may_run_under_the_strictest_standard_and_belong_to_the_owner(cluster: Cluster) -> None:
    seen: list[dict[str, Any]] = []
    cluster.answer = lambda source, peer: seen.append(dict(cluster.server.objects)) or SOUND
    cluster.validate()
    owner = seen[0]["configmaps", "ml", RUN.name]

    assert owner["metadata"]["labels"] == {LABEL: RUN.name}
    for pod in cluster.pods:
        (container,) = pod["spec"]["containers"]
        assert pod["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
        assert pod["metadata"]["labels"] == {LABEL: RUN.name, "railnet.io/net1": "false"}
        assert container["command"] == ["python3", "/railnet/rail_probe.py"]
        assert container["resources"]["limits"]["rdma/ib_vf"] == 2
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert owner["data"]["rail_probe.py"] == Path(rail_probe.__file__).read_text()


def test_each_measurement_tries_the_tools_for_rdma_and_what_lacks_them_is_no_finding(cluster: Cluster) -> None:
    cluster.answer = lambda source, peer: {
        **SOUND,
        "rdma": {"ib_write_bw": {"untried": "not in the image"}},
    }
    report = cluster.validate()

    tools = [text for tool in ("ib_write_bw", "ib_write_lat", "rping") for text in ("--tool", tool)]
    assert [command[-6:] for command in cluster.commands] == [tools] * 6
    assert (report.findings, report.untested) == ((), ())
    assert list(rendered(report))[-1] == "not tried: ib_write_bw: not in the image; GPUDirect"


def test_limit_of_rdma_that_nothing_could_measure_is_said(cluster: Cluster) -> None:
    cluster.answer = lambda source, peer: {**SOUND, "rdma": {"ib_write_bw": {"untried": "not in the image"}}}
    report = cluster.validate(limits=RailLimits(least_rdma_gbits=380.0))

    assert report.untested == ("RDMA: ib_write_bw: not in the image",)


def test_quick_mode_tries_no_rdma_and_each_node_with_its_neighbours() -> None:
    cluster = Cluster(*"abcde")
    report = cluster.validate(mode=Mode.QUICK)

    assert len(cluster.asked) == 2 * 5
    assert not [command for command in cluster.commands if "--tool" in command]
    assert report.untested == ()
    lines = list(rendered(report))
    assert lines[2].endswith("5 of 10 pairs: a ring")
    assert lines[-1] == "not tried: RDMA and GPUDirect (--mode quick)"


def test_strict_mode_has_findings_for_warnings_and_needs_rdma(cluster: Cluster) -> None:
    tools = {"rdma": {"ib_write_bw": {"untried": "not in the image"}}}
    slow = {**SOUND, **tools, "bits_per_second": 6e10}
    cluster.answer = lambda source, peer: slow if address("b", 1) in (source, peer) else {**SOUND, **tools}

    full, strict = cluster.validate(), cluster.validate(mode=Mode.STRICT)

    assert ([one.nodes for one in full.warnings], full.findings, full.untested) == ([("b",)], (), ())
    assert (strict.findings, strict.warnings) == (full.warnings, ())
    assert strict.untested == ("RDMA: ib_write_bw: not in the image",)


def test_which_rails_reach_each_other_is_found_out_and_said() -> None:
    cluster = Cluster("a", "b", "c")
    for name in "abc":
        cluster.server.add("nodes", node(name, rails="3"))
    cluster.apart = {(0, 1), (1, 2)}
    report = cluster.validate()

    assert [(one.rail, one.other, one.reached) for one in report.reach] == [
        (0, 1, False),
        (0, 2, True),
        (1, 2, False),
    ]
    assert "  rails 0 and 1 do not reach each other (No route)" in list(rendered(report))
    assert as_json(report)["reach"][0] == {"rails": [0, 1], "reached": False, "why": "No route"}
    assert (report.findings, report.untested) == ((), ())


def test_rail_that_is_cut_is_not_said_to_be_apart(cluster: Cluster) -> None:
    cluster.answer = lambda source, peer: CUT if source.split(".")[2] == "1" else SOUND
    report = cluster.validate()

    assert [(one.reached, one.why) for one in report.reach] == [(None, "no two nodes have sound ports of both")]


def test_all_reduce_has_pods_of_its_own_with_the_image_of_the_user_and_a_rank_on_each_node(cluster: Cluster) -> None:
    report = cluster.validate(all_reduce=AllReduce("registry/torch:1"))

    assert [pod["metadata"]["name"] for pod in cluster.pods] == [
        *(f"{RUN.name}-{number}" for number in range(3)),
        *(f"{RUN.name}-{number}-all-reduce" for number in range(3)),
    ]
    (container,) = cluster.pods[-1]["spec"]["containers"]
    assert (container["image"], container["command"]) == ("registry/torch:1", ["python3", "/railnet/rail_probe.py"])
    assert container["resources"]["limits"] == {"memory": "2Gi", "rdma/ib_vf": 2}
    asked = [(name, options["--rank"], options["--netdev"], options["--meet"]) for name, options in cluster.ranks]
    assert sorted(asked) == [
        (f"{RUN.name}-{number}-all-reduce", str(number), f"net{rail + 1}", f"{address('a', rail)}:{29400 + rail}")
        for number in range(3)
        for rail in (0, 1)
    ]
    assert {options["--ranks"] for _, options in cluster.ranks} == {"3"}
    assert [(one.rail, one.nodes, one.is_done) for one in report.all_reduces] == [
        (0, ("a", "b", "c"), True),
        (1, ("a", "b", "c"), True),
    ]
    assert (report.findings, report.untested, report.unjudged, cluster.left()) == ((), (), (), [])


def test_sound_all_reduce_of_a_rail_with_slower_ports_is_no_finding(cluster: Cluster) -> None:
    def answer(source: str, peer: str) -> dict[str, Any]:
        rate = "100 Gb/sec (4X EDR)" if source.split(".")[2] == "0" else "400 Gb/sec (4X NDR)"
        return {**SOUND, "port_rates": {"server": rate, "client": rate}}

    def rank(options: dict[str, str]) -> str:
        told = json.loads(sound_rank(options))
        gbits = 90 if options["--netdev"] == "net1" else 380
        for step in told["steps"]:
            if step["step"] == "size":
                step["seconds"] = max(5e-5, step["bytes"] * 8 * (4 / 3) / (gbits * 1e9))
        return json.dumps(told)

    cluster.answer, cluster.rank = answer, rank
    report = cluster.validate(all_reduce=AllReduce("registry/torch:1"))

    assert [round(one.best.bus_gbits) for one in report.all_reduces if one.best is not None] == [90, 380]
    assert (report.findings, report.warnings) == ((), ())
    assert [one.text.partition(":")[0] for one in report.unjudged] == ["rail 0, all-reduce", "rail 1, all-reduce"]


def test_pods_of_the_all_reduce_come_when_the_first_ones_have_given_their_vfs_back(cluster: Cluster) -> None:
    there: list[list[str]] = []
    cluster.rank = lambda options: there.append(cluster.server.names("pods")) or sound_rank(options)
    cluster.validate(all_reduce=AllReduce("registry/torch:1"))

    assert {name for names in there for name in names} == {f"{RUN.name}-{number}-all-reduce" for number in range(3)}


def test_gpus_are_for_the_pods_of_the_all_reduce_alone(cluster: Cluster) -> None:
    cluster.validate(all_reduce=AllReduce("registry/torch:1", "nvidia.com/gpu"))

    limits = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in cluster.pods]
    assert limits == [
        *[{"memory": "256Mi", "rdma/ib_vf": 2}] * 3,
        *[{"memory": "8Gi", "rdma/ib_vf": 2, "nvidia.com/gpu": 1}] * 3,
    ]


def test_node_whose_rail_is_cut_has_no_rank_on_it(cluster: Cluster) -> None:
    cluster.answer = lambda source, peer: CUT if address("b", 1) in (source, peer) else SOUND
    report = cluster.validate(all_reduce=AllReduce("registry/torch:1"))

    assert [(one.nodes, one.left_out) for one in report.all_reduces] == [(("a", "b", "c"), ()), (("a", "c"), ("b",))]
    assert [one.kind for one in report.findings] == ["cut"]
    assert report.untested == ("all-reduce over rail 1: without b, which has no sound pair there",)


def test_node_whose_pairs_could_not_be_tried_has_no_rank_and_is_not_said_to_be_cut(cluster: Cluster) -> None:
    def answer(source: str, peer: str) -> dict[str, Any]:
        if address("a", 0) in (source, peer):
            raise RequestFailed("cannot run a command by pods/x: HTTP 500", 500)
        return SOUND

    cluster.answer = answer
    report = cluster.validate(all_reduce=AllReduce("registry/torch:1"))

    assert report.all_reduces[0].left_out == ("a",)
    assert report.untested[-1] == "all-reduce over rail 0: without a, which has no sound pair there"
    assert "is cut" not in str(report.untested)


def test_rail_without_a_sound_pair_has_no_all_reduce_and_that_is_said(cluster: Cluster) -> None:
    cluster.answer = lambda source, peer: CUT if source.split(".")[2] == "1" else SOUND
    one_rail = cluster.validate(all_reduce=AllReduce("registry/torch:1"))
    cluster.answer = lambda source, peer: CUT
    none = cluster.validate(all_reduce=AllReduce("registry/torch:1"))

    assert one_rail.untested == ("all-reduce over rail 1: fewer than two pods have this rail, and a sound pair",)
    assert none.untested == ("all-reduce over rails 0, 1: no pair of any rail is sound",)
    assert len(cluster.pods) == 3 * 3  # the second run has none for the all-reduce


def test_pods_that_a_quota_forbids_cost_the_all_reduce_alone(cluster: Cluster) -> None:
    def refuse(request: Request) -> Answer | None:
        of_all_reduce = str(request).startswith("create pods/") and "-all-reduce" in str(request)
        return status(403, "exceeded quota: gpus") if of_all_reduce else None

    cluster.server.before = refuse
    report = cluster.validate(all_reduce=AllReduce("registry/torch:1"))

    assert len(report.measured) == 6
    (why,) = report.untested
    assert why.startswith("all-reduce over rails 0, 1: its pods were not created: ")
    assert "exceeded quota: gpus" in why
    assert cluster.left() == []


def test_rank_that_is_lost_is_a_finding_and_a_rank_that_hangs_after_it_is_not_awaited(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_GRACE_SECONDS", 0.2)
    ended = threading.Event()

    def rank(options: dict[str, str]) -> str:
        if options["--netdev"] == "net1" and options["--rank"] == "1":
            raise RequestFailed("cannot run a command by pods/x: the container is gone")
        if options["--netdev"] == "net1":
            ended.wait(60)
        return sound_rank(options)

    cluster.rank = rank
    began = time.monotonic()
    report = cluster.validate(all_reduce=AllReduce("registry/torch:1"))
    ended.set()

    assert time.monotonic() - began < 30
    assert [(one.kind, one.rail, one.nodes) for one in report.findings] == [("allreduce", 0, ("b",))]
    assert report.findings[0].text.endswith(
        "the rank of node b was lost: cannot run a command by pods/x: the container is gone"
    )
    assert [one.is_done for one in report.all_reduces] == [False, True]
    assert cluster.left() == []


def lose_rank_one(cluster: Cluster, error: Exception, state: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Have the rank of node b end with an error on rail 0, and its pod become another one then, or go."""

    def rank(options: dict[str, str]) -> str:
        if options["--netdev"] == "net1" and options["--rank"] == "1":
            key = ("pods", "ml", f"{RUN.name}-1-all-reduce")
            pod = cluster.server.objects[key]
            if (after := state(pod)) is None:
                cluster.server.remove(key)
            else:
                cluster.server.objects[key] = after
            raise error
        return sound_rank(options)

    cluster.rank = rank


ENDED = RequestFailed("cannot run a command by pods/x: command terminated with exit code 137")
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (lambda _: None, "was deleted"),
        (
            lambda pod: {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}},
            "was deleted",
        ),
        (
            lambda pod: {**pod, "status": {"phase": "Failed", "conditions": [PREEMPTED]}},
            "was ended by the cluster (PreemptionByScheduler)",
        ),
        (lambda pod: {**pod, "status": {"phase": "Failed", "reason": "Evicted"}}, "was ended by the cluster (Evicted)"),
    ],
    ids=["gone", "being deleted", "preempted", "evicted"],
)
def test_rail_whose_pod_a_job_takes_is_not_tested_and_has_no_finding(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, state: Callable[[Any], Any], words: str
) -> None:
    monkeypatch.setattr(run, "_GRACE_SECONDS", 0.2)
    lose_rank_one(cluster, ENDED, state)
    report = cluster.validate(all_reduce=AllReduce("registry/torch:1"))

    assert report.findings == ()
    why = f"pod {RUN.name}-1-all-reduce on b {words} before the all-reduce was over"
    assert report.untested == (f"all-reduce over rail 0: {why}",)
    assert [one.is_done for one in report.all_reduces] == [False, True]
    assert f"all-reduce: not tried ({why})" in list(rendered(report))


def test_rank_whose_container_ends_by_itself_is_a_finding(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_GRACE_SECONDS", 0.2)
    killed = {"name": "probe", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
    lose_rank_one(cluster, ENDED, lambda pod: {**pod, "status": {"phase": "Failed", "containerStatuses": [killed]}})
    report = cluster.validate(all_reduce=AllReduce("registry/torch:1"))

    assert [(one.kind, one.rail, one.nodes) for one in report.findings] == [("allreduce", 0, ("b",))]
    assert report.untested == ()


@pytest.mark.parametrize(
    "error",
    [
        RequestFailed("cannot run a command by pods/x: HTTP 500: etcdserver: leader changed", 500),
        NoAnswer("cannot run a command by pods/x: the connection ended before the command did"),
        RuntimeError("of a library"),
    ],
    ids=["an error", "no answer", "a library"],
)
def test_rank_that_the_api_server_did_not_run_is_not_tested_and_is_no_finding(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(run, "_GRACE_SECONDS", 0.2)
    lose_rank_one(cluster, error, lambda pod: pod)
    report = cluster.validate(all_reduce=AllReduce("registry/torch:1"))

    assert report.findings == ()
    (why,) = report.untested
    assert why.startswith("all-reduce over rail 0: what became of the rank of node b is not known: ")
    assert str(error) in why


def test_rail_without_a_result_is_not_tested_if_its_pods_cannot_be_looked_at(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_GRACE_SECONDS", 0.2)
    refused = [False]

    def forget(pod: dict[str, Any]) -> dict[str, Any]:
        refused[0] = True
        return pod

    def refuse_once(request: Request) -> Answer | None:
        if refused[0] and str(request).startswith("list pods"):
            refused[0] = False
            return status(403, "no")
        return None

    cluster.server.before = refuse_once
    lose_rank_one(cluster, ENDED, forget)
    report = cluster.validate(all_reduce=AllReduce("registry/torch:1"))

    assert report.findings == ()
    (why,) = report.untested
    assert why.startswith("all-reduce over rail 0: whether its pods were there until the end is not known: ")
    assert cluster.left() == []


@pytest.mark.parametrize("answer", ["", "torch: not found", '{"steps": NaN}', "x" * 100_000])
def test_rank_that_prints_nonsense_is_a_finding_of_little_text(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr(run, "_GRACE_SECONDS", 0.2)
    cluster.rank = lambda options: answer if options["--rank"] == "2" else sound_rank(options)
    report = cluster.validate(all_reduce=AllReduce("registry/torch:1"))

    assert [(one.rail, one.nodes) for one in report.findings] == [(0, ("c",)), (1, ("c",))]
    assert all("it has printed" in one.text and len(one.text) < 1000 for one in report.findings)


def test_image_without_python_is_not_tested_and_is_not_awaited(cluster: Cluster) -> None:
    why = {"reason": "StartError", "message": 'exec: "python3": executable file not found in $PATH'}
    failed = {"phase": "Failed", "containerStatuses": [{"name": "probe", "state": {"terminated": why}}]}

    def start(request: Request) -> Answer | None:
        cluster.start(request)
        for key, pod in list(cluster.server.objects.items()):
            if key[0] == "pods" and key[2].endswith("-all-reduce"):
                cluster.server.objects[key] = {**pod, "status": failed}
        return None

    cluster.server.after = start
    report = cluster.validate(all_reduce=AllReduce("scratch:1"))

    assert len(report.measured) == 6
    assert report.findings == ()
    assert report.untested[0].startswith(f"all-reduce on node a: pod {RUN.name}-0-all-reduce has ended: ")
    assert 'exec: "python3": executable file not found in $PATH' in report.untested[0]
    assert report.untested[-1] == ("all-reduce over rails 0, 1: fewer than two pods have this rail, and a sound pair")


def test_gpudirect_has_a_gpu_in_each_pod_and_where_it_cannot_be_tried_that_is_said(cluster: Cluster) -> None:
    cluster.answer = lambda source, peer: {
        **SOUND,
        "rdma": {"ib_write_bw": {"untried": "not in the image"}},
    }
    report = cluster.validate(RUN._replace(gpu="nvidia.com/gpu"))

    for pod in cluster.pods:
        (container,) = pod["spec"]["containers"]
        limits = {"memory": "4Gi", "rdma/ib_vf": 2, "nvidia.com/gpu": 1}
        assert container["resources"] == {"requests": {**limits, "cpu": "100m", "memory": "64Mi"}, "limits": limits}
    assert {command[-1] for command in cluster.commands} == {"--gpu"}
    assert report.untested == ("GPUDirect: ib_write_bw: not in the image",)
    assert "GPUDirect;" not in list(rendered(report))[-1]


def test_pod_that_does_not_start_is_named_with_what_it_waits_for(cluster: Cluster) -> None:
    cluster.starts.remove("c")

    def never_starts(request: Request) -> Answer | None:
        cluster.start(request)
        key = ("pods", "ml", f"{RUN.name}-2")
        if request.method == "POST" and key in cluster.server.objects:
            found = cluster.server.objects[key]
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
            cluster.server.add("pods", {**found, "status": {"phase": "Pending", "conditions": [condition]}})
        return None

    cluster.server.after = never_starts
    report = cluster.validate(start_seconds=0.05)

    assert [one.pair for one in report.measured] == [(0, "a", "b"), (1, "a", "b")]
    assert report.untested == (f"node c: pod {RUN.name}-2 has not started in 0.05 s: Unschedulable: 0/3 nodes",)
    assert cluster.left() == []


def test_node_that_is_not_ready_or_lacks_vfs_is_said_and_gets_no_pod() -> None:
    cluster = Cluster("a", "b")
    cluster.server.add("nodes", node("c", ready="Unknown"))
    cluster.server.add("nodes", node("d", vfs=1))
    cluster.server.add("nodes", node("e", vfs=0))
    report = cluster.validate()

    assert len(cluster.pods) == 2
    assert report.untested == (
        "node c: it is not ready: kubelet has stopped",
        "node d: it has 1 rdma/ib_vf, and 2 rails are to be tested",
    )


def test_chosen_nodes_are_tested_and_those_that_cannot_be_are_named(cluster: Cluster) -> None:
    cluster.server.add("nodes", node("e", vfs=0))
    report = cluster.validate(nodes=frozenset({"a", "b", "e", "nowhere"}), rails=1)

    assert [one.pair for one in report.measured] == [(0, "a", "b")]
    assert report.untested == ("node nowhere: the cluster has no such node", "node e: it has no rdma/ib_vf")


def test_one_node_is_no_validation(cluster: Cluster) -> None:
    with pytest.raises(ValidateFailed, match="a rail needs two nodes, and 1 can be tested"):
        cluster.validate(most=1)
    assert cluster.server.requests == ["list nodes"]


def test_rail_without_an_address_and_rail_of_one_node_are_said(cluster: Cluster) -> None:
    def network(name: str, number: int) -> dict[str, Any]:
        found = rail(name, number)
        return {**found, "ips": []} if (name, number) in (("a", 1), ("b", 1)) else found

    cluster.network = network
    report = cluster.validate()

    assert {one.pair.rail for one in report.measured} == {0}
    assert report.untested == (
        "rail 1 of node a: net2 has no address",
        "rail 1 of node b: net2 has no address",
        "rail 1: no other node than c has it",
    )


def test_rail_is_measured_by_ipv4_where_it_has_that_and_else_by_ipv6(cluster: Cluster) -> None:
    def network(name: str, number: int) -> dict[str, Any]:
        found = rail(name, number)
        return {**found, "ips": [f"fd56::{name}", *(found["ips"] if number == 0 or name == "c" else ())]}

    cluster.network = network
    report = cluster.validate()

    asked = {tuple(sorted(ends)) for ends in cluster.asked}
    assert asked == {
        ("fd56::a", "fd56::b"),
        *((address(one, 0), address(other, 0)) for one, other in (("a", "b"), ("a", "c"), ("b", "c"))),
    }
    assert sorted(report.untested) == [
        f"rail 1 between a and c: {address('c', 1)} and fd56::a are of different versions of IP",
        f"rail 1 between b and c: {address('c', 1)} and fd56::b are of different versions of IP",
    ]


def test_two_vfs_of_one_rail_are_said(cluster: Cluster) -> None:
    cluster.network = lambda name, number: rail(name, number) | ({"rail": 0} if name == "c" else {})
    report = cluster.validate()

    assert report.untested == ("node c: 2 VFs were given, and they are on 1 rails alone",)
    assert len(report.measured) == 4


def test_command_that_cannot_run_is_not_tested_and_is_no_finding(cluster: Cluster) -> None:
    def answer(source: str, peer: str) -> dict[str, Any]:
        if {source, peer} == {address("a", 0), address("b", 0)}:
            raise RequestFailed("cannot run a command by pods/x/exec: HTTP 403", 403)
        return SOUND

    cluster.answer = answer
    report = cluster.validate()

    assert report.findings == ()
    assert report.untested == ("rail 0 between a and b: cannot run a command by pods/x/exec: HTTP 403",)


def interrupt(at: str, cluster: Cluster) -> Callable[[Request], Answer | None]:
    def act(request: Request) -> Answer | None:
        cluster.start(request)
        if str(request).startswith(at):
            raise KeyboardInterrupt
        return None

    return act


@pytest.mark.parametrize(
    "at", ["create configmaps", f"create pods/{RUN.name}-0", f"create pods/{RUN.name}-2", "list pods in namespace ml"]
)
def test_ctrl_c_at_any_time_leaves_nothing(cluster: Cluster, at: str) -> None:
    act = interrupt(at, cluster)

    def once(request: Request) -> Answer | None:
        try:
            return act(request)
        except KeyboardInterrupt:
            cluster.server.after = cluster.start
            raise

    cluster.server.after = once
    with pytest.raises(KeyboardInterrupt):
        cluster.validate()
    assert cluster.left() == []
    assert not any("are left" in line for line in cluster.said)


def test_pods_are_waited_for_whose_kubelet_reports_their_end_late(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def sleep(_: float) -> None:
        now[0] += 1.0
        if now[0] > 100.0:
            for name in cluster.server.names("pods"):
                cluster.server.remove(("pods", "ml", name))

    def end(request: Request) -> Answer | None:
        """Mark a pod in place of deleting it; it does not go with its owner, either."""
        if request.method != "DELETE":
            return None
        for name in cluster.server.names("pods"):
            found = cluster.server.objects["pods", "ml", name]
            metadata = {**found["metadata"], "ownerReferences": [], "deletionTimestamp": "2026-01-01T00:00:00Z"}
            cluster.server.add("pods", {**found, "metadata": metadata})
        return Answer(200, "application/json", "", b"{}") if request.about.resource == "pods" else None

    monkeypatch.setattr(probe_pods, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    cluster.server.before = end
    cluster.validate()

    assert cluster.left() == []
    assert not any("are left" in line for line in cluster.said)


def test_second_ctrl_c_says_what_is_left_and_how_to_delete_it(cluster: Cluster) -> None:
    cluster.server.after = interrupt("list pods in namespace ml", cluster)

    with pytest.raises(KeyboardInterrupt):
        cluster.validate()
    assert cluster.said[-1] == (
        f"objects of this run are left; kubectl -n ml delete configmap,pod -l {LABEL}={RUN.name}"
    )


def test_refused_pod_takes_everything_back(cluster: Cluster) -> None:
    def refuse(request: Request) -> Answer | None:
        return status(403, "no quota") if str(request).startswith(f"create pods/{RUN.name}-1") else None

    cluster.server.before = refuse
    with pytest.raises(RequestFailed, match="no quota"):
        cluster.validate()
    assert cluster.left() == []


def test_api_server_that_refuses_to_delete_is_said(cluster: Cluster) -> None:
    cluster.server.before = lambda request: status(403, "no") if request.method == "DELETE" else None
    cluster.validate()

    assert "are left" in cluster.said[-1]
    assert "you lack the right 'delete'" in cluster.said[-2]


@pytest.mark.parametrize("program", [rail_probe, program])
def test_program_of_a_pod_is_for_an_older_python(program: ModuleType) -> None:
    source = Path(str(program.__file__)).read_text()
    imports = [one for one in ast.parse(source, feature_version=(3, 9)).body if isinstance(one, ast.ImportFrom)]

    assert imports[0].module == "__future__"  # and annotations are not evaluated
    assert not [one for one in imports if str(one.module).startswith("railnet")]
