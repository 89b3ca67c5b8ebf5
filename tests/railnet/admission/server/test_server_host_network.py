"""The webhook's server in host-network mode: ports for pods, and Services that wait for their pods."""

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from railnet.admission.host_network.host_port_allocator import HostPorts
from railnet.admission.host_network.host_port_usage import seen_pod
from railnet.admission.server import server
from railnet.jobs.host_port_choice import PortRange
from tests.railnet.admission.host_network.test_host_network import a_pod as an_unreviewed_pod
from tests.railnet.admission.host_network.test_service_review import KINDS, WEBHOOK, a_pod, a_service
from tests.railnet.admission.reviewing import a_review
from tests.railnet.admission.serving import Served, serving

JsonObject = dict[str, Any]
SERVICES = "/services?timeout=5s"


def run(test: Callable[[Served, HostPorts], Awaitable[None]], *, listed: bool = True) -> None:
    async def inside() -> None:
        ports = HostPorts(PortRange(20000, 20001), "a", time.monotonic)
        if listed:
            ports.listed()
        async with serving(host_ports=ports) as served:
            await test(served, ports)

    asyncio.run(inside())


def patch(body: bytes) -> list[JsonObject]:
    response = json.loads(body)["response"]
    assert response["allowed"], response["status"]
    found: list[JsonObject] = json.loads(base64.b64decode(response.get("patch", b"W10=")))
    return found


def port(body: bytes) -> str:
    return next(one["value"] for one in patch(body) if one["path"].endswith("/containerPort"))


def test_each_pod_gets_a_port_until_the_range_is_used_up():
    async def test(served: Served, _: HostPorts) -> None:
        client = await served.connect()
        given = [port((await client.post(a_review(an_unreviewed_pod()))).body) for _ in range(2)]
        refused = json.loads((await client.post(a_review(an_unreviewed_pod()))).body)["response"]

        assert given == [20000, 20001]
        assert refused["status"]["code"] == 503
        assert "no host port of 20000-20001 is free" in refused["status"]["message"]
        assert [outcome for outcome, _ in served.counted.reviews] == ["patched", "patched", "denied"]

    run(test)


def test_dry_runs_and_refused_pods_leave_all_ports_free():
    async def test(served: Served, _: HostPorts) -> None:
        client = await served.connect()
        refused = an_unreviewed_pod()
        refused["spec"]["containers"][0]["env"] = [{"name": "TF_CONFIG", "value": "{"}]
        for _ in range(5):
            assert port((await client.post(a_review(an_unreviewed_pod(), dryRun=True))).body) == 20000
            assert not json.loads((await client.post(a_review(refused))).body)["response"]["allowed"]

        assert [port((await client.post(a_review(an_unreviewed_pod()))).body) for _ in range(2)] == [20000, 20001]

    run(test)


def test_before_the_pods_are_listed_only_pods_in_the_mode_are_refused():
    async def test(served: Served, _: HostPorts) -> None:
        client = await served.connect()
        refused = json.loads((await client.post(a_review(an_unreviewed_pod()))).body)["response"]
        other = {
            "metadata": {"name": "p", "labels": {"railnet.io/net1": "true"}},
            "spec": {"containers": [{"name": "c"}]},
        }

        assert "the cluster's pods are not listed" in refused["status"]["message"]
        assert patch((await client.post(a_review(other))).body)

    run(test, listed=False)


def test_service_forwards_as_soon_as_its_pod_is_seen():
    async def test(served: Served, ports: HostPorts) -> None:
        client = await served.connect()
        answering = asyncio.create_task(client.post(a_review(a_service(), "ml", **KINDS), SERVICES))
        await asyncio.sleep(0.2)
        assert not answering.done()
        ports.changed(None, seen_pod(a_pod(), WEBHOOK))

        paths = [one["path"] for one in patch((await answering).body)]

        assert paths == ["/spec/clusterIP", "/spec/ports/0/targetPort"]

    run(test)


def test_service_is_refused_for_now_if_its_pod_is_not_seen_in_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "_POD_SECONDS", 0.05)

    async def test(served: Served, _: HostPorts) -> None:
        client = await served.connect()
        response = json.loads((await client.post(a_review(a_service(), "ml", **KINDS), SERVICES)).body)["response"]

        assert response["status"]["code"] == 503
        assert patch((await client.post(a_review(a_service({"app": "web"}), "ml", **KINDS), SERVICES)).body) == []

    run(test)


def test_services_are_not_reviewed_where_the_mode_is_off():
    async def test() -> None:
        async with serving() as served:
            client = await served.connect()
            answer = await client.post(a_review(a_service(), "ml", **KINDS), SERVICES)

            assert (answer.status, "/pods or /pods/net1" in answer.words) == (404, True)

    asyncio.run(test())


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"apiVersion": "v1", "kind": "Service"}'])
def test_body_that_is_no_review_is_a_bad_request(body: bytes):
    async def test(served: Served, _: HostPorts) -> None:
        client = await served.connect()
        assert (await client.post(body, SERVICES)).status == 400

    run(test)
