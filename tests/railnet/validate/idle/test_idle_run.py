"""`railnet validate --idle`: nodes with jobs are left alone, what a job preempts is no finding, and nodes that were tried have a condition."""

import time
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from railnet.apiserver.client import Answer, RequestFailed
from railnet.apiserver.cluster_name import ClusterName
from railnet.apiserver.request import Request
from railnet.fabric.rails_condition import TAINT
from railnet.validate.idle import idle_run
from railnet.validate.idle.idle_run import write_conditions
from railnet.validate.idle.node_verdict import TYPE, verdicts
from railnet.validate.mode import Mode
from railnet.validate.probe.probe_objects import parts
from railnet.validate.probe.probe_pods import ProbePods
from railnet.validate.reports.report import Report
from tests.railnet.train.memory_api_server import status
from tests.railnet.validate.reports.test_html_file import status as exit_status
from tests.railnet.validate.test_validation import CUT, RUN, SOUND, WANTED, Cluster, address, node, rail

MOMENT = datetime(2026, 11, 27, 22, tzinfo=UTC)


def idle_cluster(*names: str) -> Cluster:
    return Cluster(*(names or ("a", "b", "c")))


def run_idle(cluster: Cluster, **changes: Any) -> Report | None:
    """Run as the command line does; return the report, None if nothing was tried."""
    wanted = WANTED._replace(mode=Mode.QUICK, **changes)
    run = RUN._replace(other_resources=frozenset({"rdma/rail1"}))
    report = idle_run.run_idle(cluster.server.api, cluster, run, wanted, cluster.said.append, 0.001)
    if report is not None:
        assert write_conditions(cluster.server.api, verdicts(report, MOMENT), cluster.said.append)
    return report


def conditions(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """Return the condition of each node that has it."""
    return {
        name: condition
        for (kind, _, name), found in cluster.server.objects.items()
        if kind == "nodes"
        for condition in found["status"]["conditions"]
        if condition["type"] == TYPE
    }


def a_pod(node: str, phase: str = "Running", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "team", "name": f"on-{node}"},
        "spec": {"nodeName": node, "containers": [{"name": "main"}], **spec},
        "status": {"phase": phase},
    }


def with_device(node: str, resource: str, phase: str = "Running") -> dict[str, Any]:
    resources = {"limits": {resource: "1"}, "requests": {resource: "1"}}
    return a_pod(node, phase, containers=[{"name": "main", "resources": resources}])


def test_nodes_that_were_tried_say_so() -> None:
    cluster = idle_cluster()
    run_idle(cluster)
    found = conditions(cluster)

    assert {name: (one["status"], one["reason"]) for name, one in found.items()} == dict.fromkeys(
        "abc", ("True", "NoFindings")
    )
    assert found["a"]["message"].startswith("railnet validate on 2026-11-27 tried 2 rails: no findings")
    assert cluster.left() == []


def test_node_with_a_finding_says_it_and_is_well_again_after_the_next_run() -> None:
    cluster = idle_cluster()
    cluster.answer = lambda source, peer: CUT if "10.56.1.97" in (source, peer) else {**SOUND}
    run_idle(cluster)
    bad = conditions(cluster)
    cluster.answer = lambda source, peer: {**SOUND}
    run_idle(cluster)

    assert (bad["a"]["status"], bad["a"]["reason"]) == ("False", "Findings")
    assert bad["a"]["message"].startswith(
        "railnet validate on 2026-11-27: rail 1 of node a, all its 2 pairs: no connection"
    )
    assert (bad["b"]["status"], bad["c"]["status"]) == ("True", "True")
    assert conditions(cluster)["a"]["status"] == "True"


def cut(cluster: Cluster, *addresses: str) -> None:
    cluster.answer = lambda source, peer: CUT if {source, peer} & set(addresses) else {**SOUND}


def without_address(cluster: Cluster, name: str, number: int) -> None:
    def network(node: str, rail_number: int) -> dict[str, Any]:
        return {**rail(node, rail_number), **({"ips": []} if (node, rail_number) == (name, number) else {})}

    cluster.network = network


def test_node_with_a_rail_that_was_not_tried_is_not_said_to_be_well() -> None:
    cluster = idle_cluster()
    without_address(cluster, "a", 1)
    run_idle(cluster)
    found = conditions(cluster)

    assert (found["a"]["status"], found["a"]["reason"]) == ("Unknown", "NotAllTried")
    assert found["a"]["message"].endswith("tried 1 rail: no findings; not tried: rail 1")
    assert (found["b"]["status"], found["c"]["status"]) == ("True", "True")


