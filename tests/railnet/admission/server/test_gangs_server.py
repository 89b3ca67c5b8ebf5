"""The server's paths for gangs and their Jobs: there where gangs are on, and the path for rails says nothing of gangs."""

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

from tests.railnet.admission.gang.test_gang_review import a_pod
from tests.railnet.admission.gang.test_job_review import JOB, a_job
from tests.railnet.admission.reviewing import a_review
from tests.railnet.admission.serving import Served, serving


def run(test: Callable[[Served], Any], *, gangs: bool) -> None:
    async def inside() -> None:
        async with serving(gangs=gangs) as served:
            await test(served)

    asyncio.run(inside())


def test_server_with_gangs_answers_for_them() -> None:
    async def test(served: Served) -> None:
        answer = await (await served.connect()).post(a_review(a_pod()), "/gangs?timeout=5s")
        response = json.loads(answer.body)["response"]

        (gate, *_) = json.loads(base64.b64decode(response["patch"]))
        assert response["allowed"] is True
        assert gate == {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "railnet.io/gang"}]}
        assert served.counted.reviews == [("patched", "gangs")]

    run(test, gangs=True)


def test_server_with_gangs_answers_for_their_jobs() -> None:
    async def test(served: Served) -> None:
        answer = await (await served.connect()).post(a_review(a_job(), kind=JOB), "/gangs/jobs?timeout=5s")
        response = json.loads(answer.body)["response"]

        (policy, *_) = json.loads(base64.b64decode(response["patch"]))
        assert (policy["op"], policy["path"]) == ("add", "/spec/podFailurePolicy")
        assert served.counted.reviews == [("patched", "gangs")]

    run(test, gangs=True)


def test_server_without_gangs_has_no_such_path() -> None:
    async def test(served: Served) -> None:
        client = await served.connect()
        answers = [await client.post(a_review(a_pod()), path) for path in ("/gangs", "/gangs/jobs")]

        assert [answer.status for answer in answers] == [404, 404]

    run(test, gangs=False)


def test_review_of_a_rail_says_nothing_of_gangs() -> None:
    async def test(served: Served) -> None:
        answer = await (await served.connect()).post(a_review(a_pod()), "/pods")

        assert json.loads(answer.body)["response"] == {"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "allowed": True}

    run(test, gangs=True)
