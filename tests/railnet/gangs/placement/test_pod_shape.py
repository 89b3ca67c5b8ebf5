"""What a pod asks of its node, and what a node has: read from Kubernetes' JSON as the scheduler reads it."""

from typing import Any

import pytest

from railnet.gangs.placement.free_capacity import FreeCapacity
from railnet.gangs.placement.node import Node, Taint, node, tolerated
from railnet.gangs.placement.pod_shape import AffinityTerm, HostPort, Shape, Toleration, Unseen, shape


def a_spec(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m", "rdma/ib_vf": "2"}}}], **fields}


def required_affinity(expressions: list[dict[str, Any]]) -> dict[str, Any]:
    return required_terms([{"matchExpressions": expressions}])


def required_terms(terms: list[dict[str, Any]]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def test_init_containers_sidecars_and_overhead_count_as_the_scheduler_counts_them() -> None:
    spec = a_spec(
        initContainers=[
            {"resources": {"requests": {"cpu": "3"}}},
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
        ],
        overhead={"cpu": "250m"},
    )

    assert dict(shape(spec).requests) == {"cpu": 3250, "memory": 1 << 30, "pods": 1, "rdma/ib_vf": 2}


@pytest.mark.parametrize(
    "spec",
    [
        a_spec(nodeSelector={f"label-{number}": "x" * 60 for number in range(10_000)}),
        a_spec(affinity=required_affinity([{"key": "k", "operator": "In", "values": ["x" * 1_300_000]}])),
        a_spec(affinity=required_affinity([{"key": "k", "operator": "Exists"}] * 10_000)),
        a_spec(tolerations=[{"key": f"taint-{number}", "operator": "Exists"} for number in range(10_000)]),
        a_spec(containers=[{"ports": [{"hostPort": number} for number in range(1, 60_000)]}]),
        a_spec(containers=[{"resources": {"requests": {f"example.com/{number}": "1" for number in range(10_000)}}}]),
        a_spec(affinity=required_terms([{}] * 1000)),
        a_spec(containers=[{"resources": {"limits": {f"example.com/{number}": "1" for number in range(10_000)}}}]),
        a_spec(resources={"requests": {f"hugepages-{number}": "1" for number in range(10_000)}}),
        a_spec(overhead={f"example.com/{number}": "1" for number in range(10_000)}),
    ],
    ids=[
        "selector",
        "long value",
        "affinity",
        "tolerations",
        "host ports",
        "resources",
        "empty terms",
        "limits",
        "of the pod",
        "overhead",
    ],
)
def test_of_a_pod_with_more_requirements_than_fit_the_first_resources_are_kept_alone(spec: dict[str, Any]) -> None:
    read = shape(spec)

    assert read.unseen == (Unseen.LARGE,)
    assert (read.selector, read.affinity, read.tolerations, read.ports) == ((), None, (), ())
    assert dict(read.requests)["pods"] == 1
    assert len(read.requests) <= 64


def test_affinity_to_two_hundred_nodes_is_kept() -> None:
    names = [f"node-{number:03}.of.a.large.cluster.example.com" for number in range(200)]
    read = shape(
        a_spec(affinity=required_affinity([{"key": "kubernetes.io/hostname", "operator": "In", "values": names}]))
    )

    assert (read.may_be_on("", {"kubernetes.io/hostname": names[-1]}), read.unseen) == (True, ())
    assert not read.may_be_on("", {"kubernetes.io/hostname": "another"})


def test_host_ports_of_containers_and_sidecars_count_once() -> None:
    spec = a_spec(
        initContainers=[
            {"restartPolicy": "Always", "ports": [{"containerPort": 9, "hostPort": 9, "protocol": "UDP"}]},
            {"ports": [{"containerPort": 7, "hostPort": 7}]},
        ]
    )
    spec["containers"][0]["ports"] = [
        {"hostPort": 80, "hostIP": "10.0.0.1"},
        {"hostPort": 80, "hostIP": "10.0.0.1"},
        {"containerPort": 1},
    ]

    assert shape(spec).ports == (HostPort(9, "UDP"), HostPort(80, "TCP", "10.0.0.1"))


@pytest.mark.parametrize(
    ("other", "conflicts"),
    [
        (HostPort(80), True),
        (HostPort(80, "TCP", "10.0.0.1"), True),
        (HostPort(80, "UDP"), False),
        (HostPort(81), False),
    ],
)
def test_a_port_on_every_address_conflicts_with_the_port_on_one(other: HostPort, conflicts: bool) -> None:
    assert FreeCapacity({}, [other]).has_in_use(HostPort(80)) is conflicts
    assert FreeCapacity({}, [HostPort(80)]).has_in_use(other) is conflicts
    assert not FreeCapacity({}, [HostPort(80, "TCP", "10.0.0.1")]).has_in_use(HostPort(80, "TCP", "10.0.0.2"))


def test_port_is_free_again_when_the_last_pod_with_it_is_gone() -> None:
    every, one = Shape((), (HostPort(80),)), Shape((), (HostPort(80, "TCP", "10.0.0.1"),))
    room = FreeCapacity({})
    room.take(every)
    room.take(one)
    other = room.copy()
    other.take(every, -1)

    assert (other.has_in_use(HostPort(80, "TCP", "10.0.0.2")), other.has_in_use(HostPort(80))) == (False, True)
    other.take(one, -1)
    assert not other.has_in_use(HostPort(80))
    assert room.has_in_use(HostPort(80, "TCP", "10.0.0.2"))


REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
SCORED = {
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}]
}