def test_node_whose_vfs_were_on_fewer_rails_is_not_said_to_be_well() -> None:
    cluster = idle_cluster()
    cluster.network = lambda name, number: rail(name, number) | ({"rail": 0} if name == "c" else {})
    run_idle(cluster)

    assert conditions(cluster)["c"]["status"] == "Unknown"
    assert conditions(cluster)["c"]["message"].endswith("tried 1 rail: no findings; 2 VFs were on 1 rail")


@pytest.mark.parametrize("fewer", ["no address", "one VF"])
def test_finding_stays_until_its_rail_is_tried_again(fewer: str) -> None:
    cluster = idle_cluster()
    cut(cluster, address("a", 1))
    run_idle(cluster)
    bad = conditions(cluster)["a"]
    if fewer == "no address":
        without_address(cluster, "a", 1)
    run_idle(cluster, rails=1 if fewer == "one VF" else None)
    still = conditions(cluster)["a"]
    cluster.network = rail
    cut(cluster)
    run_idle(cluster)

    assert bad["message"].endswith(" (rails with findings: 1)")
    assert (still["status"], still["message"]) == ("False", bad["message"])
    assert conditions(cluster)["a"]["status"] == "True"


def test_finding_about_another_rail_keeps_the_first_one() -> None:
    cluster = idle_cluster()
    cut(cluster, address("a", 1))
    run_idle(cluster)
    cut(cluster, address("a", 0))
    run_idle(cluster, rails=1)
    both = conditions(cluster)["a"]
    cut(cluster)
    run_idle(cluster, rails=1)

    assert "rail 0 of node a, all its 2 pairs" in both["message"]
    assert both["message"].endswith("; rail 1 not tried, with findings before (rails with findings: 0, 1)")
    assert conditions(cluster)["a"]["message"] == both["message"]


def test_finding_stays_if_the_next_pod_does_not_start() -> None:
    cluster = idle_cluster()
    cut(cluster, address("a", 1))
    run_idle(cluster)
    cluster.starts = {"b", "c"}
    run_idle(cluster, start_seconds=0.05)

    assert conditions(cluster)["a"]["status"] == "False"


@pytest.mark.parametrize("message", ["", "by hand (rails with findings: x)", "x" * 9000])
def test_finding_of_other_words_goes_when_all_rails_are_sound(message: str) -> None:
    cluster = idle_cluster()
    found = node("a")
    found["status"]["conditions"].append({"type": TYPE, "status": "False", "message": message})
    cluster.server.add("nodes", found)
    run_idle(cluster)

    assert conditions(cluster)["a"]["status"] == "True"


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (with_device("b", "rdma/ib_vf"), "pod team/on-b has rdma/ib_vf"),
        (with_device("b", "rdma/rail1"), "pod team/on-b has rdma/rail1"),
        (with_device("b", "nvidia.com/gpu", "Pending"), "pod team/on-b has nvidia.com/gpu"),
        (a_pod("b", resourceClaims=[{"name": "rail"}]), "pod team/on-b has devices of a claim"),
    ],
    ids=["a VF", "a VF of another pool", "a GPU", "a claim"],
)
def test_node_of_a_job_is_left_alone_and_keeps_what_it_had(pod: dict[str, Any], why: str) -> None:
    cluster = idle_cluster()
    cluster.server.add("pods", pod)
    report = run_idle(cluster)

    assert report is not None
    assert set(report.rails_of) == {"a", "c"}
    assert f"node b is left alone: {why}" in cluster.said
    assert conditions(cluster).keys() == {"a", "c"}


@pytest.mark.parametrize("pod", [with_device("b", "rdma/ib_vf", "Succeeded"), a_pod("b")], ids=["ended", "no device"])
def test_node_with_other_pods_is_idle(pod: dict[str, Any]) -> None:
    cluster = idle_cluster()
    cluster.server.add("pods", pod)
    run_idle(cluster)

    assert conditions(cluster).keys() == {"a", "b", "c"}


@pytest.mark.parametrize(
    "spec", [{"unschedulable": True}, {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}], ids=["cordoned", "tainted"]
)
def test_node_that_takes_no_jobs_is_left_alone(spec: dict[str, Any]) -> None:
    cluster = idle_cluster()
    cluster.server.add("nodes", {**node("b"), "spec": spec})
    run_idle(cluster)

    assert conditions(cluster).keys() == {"a", "c"}


