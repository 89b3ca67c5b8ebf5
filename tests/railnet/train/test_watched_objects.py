"""What a command watches while it waits, and what it says when the API server does not answer."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from railnet.apiserver.request import Request
from railnet.train.job_lookup import PODS, collection
from railnet.train.watched_objects import LiveObjects
from tests.railnet.train.memory_api_server import MemoryApiServer, status
from tests.waiting import until


@contextmanager
def live(server: MemoryApiServer) -> Iterator[LiveObjects]:
    with LiveObjects(server.api, {PODS: (collection(PODS, "ml"), lambda found: found)}) as found:
        yield found


def test_first_list_is_no_trouble_while_it_is_under_way() -> None:
    server, seen = MemoryApiServer(), list[str]()

    def look(request: Request) -> None:
        seen.append(found.trouble)

    server.before = look
    found = LiveObjects(server.api, {PODS: (collection(PODS, "ml"), lambda pod: pod)})
    with found:
        until(lambda: found.listed, 10, "the list")

    assert seen == [""]


@pytest.mark.parametrize("code", [403, 503])
def test_list_that_fails_is_said(code: int) -> None:
    server = MemoryApiServer()
    server.before = lambda _: status(code, "the server's words")
    with live(server) as found:
        until(lambda: bool(found.trouble), 10, "the failure")

        assert "pods in namespace ml are not up to date" in found.trouble
        assert not found.listed
