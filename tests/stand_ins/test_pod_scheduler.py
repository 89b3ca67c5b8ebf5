"""The stand-in for kube-scheduler: a pod gets a node that has everything it asks for, or none."""

from typing import Any

import pytest

from tests.stand_ins.pod_scheduler import PodScheduler, Unschedulable, quantity, requests, waits

_Object = dict[str, Any]
LARGE = {"cpu": "8", "memory": "32Gi", "pods": "3", "rdma/ib_vf": "2"}
TAINT = {"key": "reserved", "value": "yes", "effect": "NoSchedule"}


def node(
    name: str, labels: _Object | None = None, allocatable: _Object | None = None, **spec: object
) -> dict[str, Any]:
    found = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
    return {"metadata": found, "spec": spec, "status": {"allocatable": allocatable or LARGE}}


def container(ports: tuple[int, ...] = (), **requested: str) -> _Object:
    named = {key.replace("vfs", "rdma/ib_vf"): amount for key, amount in requested.items()}
    return {"resources": {"requests": named}, "ports": [{"hostPort": port} for port in ports]}


def pod(*containers: _Object, **spec: object) -> _Object:
    return {"metadata": {"name": "pod"}, "spec": {"containers": containers or [container(cpu="1")], **spec}}


def affinity(*terms: _Object) -> _Object:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def expression(key: str, operator: str, *values: str) -> _Object:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("500m", 0.5), ("2Ki", 2048), ("1.5Gi", 1.5 * 2**30), ("3k", 3000), ("1e3", 1000)]
)
def test_quantity_is_a_number(text: str, value: float) -> None:
    assert quantity(text) == value


def test_pod_requests_the_larger_of_start_and_run() -> None:
    spec = {
        "initContainers": [
            {**container(cpu="1"), "restartPolicy": "Always"},
            container(cpu="4", memory="1Gi"),
        ],
        "containers": [container(cpu="1"), container(cpu="2", memory="2Gi")],
        "overhead": {"cpu": "250m"},
    }
    assert requests(spec) == {"cpu": 5.25, "memory": 2 * 2**30, "pods": 1}


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({}, {}, True),
        ({"schedulingGates": [{"name": "railnet.io/gang"}]}, {}, False),
        ({"nodeName": "a"}, {}, False),
        ({"schedulerName": "volcano"}, {}, False),
        ({}, {"phase": "Failed"}, False),
    ],
    ids=["waiting", "gated", "bound", "another scheduler's", "ended"],
)
def test_only_a_pod_without_gate_and_node_waits(spec: _Object, status: _Object, expected: bool) -> None:
    assert waits(pod(**spec) | {"status": status}) is expected


def test_pod_that_is_being_deleted_does_not_wait() -> None:
    assert not waits(pod() | {"metadata": {"name": "pod", "deletionTimestamp": "2026-03-01T12:00:00Z"}})


@pytest.mark.parametrize(
    ("asking", "reason"),
    [
        (pod(container(cpu="9")), "Insufficient cpu"),
        (pod(container(vfs="3")), "Insufficient rdma/ib_vf"),
        (pod(container(**{"nvidia.com/gpu": "1"})), "Insufficient nvidia.com/gpu"),
        (pod(nodeSelector={"leaf": "2"}), "node(s) didn't match Pod's node affinity/selector"),
        (pod(affinity=affinity(expression("leaf", "In", "2"))), "node(s) didn't match Pod's node affinity/selector"),
        (pod(affinity=affinity({})), "node(s) didn't match Pod's node affinity/selector"),
        (pod(container((80,))), "node(s) didn't have free ports for the requested pod ports"),
    ],
)
def test_node_that_lacks_what_is_asked_gets_no_pod(asking: _Object, reason: str) -> None:
    holds = pod(container((80,)), nodeName="a")
    scheduler = PodScheduler([node("a", {"leaf": "1"})], [holds])

    with pytest.raises(Unschedulable) as found:
        scheduler.place(asking)
    assert str(found.value) == f"0/1 nodes are available: 1 {reason}."


def test_number_of_pods_counts() -> None:
    scheduler = PodScheduler([node("a")], [])
    for _ in range(3):
        scheduler.place(pod(container()))

    with pytest.raises(Unschedulable, match="1 Too many pods"):
        scheduler.place(pod(container()))


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (expression("leaf", "NotIn", "1"), "b"),
        (expression("leaf", "Exists"), "a"),
        (expression("leaf", "DoesNotExist"), "b"),
        (expression("size", "Gt", "5"), "b"),
        (expression("size", "Lt", "5"), "a"),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}, "b"),
    ],
)
def test_required_affinity_chooses_the_node(term: _Object, expected: str) -> None:
    nodes = [node("a", {"leaf": "1", "size": "4"}), node("b", {"size": "10"})]

    assert PodScheduler(nodes, []).place(pod(affinity=affinity(term))) == expected


def test_one_term_of_several_is_enough() -> None:
    terms = expression("leaf", "In", "9"), expression("leaf", "In", "1")

    assert PodScheduler([node("a", {"leaf": "1"})], []).place(pod(affinity=affinity(*terms))) == "a"


@pytest.mark.parametrize("spec", [{"taints": [TAINT]}, {"unschedulable": True}], ids=["taint", "unschedulable"])
def test_tainted_node_takes_only_pods_that_tolerate_it(spec: _Object) -> None:
    nodes, tolerations = [node("a", **spec)], [{"operator": "Exists"}]

    assert PodScheduler(nodes, []).place(pod(tolerations=tolerations)) == "a"
    with pytest.raises(Unschedulable, match="untolerated taint"):
        PodScheduler(nodes, []).place(pod())


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "reserved", "operator": "Exists"}, True),
        ({"key": "reserved", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}, True),
        ({"key": "reserved", "value": "no"}, False),
        ({"key": "reserved", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "another", "operator": "Exists"}, False),
    ],
)
def test_toleration_is_of_one_taint(toleration: _Object, tolerated: bool) -> None:
    scheduler = PodScheduler([node("a", taints=[TAINT]), node("b", allocatable={"pods": "0"})], [])

    if tolerated:
        assert scheduler.place(pod(tolerations=[toleration])) == "a"
    else:
        with pytest.raises(Unschedulable):
            scheduler.place(pod(tolerations=[toleration]))


def test_taint_that_is_only_a_preference_is_ignored() -> None:
    assert PodScheduler([node("a", taints=[TAINT | {"effect": "PreferNoSchedule"}])], []).place(pod()) == "a"


def test_pods_are_spread_over_the_emptiest_nodes() -> None:
    scheduler = PodScheduler([node("a"), node("b")], [pod(nodeName="a")])

    assert [scheduler.place(pod()) for _ in range(4)] == ["b", "a", "b", "a"]


def test_preferred_node_is_taken_before_an_emptier_one_if_it_fits() -> None:
    preferred = [{"weight": 100, "preference": expression("kubernetes.io/hostname", "In", "a")}]
    asking = pod(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})
    scheduler = PodScheduler([node("a"), node("b"), node("c")], [pod(nodeName="a")])

    assert [scheduler.place(asking) for _ in range(3)] == ["a", "a", "b"]


def test_pod_that_is_being_deleted_holds_its_place_and_an_ended_one_does_not() -> None:
    dying = pod(container(vfs="2"), nodeName="a")
    dying["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    ended = pod(container(vfs="2"), nodeName="b") | {"status": {"phase": "Succeeded"}}

    assert PodScheduler([node("a"), node("b")], [dying, ended]).place(pod(container(vfs="1"))) == "b"