@pytest.mark.parametrize(
    ("fields", "unseen"),
    [
        ({}, ()),
        ({"affinity": {"podAffinity": REQUIRED}}, (Unseen.AFFINITY,)),
        ({"affinity": {"podAntiAffinity": REQUIRED}}, (Unseen.ANTI_AFFINITY,)),
        ({"affinity": {"podAffinity": SCORED, "podAntiAffinity": SCORED}}, ()),
        ({"affinity": {"podAffinity": {}, "podAntiAffinity": None}}, ()),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, ()),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, (Unseen.SPREAD,)),
        ({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "projected": {}}, {"name": "c"}]}, ()),
        ({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "data"}}]}, (Unseen.VOLUMES,)),
        ({"volumes": [{"name": "a", "ephemeral": {}}, {"name": "b", "csi": {}}]}, (Unseen.VOLUMES,)),
        ({"resourceClaims": [{"name": "gpu"}]}, (Unseen.CLAIMS,)),
    ],
    ids=str,
)
def test_what_only_the_scheduler_can_check_is_noted(fields: dict[str, Any], unseen: tuple[Unseen, ...]) -> None:
    assert shape(a_spec(**fields)).unseen == unseen


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def expression(operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "zone", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("terms", "labels", "expected"),
    [
        ([expression("In", "a", "b")], {"zone": "b"}, True),
        ([expression("In", "a")], {}, False),
        ([expression("NotIn", "a")], {}, True),
        ([expression("NotIn", "a")], {"zone": "a"}, False),
        ([expression("Exists")], {"zone": ""}, True),
        ([expression("DoesNotExist")], {"zone": ""}, False),
        ([expression("Gt", "5")], {"zone": "6"}, True),
        ([expression("Gt", "5")], {"zone": "5"}, False),
        ([expression("Lt", "5")], {"zone": "4"}, True),
        ([expression("Lt", "5")], {"zone": "x"}, False),
        ([expression("In", "a"), expression("In", "b")], {"zone": "b"}, True),
        ([{}], {"zone": "a"}, False),
        ([], {"zone": "a"}, False),
    ],
)
def test_required_affinity_is_a_choice_of_terms_and_an_empty_term_matches_no_node(
    terms: list[dict[str, Any]], labels: dict[str, str], expected: bool
) -> None:
    assert shape(a_spec(affinity=affinity(*terms))).may_be_on("n", labels) is expected


def test_affinity_may_name_nodes() -> None:
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}], **expression("Exists")}
    found = shape(a_spec(affinity=affinity(by_name)))

    assert found.may_be_on("n1", {"zone": "a"})
    assert not found.may_be_on("n2", {"zone": "a"})
    assert not found.may_be_on("n1", {})


