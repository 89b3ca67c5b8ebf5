"""The API server's rules for pods with scheduling gates, for bindings and for evictions, and the stand-ins that live by them."""

from collections.abc import Iterator

import pytest

from tests.cluster.process import wait_until
from tests.genericapiserver.api import ApiAnswer, JsonObject
from tests.genericapiserver.server import ApiServer
from tests.genericapiserver.stand_in_jobs import JobController
from tests.genericapiserver.stand_in_nodes import Kubelets, Nodes, node
from tests.genericapiserver.stand_in_scheduler import Scheduler
from tests.stand_ins.gang_job import GangJob

_SECONDS = 60.0
NAMESPACE = "gated"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
GATE = "railnet.io/gang"
GATES = {"schedulingGates": [{"name": GATE}]}
POD = f"{PODS}/pod"
BUDGETS = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
IMMUTABLE = "pod updates may not change fields other than"


@pytest.fixture(autouse=True)
def namespace(server: ApiServer) -> Iterator[None]:
    server.api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    yield
    server.api.send("DELETE", f"{PODS}?gracePeriodSeconds=0")


def create(server: ApiServer, **spec: object) -> JsonObject:
    body = {"metadata": {"name": "pod", "labels": {"app": "train"}}, "spec": {"containers": []} | spec}
    made = server.api.create(PODS, body)
    assert made.status == 201, made.message
    return made.object


def patch(server: ApiServer, *operations: JsonObject) -> ApiAnswer:
    return server.api.send("PATCH", POD, list(operations), content_type="application/json-patch+json")


def operation(what: str, path: str, value: object = None) -> JsonObject:
    return {"op": what, "path": path} | ({} if value is None else {"value": value})


def bind(server: ApiServer, to: str = "a") -> ApiAnswer:
    return server.api.create(f"{POD}/binding", {"metadata": {"name": "pod"}, "target": {"kind": "Node", "name": to}})


def evict(server: ApiServer, **options: object) -> ApiAnswer:
    body = {"metadata": {"name": "pod", "namespace": NAMESPACE}, "deleteOptions": options}
    return server.api.create(f"{POD}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction"} | body)


def scheduled(pod: JsonObject) -> tuple[str, str]:
    (found,) = (one for one in pod["status"]["conditions"] if one["type"] == "PodScheduled")
    return found["status"], found.get("reason", "")


def test_gated_pod_is_pending_and_says_so(server: ApiServer) -> None:
    made = create(server, **GATES)

    assert made["status"]["phase"] == "Pending"
    assert scheduled(made) == ("False", "SchedulingGated")


def test_pod_with_a_gate_and_a_node_is_refused(server: ApiServer) -> None:
    body = {"metadata": {"name": "pod"}, "spec": {"containers": [], "nodeName": "a", **GATES}}
    answer = server.api.create(PODS, body)

    assert answer.status == 422
    assert "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared" in answer.message


def test_gates_are_only_removed(server: ApiServer) -> None:
    create(server, **GATES)
    added = patch(server, operation("add", "/spec/schedulingGates/-", {"name": "another"}))
    removed = patch(server, operation("remove", "/spec/schedulingGates"))

    assert (added.status, removed.status) == (422, 200)
    assert "only deletion is allowed, but found new scheduling gate 'another'" in added.message
    assert "schedulingGates" not in removed.object["spec"]
    assert patch(server, operation("add", "/spec/schedulingGates", [{"name": GATE}])).status == 422


def test_json_patch_is_refused_whole_if_one_of_its_tests_fails(server: ApiServer) -> None:
    create(server, **GATES)
    operations = [
        operation("test", "/spec/schedulingGates/0/name", "another"),
        operation("add", "/metadata/annotations", {"a": "b"}),
        operation("remove", "/spec/schedulingGates/0"),
    ]
    stale = patch(server, *operations)
    assert (stale.status, server.api.get(POD).object["spec"]["schedulingGates"]) == (422, [{"name": GATE}])

    operations[0]["value"] = GATE
    assert patch(server, *operations).status == 200