def test_node_that_cannot_be_tried_is_named_with_the_reason() -> None:
    cluster = idle_cluster("a", "b")
    cluster.server.add("nodes", node("c", ready="False"))
    cluster.server.add("nodes", node("d", vfs=1))
    run_idle(cluster)

    assert "node c is left alone: it is not ready: kubelet has stopped" in cluster.said
    assert "node d is left alone: it has 1 rdma/ib_vf, and 2 rails are to be tested" in cluster.said


def test_parts_of_nodes_that_no_code_reads_are_not_kept() -> None:
    whole = node("a") | {"spec": {"unschedulable": True, "podCIDR": "10.0.0.0/24"}}
    whole["metadata"]["managedFields"] = [{}]
    whole["metadata"]["labels"]["feature.node.kubernetes.io/cpu-cpuid.AVX"] = "true"
    whole["status"]["images"] = [{"names": ["x"]}]

    assert parts(whole) == node("a") | {"spec": {"unschedulable": True}}


def test_nodes_that_were_not_tried_for_the_longest_time_come_first() -> None:
    cluster = idle_cluster("a", "b", "c", "d")
    run_idle(cluster, most=2)
    assert conditions(cluster).keys() == {"a", "b"}
    run_idle(cluster, most=2)

    assert conditions(cluster).keys() == {"a", "b", "c", "d"}


def test_node_whose_pod_does_not_start_says_so_and_others_come_first_the_next_time() -> None:
    cluster = idle_cluster("a", "b", "c", "d")
    cluster.starts = {"c", "d"}
    run_idle(cluster, most=2, start_seconds=0.05)
    first = conditions(cluster)
    run_idle(cluster, most=2, start_seconds=0.05)

    assert {name: (one["status"], one["reason"]) for name, one in first.items()} == dict.fromkeys(
        "ab", ("Unknown", "NotTried")
    )
    assert "tried no rail: pod railnet-validate-1-0 has not started in 0.05 s" in first["a"]["message"]
    assert {name: one["status"] for name, one in conditions(cluster).items()} == {
        "a": "Unknown",
        "b": "Unknown",
        "c": "True",
        "d": "True",
    }


def test_node_where_no_command_can_run_says_so() -> None:
    cluster = idle_cluster()

    def answer(source: str, peer: str) -> dict[str, Any]:
        if any(one.endswith(f".{ord('a')}") for one in (source, peer)):
            raise RequestFailed("cannot run a command by pods/x/exec: HTTP 500", 500)
        return SOUND

    cluster.answer = answer
    run_idle(cluster)
    found = conditions(cluster)

    assert (found["a"]["status"], found["a"]["reason"]) == ("Unknown", "NotTried")
    assert found["a"]["message"].endswith("tried no rail: cannot run a command by pods/x/exec: HTTP 500")


def test_without_two_idle_nodes_nothing_is_tried() -> None:
    cluster = idle_cluster("a", "b")
    cluster.server.add("pods", with_device("b", "rdma/ib_vf"))

    assert run_idle(cluster) is None
    assert cluster.said[-1] == "a rail needs two nodes, and 1 can be tried: nothing is tried"
    assert cluster.pods == []


def waiting(name: str, age: float = 0.0, resource: str = "rdma/ib_vf") -> dict[str, Any]:
    """Return a pod of a gang that waits behind the gate for a VF."""
    found = with_device("", resource, "Pending")
    created = datetime.fromtimestamp(time.time() - age, UTC).isoformat(timespec="seconds")
    metadata = {"namespace": "team", "name": name, "creationTimestamp": created}
    return {**found, "metadata": metadata, "spec": {**found["spec"], "schedulingGates": [{"name": "railnet.io/gang"}]}}


@pytest.mark.parametrize("resource", ["rdma/ib_vf", "rdma/rail1"])
def test_nothing_is_tried_while_a_job_waits(resource: str) -> None:
    cluster = idle_cluster()
    cluster.server.add("pods", waiting("bert-0", age=600, resource=resource))

    assert run_idle(cluster) is None
    assert cluster.said == [f"pod team/bert-0 waits for {resource}: nothing is tried while a job waits"]


def test_pod_that_waits_for_hours_does_not_keep_nodes_from_being_tried() -> None:
    cluster = idle_cluster()
    cluster.server.add("pods", waiting("lost-0", age=7200))

    assert run_idle(cluster) is not None


