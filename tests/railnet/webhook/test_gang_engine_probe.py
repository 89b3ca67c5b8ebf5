"""The probe of PodGroups: one dry run, whose answer says which engine new pods have."""

import json
import logging
from collections.abc import Mapping

import pytest

from railnet.admission.gang.engine_choice import GangEngine
from railnet.apiserver.client import Answer, ApiServer
from railnet.apiserver.request import Request
from railnet.webhook.gang_engine_probe import GangEngineProbe

KEPT = {"spec": {"schedulingConstraints": {"topology": [{"key": "kubernetes.io/hostname"}]}}}


class Answers:
    """A transport that gives each request the next answer."""

    def __init__(self, *answers: tuple[int, object]) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []

    def exchange(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        self.requests.append(request)
        status, body = self.answers.pop(0)
        return Answer(status, "application/json", "", json.dumps(body).encode())


def probe(transport: Answers, wanted: GangEngine = GangEngine.AUTO) -> GangEngineProbe:
    return GangEngineProbe(ApiServer(transport, lambda: "a-token", "test"), "railnet", wanted)


def test_probe_stores_nothing() -> None:
    transport = Answers((201, KEPT))
    one = probe(transport)
    assert one.engine().groups is False
    one.ask()

    assert one.engine().groups is True
    (request,) = transport.requests
    assert request.method == "POST"
    assert request.path == "/apis/scheduling.k8s.io/v1beta1/namespaces/railnet/podgroups?dryRun=All"


def test_engine_follows_the_api_server_and_its_last_answer_counts() -> None:
    transport = Answers((404, {}), (201, KEPT), (503, {}), (201, {"spec": {}}))
    one = probe(transport)
    seen = []
    for _ in range(4):
        one.ask()
        seen.append(one.engine().groups)

    assert seen == [False, True, True, False]


def test_missing_right_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    one = probe(Answers((403, {}), (403, {})))
    with caplog.at_level(logging.INFO):
        one.ask()
        one.ask()

    assert [record.message.count("lacks the right 'create'") for record in caplog.records] == [1]
    assert one.engine().groups is False


def test_what_to_enable_is_logged_where_kubernetes_engine_is_wanted(caplog: pytest.LogCaptureFixture) -> None:
    one = probe(Answers((404, {})), GangEngine.KUBERNETES)
    with caplog.at_level(logging.INFO):
        one.ask()

    assert "GenericWorkload" in caplog.text
    assert "serves no PodGroups" in one.engine().doubt