def test_resource_version_in_a_json_patch_is_a_precondition(server: ApiServer) -> None:
    version = create(server, **GATES)["metadata"]["resourceVersion"]
    patch(server, operation("add", "/metadata/annotations", {"a": "b"}))
    stale = patch(
        server,
        operation("test", "/metadata/resourceVersion", version),
        operation("remove", "/spec/schedulingGates/0"),
    )

    assert stale.status == 422


@pytest.mark.parametrize(
    ("value", "status"), [({"a": "1", "b": "2"}, 200), ({"a": "2"}, 422), ({"b": "2"}, 422)], ids=str
)
def test_node_selector_of_a_gated_pod_only_gets_keys(server: ApiServer, value: JsonObject, status: int) -> None:
    create(server, nodeSelector={"a": "1"}, **GATES)

    assert patch(server, operation("replace", "/spec/nodeSelector", value)).status == status


def test_node_selector_of_a_pod_without_gates_is_immutable(server: ApiServer) -> None:
    create(server)
    answer = patch(server, operation("add", "/spec/nodeSelector", {"a": "1"}))

    assert answer.status == 422
    assert IMMUTABLE in answer.message


def affinity(*terms: list[str]) -> JsonObject:
    """Return node affinity: of each term the labels that must exist."""
    made = [{"matchExpressions": [{"key": key, "operator": "Exists"} for key in keys]} for keys in terms]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": made}}}


TO_PODS = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a"}]}}
PREFERRED = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
        ]
    }
}


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        (None, affinity(["a"], ["b"]), 200),
        (affinity(["a"]), affinity(["a", "b"]), 200),
        (affinity(["a"]), affinity(["b"]), 422),
        (affinity(["a"]), affinity(["b", "a"]), 422),
        (affinity(["a"]), affinity(["a"], ["b"]), 422),
        (affinity(["a"]), {}, 422),
        (affinity([]), affinity(["a"]), 422),
        (None, PREFERRED, 200),
        (affinity(["a"]), {"nodeAffinity": affinity(["a"])["nodeAffinity"] | PREFERRED["nodeAffinity"]}, 200),
        (TO_PODS, TO_PODS | PREFERRED, 200),
        (TO_PODS, PREFERRED, 422),
        (None, TO_PODS, 422),
    ],
    ids=[
        "new",
        "narrower",
        "other",
        "order",
        "another term",
        "none",
        "empty term",
        "preferred",
        "preferred beside required",
        "preferred beside affinity to pods",
        "no affinity to pods",
        "affinity to pods",
    ],
)
def test_node_affinity_of_a_gated_pod_is_only_narrowed(
    server: ApiServer, before: JsonObject | None, after: JsonObject, status: int
) -> None:
    create(server, **GATES, **({} if before is None else {"affinity": before}))

    assert patch(server, operation("add", "/spec/affinity", after)).status == status


def test_rest_of_a_gated_pod_is_immutable_and_its_metadata_and_images_are_not(server: ApiServer) -> None:
    create(server, **GATES | {"containers": [{"name": "main", "image": "i"}]})

    assert patch(server, operation("replace", "/spec/containers/0/image", "another")).status == 200
    assert IMMUTABLE in patch(server, operation("replace", "/spec/containers/0/name", "another")).message
    assert IMMUTABLE in patch(server, operation("add", "/spec/priorityClassName", "x")).message
    assert patch(server, operation("add", "/metadata/annotations", {"a": "b"})).status == 200


def test_gated_pod_is_not_bound_and_an_open_one_once(server: ApiServer) -> None:
    create(server, **GATES)
    gated = bind(server)
    patch(server, operation("remove", "/spec/schedulingGates"))
    done, again = bind(server), bind(server, "b")
    bound = server.api.get(POD).object

    assert (gated.status, done.status, again.status) == (409, 201, 409)
    assert "pod pod has non-empty .spec.schedulingGates" in gated.message
    assert 'pod pod is already assigned to node "a"' in again.message
    assert (bound["spec"]["nodeName"], *scheduled(bound)) == ("a", "True", "")