def test_job_that_begins_to_wait_ends_the_run_and_no_condition_is_changed() -> None:
    cluster = idle_cluster()

    def answer(source: str, peer: str) -> dict[str, Any]:
        if not any(key[2] == "bert-0" for key in cluster.server.objects):
            cluster.server.add("pods", waiting("bert-0"))
        return SOUND

    cluster.answer = answer

    assert run_idle(cluster) is None
    assert "pod team/bert-0 waits for rdma/ib_vf: the run has ended for it" in cluster.said[-1]
    assert conditions(cluster) == {}
    assert cluster.left() == ["bert-0"]


def lands(cluster: Cluster, name: str, when: int) -> None:
    """Have a job get a VF beside the try of a node while a pair is measured, and take half of the node's bandwidth from then on."""

    def answer(source: str, peer: str) -> dict[str, Any]:
        if len(cluster.asked) >= when:
            cluster.server.add("pods", with_device(name, "rdma/ib_vf"))
        has_job = ("pods", "team", f"on-{name}") in cluster.server.objects
        is_slow = has_job and any(one.endswith(f".{ord(name)}") for one in (source, peer))
        return {**SOUND, "bits_per_second": 2e10} if is_slow else {**SOUND}

    cluster.answer = answer


def test_job_that_lands_beside_a_try_ends_the_run_and_no_condition_is_changed() -> None:
    cluster = idle_cluster()
    lands(cluster, "b", when=1)

    assert run_idle(cluster) is None
    assert "pod team/on-b has rdma/ib_vf of node b: the run has ended for it" in cluster.said[-1]
    assert conditions(cluster) == {}
    assert cluster.left() == ["on-b"]


def test_job_that_lands_in_the_last_round_voids_what_was_measured_of_its_node() -> None:
    cluster = idle_cluster()
    lands(cluster, "b", when=6)
    report = run_idle(cluster)

    assert report is not None
    assert report.findings == ()
    assert conditions(cluster).keys() == {"a", "c"}


def preempted(cluster: Cluster, name: str) -> None:
    """Have a job preempt the try of a node as soon as its first pair is measured: the pod is deleted, and its pairs fail."""

    def answer(source: str, peer: str) -> dict[str, Any]:
        last = f".{ord(name)}"
        if not (source.endswith(last) or peer.endswith(last)):
            return {**SOUND}
        for key, pod in list(cluster.server.objects.items()):
            terms = pod["spec"]["affinity"]["nodeAffinity"] if key[0] == "pods" else {}
            if f"'{name}'" in str(terms):
                cluster.server.objects.pop(key)
        return CUT

    cluster.answer = answer


def test_node_that_a_job_takes_meanwhile_has_no_finding_and_keeps_what_it_had() -> None:
    cluster = idle_cluster()
    preempted(cluster, "b")
    report = run_idle(cluster)

    assert report is not None
    assert report.findings == ()
    assert any("on b was deleted or has ended before the run was over" in one for one in report.untested)
    assert conditions(cluster).keys() == {"a", "c"}
    assert cluster.left() == []


def test_pod_that_a_job_preempts_before_it_runs_is_not_awaited_and_its_node_keeps_what_it_had() -> None:
    cluster = idle_cluster()

    def start(request: Request) -> Answer | None:
        cluster.start(request)
        if str(request).startswith("create pods/") and str(request).split()[1].endswith("-1"):
            cluster.server.remove(("pods", "ml", f"{RUN.name}-1"))
        return None

    cluster.server.after = start
    report = run_idle(cluster, start_seconds=0.4)

    assert report is not None
    assert report.untested == (f"node b: pod {RUN.name}-1 has ended: it was deleted by something else",)
    assert conditions(cluster).keys() == {"a", "c"}


def test_run_ends_if_the_api_server_does_not_say_whether_pods_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = idle_cluster()
    preempted(cluster, "b")
    monkeypatch.setattr(ProbePods, "serving", no_answer)

    with pytest.raises(RequestFailed, match="the API server does not answer"):
        run_idle(cluster)
    assert conditions(cluster) == {}
    assert cluster.left() == []


