"""What `railnet doctor --pod` asks of the API server, and that one refusal leaves the rest."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from railnet.apiserver.client import Absent, Answer, ApiServer, RequestFailed
from railnet.apiserver.request import JSON, Request
from railnet.doctor.pod_gathering import gather
from railnet.fabric.published_reach import NAME as NAME_OF_REACH
from railnet.fabric.published_reach import NAMESPACE as NAMESPACE_OF_REACH
from railnet.fabric.published_reach import config_map
from railnet.objects.network_status import ANNOTATION
from tests.railnet.doctor.test_pod_checks import RAILS, a_node, event, pod

EMPTY = b'{"metadata": {"resourceVersion": "1"}, "items": []}'


class Answers:
    """A transport that answers by the request's path; others with 404."""

    def __init__(self, bodies: Mapping[str, object]) -> None:
        self._bodies, self.asked = bodies, list[str]()

    def exchange(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        path = request.path.partition("?")[0]
        self.asked.append(request.path)
        found = self._bodies.get(path, 404)
        if isinstance(found, int):
            return Answer(found, JSON, "", b'{"kind": "Status", "message": "no"}')
        return Answer(200, JSON, "", json.dumps(found).encode())


def listed(*items: object) -> dict[str, object]:
    return {"metadata": {"resourceVersion": "1"}, "items": list(items)}


def api(transport: Answers) -> ApiServer:
    return ApiServer(transport, lambda: "token", "test")


POD, NAMESPACE, EVENTS = "/api/v1/namespaces/ml/pods/train", "/api/v1/namespaces/ml", "/api/v1/namespaces/ml/events"
DAEMONS, NODE = "/api/v1/namespaces/railnet/pods", "/api/v1/nodes/gpu-7"


def test_pod_with_a_node_has_its_node_and_events_in_order() -> None:
    late, early = (
        event("Late", "b"),
        {**event("Early", "a"), "lastTimestamp": None, "eventTime": "2025-01-01T00:00:00Z"},
    )
    transport = Answers(
        {POD: pod(), NAMESPACE: {"metadata": {}}, EVENTS: listed(late, early), DAEMONS: listed(), NODE: a_node()}
    )
    found = gather(api(transport), "ml", "train", RAILS)

    assert (found.events, found.node, found.daemons) == ((early, late), a_node(), ())
    assert (found.webhook, found.nodes, found.unread) == (False, None, ())
    assert any("spec.nodeName%3Dgpu-7" in one for one in transport.asked)
    assert any("involvedObject.uid%3Duid-1" in one for one in transport.asked)


APART = config_map({frozenset({0, 1}): False}, datetime(2026, 11, 27, tzinfo=UTC))
REACH = f"/api/v1/namespaces/{NAMESPACE_OF_REACH}/configmaps/{NAME_OF_REACH}"


@pytest.fixture
def railed() -> dict[str, object]:
    networks = [{"name": "railnet/default", "interface": "net1", "ips": ["10.56.0.9"], "rail": 0}]
    found = pod()
    metadata = {**found["metadata"], "annotations": {ANNOTATION: json.dumps(networks)}}
    return {**found, "metadata": metadata}


def test_pod_with_rails_has_what_is_published_of_them(railed: dict[str, object]) -> None:
    found = gather(api(Answers({POD: railed, REACH: APART})), "ml", "train", RAILS)

    assert found.reach == {frozenset({0, 1}): False}


def test_report_that_the_user_names_is_taken_for_what_is_published(railed: dict[str, object]) -> None:
    transport = Answers({POD: railed, REACH: APART})
    found = gather(api(transport), "ml", "train", RAILS, {frozenset({0, 1}): True})

    assert found.reach == {frozenset({0, 1}): True}
    assert REACH not in transport.asked


def test_what_is_published_in_another_form_could_not_be_read(railed: dict[str, object]) -> None:
    found = gather(api(Answers({POD: railed, REACH: {**APART, "data": None}})), "ml", "train", RAILS)

    assert found.reach == {}
    assert "is not as `railnet validate --publish` writes it" in found.unread[-1].why


def test_pod_without_a_node_has_all_nodes_and_a_gated_one_its_gangs_events() -> None:
    gated = pod(node="", spec={"schedulingGates": [{"name": "railnet.io/gang"}]})
    transport = Answers({POD: gated, EVENTS: listed(), "/api/v1/nodes": listed(a_node("a"), a_node("b"))})
    found = gather(api(transport), "ml", "train", RAILS)

    assert found.nodes == (a_node("a"), a_node("b"))
    assert (found.node, found.daemons, found.gang_events) == (None, None, ())


def test_what_is_refused_is_named_and_the_rest_is_there() -> None:
    hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/railnet-admission"
    transport = Answers({POD: pod(), NAMESPACE: {"metadata": {}}, EVENTS: 403, DAEMONS: 403, NODE: 403, hooks: 403})
    found = gather(api(transport), "ml", "train", RAILS)

    assert (found.webhook, found.events, found.node, found.daemons) == (None, None, None, None)
    assert len(found.unread) == 4
    assert all("403" in one.why for one in found.unread)


@pytest.mark.parametrize(("status", "error"), [(404, Absent), (403, RequestFailed)])
def test_pod_that_cannot_be_read_is_an_error(status: int, error: type[Exception]) -> None:
    with pytest.raises(error, match="pods/train in namespace ml"):
        gather(api(Answers({POD: status})), "ml", "train", RAILS)


def test_name_that_is_no_name_is_never_sent() -> None:
    transport = Answers({})
    with pytest.raises(ValueError, match="/"):
        gather(api(transport), "ml", "../secrets", RAILS)
    assert transport.asked == []