def test_evicted_pod_is_deleted_if_it_is_the_one(server: ApiServer) -> None:
    uid = create(server)["metadata"]["uid"]

    assert evict(server, preconditions={"uid": "another"}).status == 409
    assert evict(server, preconditions={"uid": uid}).status == 201
    assert server.api.get(POD).status == 404
    assert evict(server).status == 404


def test_evicted_pod_on_a_node_says_why_until_it_is_gone(server: ApiServer) -> None:
    create(server, nodeName="a", terminationGracePeriodSeconds=30)
    evict(server)
    found = server.api.get(POD).object

    assert found["metadata"]["deletionGracePeriodSeconds"] == 30
    assert [one["reason"] for one in found["status"]["conditions"]] == ["EvictionByEvictionAPI"]
    server.api.send("DELETE", f"{POD}?gracePeriodSeconds=0")
    assert server.api.get(POD).status == 404


def test_budget_refuses_an_eviction_with_429_until_it_permits_one(server: ApiServer) -> None:
    create(server)
    server.api.merge(f"{POD}/status", {"status": {"phase": "Running"}})
    selector = {"matchLabels": {"app": "train"}}
    made = server.api.create(BUDGETS, {"metadata": {"name": "budget"}, "spec": {"selector": selector}})
    assert made.status == 201
    refused = evict(server)
    status = {"disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1}
    server.api.merge(f"{BUDGETS}/budget/status", {"status": status})

    assert (refused.status, evict(server).status) == (429, 201)
    assert refused.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert server.api.get(f"{BUDGETS}/budget").object["status"]["disruptionsAllowed"] == 0
    server.api.send("DELETE", f"{BUDGETS}/budget")


def test_scheduler_binds_what_fits_and_marks_what_does_not(server: ApiServer) -> None:
    nodes = Nodes(server.api)
    nodes.create([node("a", rdma_ib_vf="1"), node("b", rdma_ib_vf="1")])
    job = GangJob("unplanned", {"worker": 3})
    try:
        with Scheduler(server), Kubelets(server), JobController(server, job) as jobs:
            wait_until(
                lambda: sorted(map(state, jobs.pods())) == ["Running", "Running", "Unschedulable"], _SECONDS, "2 pods"
            )
            ran = next(one for one in jobs.pods() if one["spec"].get("nodeName"))
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": ran["metadata"]["name"]}}
            assert server.api.create(f"{jobs.pods_path}/{ran['metadata']['name']}/eviction", eviction).status == 201
            wait_until(lambda: len(jobs.made) == 4 and len(jobs.pods()) == 3, _SECONDS, "the evicted pod, made anew")
            wait_until(
                lambda: sorted(map(state, jobs.pods())) == ["Running", "Running", "Unschedulable"], _SECONDS, "2 pods"
            )
    finally:
        server.api.send("DELETE", f"{jobs.pods_path}?gracePeriodSeconds=0")
        nodes.remove_all()


def test_workers_are_made_when_the_parameter_server_runs(server: ApiServer) -> None:
    nodes = Nodes(server.api)
    nodes.create([node("a", rdma_ib_vf="3")])
    job = GangJob("ordered", {"ps": 1, "worker": 2}, in_order=True)
    try:
        with Kubelets(server), JobController(server, job) as jobs:
            wait_until(
                lambda: [one["metadata"]["name"] for one in jobs.pods()] == ["ordered-ps-0"], _SECONDS, "its pod"
            )
            with Scheduler(server):
                wait_until(lambda: [state(one) for one in jobs.pods()] == ["Running"] * 3, _SECONDS, "all pods")
    finally:
        server.api.send("DELETE", f"{jobs.pods_path}?gracePeriodSeconds=0")
        nodes.remove_all()


def state(pod: JsonObject) -> str:
    """Return the pod's phase, or why it is pending."""
    phase: str = pod["status"]["phase"]
    return phase if phase != "Pending" or not pod["status"].get("conditions") else scheduled(pod)[1]