def test_failures_are_not_the_rails_if_the_api_server_does_not_say_whether_pods_have_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = idle_cluster()
    cut(cluster, address("b", 1))
    cluster.apart = {(0, 1)}
    monkeypatch.setattr(ProbePods, "serving", no_answer)
    report = cluster.validate()

    assert report.findings == ()
    assert sorted((one.pair, bool(one.untried)) for one in report.measured if one.pair.rail == 1) == [
        ((1, "a", "b"), True),
        ((1, "a", "c"), False),
        ((1, "b", "c"), True),
    ]
    assert [each.reached for each in report.reach] == [None]
    assert any("not known whether all pods were there until the end" in one for one in report.untested)


def no_answer(_: ProbePods) -> frozenset[str]:
    raise RequestFailed("the API server does not answer")


def test_rails_are_not_said_to_be_apart_because_a_pod_has_gone() -> None:
    cluster = idle_cluster("a", "b")
    preempted(cluster, "b")
    cluster.apart = {(0, 1)}
    report = run_idle(cluster)

    assert report is not None
    assert [each.reached for each in report.reach] in ([], [None])


def command(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run the whole command on a cluster; return its exit status."""
    monkeypatch.setattr(
        "railnet.cli.connection.connect_to_cluster", lambda *_: (cluster.server.api, cluster, ClusterName())
    )
    monkeypatch.setattr(idle_run, "run_idle", partial(idle_run.run_idle, look_seconds=0.001))
    return exit_status(["--namespace", "ml", "--idle", "--start-seconds", "0.05", *words], monkeypatch)


def test_command_with_findings_has_done_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = idle_cluster("a", "b")
    cluster.answer = lambda source, peer: CUT

    assert command(cluster, monkeypatch) == 0
    assert {one["status"] for one in conditions(cluster).values()} == {"False"}


@pytest.mark.parametrize("starts", ["", "ab"], ids=["none", "not all"])
def test_command_whose_pods_do_not_start_has_status_6(starts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = idle_cluster()
    cluster.starts = set(starts)

    assert command(cluster, monkeypatch) == 6
    assert conditions(cluster)["c"]["status"] == "Unknown"


def test_command_for_a_node_that_does_not_exist_has_status_6(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = idle_cluster()
    named = [word for name in ("a", "b", "typo") for word in ("--node", name)]

    assert command(cluster, monkeypatch, *named) == 6
    assert "the cluster has no node of the name typo; correct --node" in capsys.readouterr().err
    assert cluster.pods == []


def test_command_that_gave_way_to_jobs_has_done_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = idle_cluster("a", "b")
    preempted(cluster, "b")

    assert command(cluster, monkeypatch) == 0
    assert conditions(cluster) == {}


def test_condition_keeps_its_transition_while_it_stays_as_it_is() -> None:
    cluster = idle_cluster()
    run_idle(cluster)
    early = "2026-01-01T00:00:00Z"
    for (kind, _, _), found in cluster.server.objects.items():
        for condition in found["status"]["conditions"] if kind == "nodes" else ():
            condition["lastTransitionTime"] = early if condition["type"] == TYPE else None
    run_idle(cluster)
    assert {one["lastTransitionTime"] for one in conditions(cluster).values()} == {early}
    cluster.answer = lambda source, peer: CUT
    run_idle(cluster)

    assert early not in {one["lastTransitionTime"] for one in conditions(cluster).values()}


def test_condition_that_cannot_be_set_is_said_and_the_others_are_set() -> None:
    cluster = idle_cluster()

    def refuse(request: Request) -> Answer | None:
        return status(403, "no") if "/nodes/a/status" in request.path else None

    report = cluster.validate(mode=Mode.QUICK)
    cluster.server.before = refuse

    assert not write_conditions(cluster.server.api, verdicts(report, MOMENT), cluster.said.append)
    assert conditions(cluster).keys() == {"b", "c"}
    assert any(one.startswith(f"the condition {TYPE} of node a is not written: ") for one in cluster.said)


def test_condition_is_short_whatever_was_found() -> None:
    cluster = idle_cluster()
    cluster.answer = lambda source, peer: {"failed": {"measurement": "mtu", "why": "x" * 5000}}
    run_idle(cluster)

    assert all(len(one["message"]) < 1200 for one in conditions(cluster).values())


def test_words_of_a_pod_are_printable_in_the_condition() -> None:
    cluster = idle_cluster()
    cluster.answer = lambda source, peer: {"failed": {"measurement": "mtu", "why": "\x1b]0;x\x07\nhi"}}
    run_idle(cluster)
    message = conditions(cluster)["a"]["message"]

    assert message.isprintable()
    assert r"\x1b]0;x\x07\nhi" in message
