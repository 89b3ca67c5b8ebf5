"""The API server's rules for pods with scheduling gates, for bindings and for evictions, on which the controllers of gangs rely."""

from collections.abc import Iterator

import pytest

from tests.cluster.process import wait_until
from tests.control_plane.api import ApiAnswer, JsonObject
from tests.control_plane.gang_cluster import CONTAINERS
from tests.control_plane.nodes import node, some_nodes
from tests.control_plane.server import ApiServer

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
    server.namespace(NAMESPACE)
    yield
    server.api.delete(f"{PODS}?gracePeriodSeconds=0")


def create(server: ApiServer, **spec: object) -> JsonObject:
    body = {"metadata": {"name": "pod", "labels": {"app": "train"}}, "spec": CONTAINERS | spec}
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
    body = {"metadata": {"name": "pod"}, "spec": {**CONTAINERS, "nodeName": "a", **GATES}}
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
    # Not the condition's reason: the scheduler's patch of it may come after the binding, and does not repeat the status.
    assert (bound["spec"]["nodeName"], scheduled(bound)[0]) == ("a", "True")


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
    """The disruption controller counts the pods, and what the budget permits."""
    with some_nodes(server.api, [node("a")]):
        create(server, nodeName="a")
        wait_until(lambda: server.api.get(POD).object["status"]["phase"] == "Running", _SECONDS, "the pod to run")
        budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "train"}}}
        made = server.api.create(BUDGETS, {"metadata": {"name": "budget"}, "spec": budget})
        assert made.status == 201, made.message
        wait_until(lambda: permitted(server) == 0, _SECONDS, "the budget to be counted")
        refused = evict(server)
        server.api.merge(f"{BUDGETS}/budget", {"spec": {"minAvailable": 0}})
        wait_until(lambda: permitted(server) == 1, _SECONDS, "the budget to be counted again")

        assert (refused.status, evict(server).status) == (429, 201)
        assert refused.message == "Cannot evict pod as it would violate the pod's disruption budget."
        server.api.delete(f"{BUDGETS}/budget")


def permitted(server: ApiServer) -> int | None:
    """Return how many evictions the budget permits; None while that is not known."""
    budget = server.api.get(f"{BUDGETS}/budget").object
    status = budget["status"]
    counted = status.get("observedGeneration") == budget["metadata"]["generation"] and status.get("currentHealthy") == 1
    return int(status["disruptionsAllowed"]) if counted else None