def test_a_pods_selector_must_match_whole() -> None:
    found = shape(a_spec(nodeSelector={"zone": "a", "disk": "ssd"}))

    assert found.may_be_on("n", {"zone": "a", "disk": "ssd", "more": "x"})
    assert not found.may_be_on("n", {"zone": "a"})


def test_preferred_affinity_asks_for_nothing() -> None:
    preferred = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}

    assert shape(a_spec(affinity=preferred)) == shape(a_spec())


def test_pods_that_ask_for_the_same_in_another_order_have_one_shape() -> None:
    one = a_spec(
        tolerations=[{"key": "a", "operator": "Exists"}, {"operator": "Exists"}], nodeSelector={"x": "1", "y": "2"}
    )
    other = a_spec(
        tolerations=[{"operator": "Exists"}, {"key": "a", "operator": "Exists"}], nodeSelector={"y": "2", "x": "1"}
    )

    assert shape(one) == shape(other)
    assert hash(shape(one)) == hash(shape(other))
    assert shape(one) != shape(a_spec())


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration("gpu", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("gpu", "Equal", "yes"), True),
        (Toleration("gpu", "Equal", "no"), False),
        (Toleration("gpu", "Exists", "", "NoExecute"), False),
        (Toleration("gpu", "Exists", "", "NoSchedule"), True),
        (Toleration("cpu", "Exists"), False),
        (Toleration("gpu", "Other", "yes"), False),
    ],
)
def test_a_taint_keeps_off_what_does_not_tolerate_it(toleration: Toleration, expected: bool) -> None:
    assert tolerated([Taint("gpu", "yes")], [toleration]) is expected
    assert not tolerated([Taint("gpu", "yes"), Taint("other")], [Toleration("gpu", "Exists")])


def test_node_is_read_with_its_conditions_taints_and_devices() -> None:
    found = node(
        {
            "metadata": {"name": "a", "labels": {"x": "y"}},
            "spec": {
                "unschedulable": True,
                "taints": [
                    {"key": "gpu", "value": "yes", "effect": "NoExecute"},
                    {"key": "soft", "effect": "PreferNoSchedule"},
                ],
            },
            "status": {
                "conditions": [{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": "Unknown"}],
                "allocatable": {"cpu": "3", "rdma/ib_vf": "0"},
                "capacity": {"cpu": "4", "rdma/ib_vf": "8"},
            },
        }
    )

    assert found == Node(
        "a",
        {"x": "y"},
        {"cpu": 3000, "rdma/ib_vf": 0},
        (Taint("gpu", "yes", "NoExecute"), Taint("node.kubernetes.io/unschedulable")),
        ready=False,
        at_best={"cpu": 3000, "rdma/ib_vf": 8},
    )


def test_an_affinity_term_of_labels_and_fields_needs_both() -> None:
    assert not AffinityTerm().holds("n", {})


def test_shapes_do_not_compare_by_what_is_derived_of_them() -> None:
    assert Shape((("cpu", 1), ("pods", 1), ("rdma/ib_vf", 1))).scarce_first[0] == ("rdma/ib_vf", 1)


@pytest.mark.parametrize(
    "values", [(), (None,), (5,), ("4", "3"), ("4_0",), ("٤",), (" 4",), ("9" * 5000,), (str(1 << 63),)]
)
@pytest.mark.parametrize("operator", ["Gt", "Lt"])
@pytest.mark.parametrize("label", ["5", "-9223372036854775808", "1_000", "٩"])
def test_what_is_no_number_of_gos_is_neither_greater_nor_less(
    operator: str, label: str, values: tuple[Any, ...]
) -> None:
    """An operator's template, which the API server does not check, may have any values."""
    term = {"matchExpressions": [{"key": "disks", "operator": operator, "values": list(values)}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    asks = shape({"affinity": {"nodeAffinity": affinity}})

    assert not asks.may_be_on("n", {"disks": label})
