"""The API server's version: asked until it answers, asked again for an upgrade, and what reviews do in the meantime."""

import asyncio
import base64
import json
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from railnet.admission import server_version
from railnet.admission.server_version import AskedVersion
from railnet.apiserver.client import Answer, ApiServer
from railnet.apiserver.request import Request, ServerVersion, get
from railnet.jobs.kubernetes_version import KubernetesVersion
from tests.jittered import jittered
from tests.railnet.admission.reviewing import a_review
from tests.railnet.admission.serving import Served, serving
from tests.railnet.admission.test_gang_review import a_pod

JsonObject = dict[str, Any]
NEW = {"major": "1", "minor": "36", "gitVersion": "v1.36.0"}


class Transport:
    """Gives each request its answer; the last one again and again."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.paths = list(answers), list[str]()

    def exchange(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        assert headers["Accept"] == "application/json"
        assert most_bytes
        self.paths.append(request.path)
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(found, OSError):
            raise found
        if isinstance(found, Answer):
            return found
        status, body = found if isinstance(found, tuple) else (200, found)
        return Answer(status, "application/json", "", json.dumps(body).encode())


class Ended(threading.Event):
    """An event that is set after some pauses; it records how long each was, and waits for none."""

    def __init__(self, pauses: int) -> None:
        super().__init__()
        self._left, self.pauses = pauses, list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout or 0.0)
        self._left -= 1
        if not self._left:
            self.set()
        return self.is_set()


def asked(pauses: int, *answers: Any) -> tuple[AskedVersion, Ended, Transport]:
    transport, ended = Transport(*answers), Ended(pauses)
    version = AskedVersion(ApiServer(transport, lambda: "token", "railnet-admission"))
    version.run(ended)
    return version, ended, transport


def test_version_is_known_after_one_question_and_asked_again_for_an_upgrade() -> None:
    version, ended, transport = asked(2, {"major": "1", "minor": "26"}, NEW)

    assert version.kubernetes == (1, 36)
    assert transport.paths == ["/version", "/version"]
    assert ended.pauses == [600.0, 600.0]


FAILURES: dict[str, Any] = {
    "no answer": ConnectionRefusedError("refused"),
    "no right": (403, {"message": "forbidden"}),
    "an error": (500, {}),
    "another program's answer": {"status": "ok"},
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
def test_question_without_an_answer_is_repeated_ever_more_seldom(
    failure: Any, caplog: pytest.LogCaptureFixture
) -> None:
    version, ended, _ = asked(9, failure)

    assert version.kubernetes is None
    assert version.asked.is_set()
    assert ended.pauses == [jittered(one) for one in (0.5, 1, 2, 4, 8, 16, 30, 30, 30)]
    assert "no pod waits for its gang until then" in caplog.text


def test_api_server_is_not_asked_again_before_it_wants_it() -> None:
    _, ended, _ = asked(3, Answer(429, "application/json", "45", b"{}"), OSError("gone"), NEW)

    assert ended.pauses == [45.0, jittered(1.0), 600.0]


def test_version_that_is_known_outlives_an_api_server_that_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    version, ended, _ = asked(3, NEW, OSError("gone"), NEW)

    assert version.kubernetes == (1, 36)
    assert ended.pauses == [600.0, jittered(0.5), 600.0]
    assert "it was 1.36 before" in caplog.text


@pytest.mark.parametrize(
    ("minor", "words"), [("26", "gangs need 1.27, so no pod waits"), ("27", "pods wait for their")]
)
def test_log_says_once_what_the_version_means(minor: str, words: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, server_version.__name__):
        asked(3, {"major": "1", "minor": minor})

    assert caplog.text.count(f"the API server is Kubernetes 1.{minor}: {words}") == 1


def test_request_names_itself_in_messages() -> None:
    request = get(ServerVersion())

    assert (str(request), request.path, request.about.resource) == (
        "get the API server's version",
        "/version",
        "version",
    )


class Cluster:
    def __init__(self) -> None:
        self.kubernetes: KubernetesVersion | None = None


def run(test: Callable[[Served], Any], cluster: Cluster | None) -> None:
    async def inside() -> None:
        async with serving(cluster=cluster) as served:
            await test(served)

    asyncio.run(inside())


def test_server_answers_for_gangs_by_the_version_that_is_known_now() -> None:
    cluster = Cluster()

    async def test(served: Served) -> None:
        client, responses = await served.connect(), list[JsonObject]()
        for version in (None, KubernetesVersion(1, 26), KubernetesVersion(1, 36)):
            cluster.kubernetes = version
            responses.append(json.loads((await client.post(a_review(a_pod()), "/gangs?timeout=5s")).body)["response"])

        assert [one["allowed"] for one in responses] == [True, True, True]
        assert ["patch" in one for one in responses] == [False, False, True]
        (gate, *_) = json.loads(base64.b64decode(responses[2]["patch"]))
        assert gate == {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "railnet.io/gang"}]}
        assert served.counted.reviews == [("untouched", "gangs"), ("untouched", "gangs"), ("patched", "gangs")]

    run(test, cluster)


def test_server_without_gangs_has_no_such_path() -> None:
    async def test(served: Served) -> None:
        answer = await (await served.connect()).post(a_review(a_pod()), "/gangs")

        assert answer.status == 404

    run(test, None)


def test_review_of_a_rail_says_nothing_of_gangs() -> None:
    async def test(served: Served) -> None:
        answer = await (await served.connect()).post(a_review(a_pod()), "/pods")

        assert json.loads(answer.body)["response"] == {"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "allowed": True}

    run(test, Cluster())
