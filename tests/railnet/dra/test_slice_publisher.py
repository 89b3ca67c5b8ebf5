"""The publisher keeps the slices of its node in an API server that may be away, slow, old, or wrong."""

import asyncio
import copy
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from railnet.apiserver.client import Answer, ApiServer
from railnet.apiserver.request import Request
from railnet.backoff import Backoff
from railnet.dra.api_thread import ApiThread
from railnet.dra.devices import DraDevice
from railnet.dra.slice_publisher import PublisherPauses, SlicePublisher
from railnet.errors import NotReady
from tests.railnet.controllers.cluster_in_memory import Cluster, Refusal
from tests.railnet.dra.slice_store import a_device
from tests.waiting import until_async

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
FIRST = f"{SLICES}/gpu-7-rdma.railnet.io-0"
DOWN = "no driver is bound"
QUICK = PublisherPauses(0.0, 0.0, 0.01, 600.0, (0.0,), Backoff(0.001, 0.01))


class Served:
    """A publisher of node gpu-7 with a clock and devices that a test sets."""

    def __init__(self, *devices: DraDevice, pauses: PublisherPauses | None = None) -> None:
        self.cluster = Cluster()
        self.cluster.put("/api/v1/nodes/gpu-7", {"metadata": {"name": "gpu-7"}})
        self.devices: tuple[DraDevice, ...] = devices
        self.failure: Exception | None = None
        self.now = 0.0
        self.publisher = SlicePublisher(self._compute, *([] if pauses is None else [pauses]), clock=lambda: self.now)
        self.api = ApiServer(self.cluster, lambda: "", "railnet")

    async def _compute(self) -> tuple[DraDevice, ...]:
        if self.failure is not None:
            raise self.failure
        return self.devices

    def steps(self, *changes: Callable[[], object]) -> list[float]:
        """Step once, and once after each change; return the pauses."""

        async def whole() -> list[float]:
            thread = ApiThread(self.api)
            pauses = [await self.publisher.step(thread, "gpu-7")]
            for change in changes:
                change()
                pauses.append(await self.publisher.step(thread, "gpu-7"))
            return pauses

        return asyncio.run(whole())

    def later(self, seconds: float) -> None:
        self.now += seconds

    def offer(self, *devices: DraDevice, seconds: float = 5.0) -> None:
        self.devices = devices
        self.now += seconds

    @property
    def writes(self) -> dict[str, int]:
        return {verb: self.cluster.requests[f"{verb} resourceslices"] for verb in ("create", "update", "delete")}

    def names(self) -> list[str]:
        return [
            device["name"] for document in self.cluster.of("resourceslices") for device in document["spec"]["devices"]
        ]


def test_devices_are_published_once_and_nothing_is_asked_after_that() -> None:
    served = Served(a_device(0), a_device(1))
    served.steps(lambda: served.later(60), lambda: served.later(60))

    assert served.names() == [a_device(0).name, a_device(1).name]
    assert dict(served.cluster.requests) == {"get nodes": 1, "list resourceslices": 1, "create resourceslices": 1}
    assert served.publisher.trouble is None


def test_node_is_the_owner_of_its_slices() -> None:
    served = Served(a_device(0))
    served.steps()
    (document,) = served.cluster.of("resourceslices")

    assert document["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "gpu-7", "uid": "uid-1", "controller": True}
    ]


def test_a_flood_of_changes_is_one_round_of_writes_in_five_seconds() -> None:
    served = Served(a_device(0))
    served.steps(*(lambda number=number: served.offer(a_device(0, mtu=number), seconds=0.25) for number in range(40)))

    assert served.cluster.requests["list resourceslices"] == 3
    assert served.writes == {"create": 1, "update": 2, "delete": 0}


def test_pause_ends_when_the_next_round_is_allowed() -> None:
    served = Served(a_device(0))

    assert served.steps(lambda: served.offer(a_device(0, mtu=1), seconds=2.0)) == [10.0, 3.0]


def test_registration_brings_back_what_kubelet_has_deleted() -> None:
    served = Served(a_device(0))

    def restarted() -> None:
        served.cluster.remove(FIRST)
        served.publisher.registered()
        served.later(5)

    served.steps(restarted)

    assert served.names() == [a_device(0).name]
    (document,) = served.cluster.of("resourceslices")
    assert document["spec"]["pool"]["generation"] == 2


def test_slices_that_kubelet_deletes_after_the_registration_come_back_too() -> None:
    served = Served(a_device(0))
    served.steps(
        lambda: (served.publisher.registered(), served.later(5)),
        lambda: (served.cluster.remove(FIRST), served.later(5)),
        lambda: served.later(1),
    )

    assert served.names() == [a_device(0).name]


def test_slices_are_listed_again_after_ten_minutes() -> None:
    served = Served(a_device(0))
    served.steps(lambda: (served.cluster.remove(FIRST), served.later(599)), lambda: served.later(1))

    assert served.names() == [a_device(0).name]


def test_devices_that_are_not_known_leave_the_slices_as_they_are() -> None:
    served = Served(a_device(0))
    served.steps(lambda: setattr(served, "failure", NotReady("the checkpoint is missing")))

    assert served.names() == [a_device(0).name]
    assert served.publisher.trouble is not None
    assert "the devices of this node are not known: the checkpoint is missing" in served.publisher.trouble
    served.failure = None
    served.steps()
    assert served.publisher.trouble is None


@pytest.mark.parametrize("status", [401, 403, 409, 429, 500, 503])
def test_any_refusal_is_told_and_the_slices_are_written_later(status: int) -> None:
    served = Served(a_device(0))

    def refuse(request: Request) -> None:
        if request.about.resource == "resourceslices" and served.now < 400:
            raise Refusal(status, "not now", "7" if status == 429 else "")

    served.cluster.interfere = refuse
    (pause,) = served.steps()
    assert served.publisher.trouble is not None
    assert "not now" in served.publisher.trouble
    assert pause >= (7.0 if status == 429 else 5.0)
    assert ("offer: dra in the values of the chart" in served.publisher.trouble) == (status == 403)
    served.later(400)
    served.steps()
    assert served.names() == [a_device(0).name]
    assert served.publisher.trouble is None


def test_api_server_without_the_api_is_named() -> None:
    served = Served(a_device(0))

    def absent(request: Request) -> None:
        if request.about.resource == "resourceslices":
            raise Refusal(404, "the server could not find the requested resource")

    served.cluster.interfere = absent
    served.steps()

    assert served.publisher.trouble is not None
    assert "does not serve resource.k8s.io/v1, which Kubernetes has since 1.34" in served.publisher.trouble


def test_foreign_slice_of_the_same_name_is_named_and_stays() -> None:
    served = Served(a_device(0))
    foreign = {"metadata": {"name": FIRST.rpartition("/")[2]}, "spec": {"driver": "gpu.example.com", "nodeName": "x"}}
    served.cluster.put(FIRST, foreign)
    # The stand-in does not know this selector, so the test answers the list.
    served.api = ApiServer(_Without(served.cluster), lambda: "", "railnet")
    served.steps()

    assert served.publisher.trouble is not None
    assert "another program has made a ResourceSlice of this name, which is not this node's; delete it" in (
        served.publisher.trouble
    )
    assert served.cluster.objects[FIRST]["spec"]["driver"] == "gpu.example.com"


class _Without:
    """A cluster of which no slice is listed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def exchange(self, request: Request, headers: dict[str, str], most_bytes: int) -> Answer:
        if request.verb.right == "list":
            return Answer(200, "application/json", "", b'{"metadata": {"resourceVersion": "1"}, "items": []}')
        return self._cluster.exchange(request, headers, most_bytes)


@pytest.mark.parametrize(
    "lie",
    [
        b'{"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {}, "spec": {}}]}',
        b'{"metadata": {"resourceVersion": "1"}, "items": [{"metadata": 7, "spec": "x"}]}',
        b'{"metadata": {"resourceVersion": "1"}, "items": [null]}',
        b'{"metadata": {}}',
        b"[]",
        b"\xff",
    ],
)
def test_an_answer_that_is_no_list_of_slices_writes_nothing(lie: bytes) -> None:
    served = Served(a_device(0))

    class Lies(_Without):
        def exchange(self, request: Request, headers: dict[str, str], most_bytes: int) -> Answer:
            if request.verb.right == "list":
                return Answer(200, "application/json", "", lie)
            return super().exchange(request, headers, most_bytes)

    served.api = ApiServer(Lies(served.cluster), lambda: "", "railnet")
    served.steps()

    assert served.publisher.trouble is not None
    assert served.writes == {"create": 0, "update": 0, "delete": 0}


def test_api_server_that_drops_taints_gets_healthy_devices_only() -> None:
    served = Served(a_device(0), a_device(1, DOWN))

    class Drops(_Without):
        def exchange(self, request: Request, headers: dict[str, str], most_bytes: int) -> Answer:
            body: Any = copy.deepcopy(request.body)
            for device in body["spec"]["devices"] if request.verb.right in ("create", "update") else ():
                device.pop("taints", None)
            return served.cluster.exchange(replace(request, body=body), headers, most_bytes)

    served.api = ApiServer(Drops(served.cluster), lambda: "", "railnet")
    served.steps()
    assert served.names() == [a_device(0).name]
    served.steps(lambda: served.offer(a_device(0), a_device(1)))
    assert served.names() == [a_device(0).name, a_device(1).name]


def test_same_trouble_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    served = Served(a_device(0))
    served.cluster.interfere = _unavailable
    served.steps(*[lambda: served.later(600)] * 5)

    assert len(caplog.messages) == 1


def _unavailable(request: Request) -> None:
    raise Refusal(503, f"no {request.verb.right}")


def test_removal_deletes_own_slices() -> None:
    served = Served(a_device(0))
    served.steps()
    asyncio.run(served.publisher.remove(served.api, "gpu-7"))

    assert served.names() == []
    assert served.publisher.gone.is_set()


@pytest.mark.parametrize("status", [403, 404])
def test_removal_ends_where_there_is_no_right_or_no_api(status: int) -> None:
    served = Served()

    def refuse(request: Request) -> None:
        raise Refusal(status, "no")

    served.cluster.interfere = refuse
    asyncio.run(served.publisher.remove(served.api, "gpu-7"))

    assert served.publisher.gone.is_set()
    assert served.publisher.trouble is None
    assert sum(served.cluster.requests.values()) == 1


def serving(served: Served, then: Callable[[], Awaitable[object]]) -> None:
    """Serve by the clock of the machine until `then` has returned."""

    async def whole() -> None:
        publisher = SlicePublisher(served._compute, QUICK)
        served.publisher = publisher
        task = asyncio.create_task(publisher.serve(served.api, "gpu-7"))
        try:
            await then()
        finally:
            task.cancel()

    asyncio.run(whole())


def test_service_publishes_each_change_until_it_is_cancelled() -> None:
    served = Served(a_device(0))

    async def change() -> None:
        await until_async(lambda: served.names() == [a_device(0).name], 30.0, "the first slices")
        served.devices = (a_device(1),)
        served.publisher.changed()
        await until_async(lambda: served.names() == [a_device(1).name], 30.0, "the changed slices")

    serving(served, change)


def test_observers_are_called_when_the_devices_change() -> None:
    served, seen = Served(a_device(0)), list[Sequence[DraDevice] | None]()
    forget = served.publisher.observe(lambda: seen.append(served.publisher.devices))
    served.steps(lambda: served.offer(a_device(1)), lambda: served.later(1))
    forget()
    served.steps(lambda: served.offer(a_device(2)))

    assert seen == [(a_device(0),), (a_device(1),)]


def test_api_server_that_hangs_costs_the_slices_alone() -> None:
    served, released, began = Served(a_device(0)), threading.Event(), threading.Event()

    def hang(request: Request) -> None:
        began.set()
        released.wait()

    served.cluster.interfere = hang

    async def whole() -> None:
        thread = ApiThread(served.api, seconds=0.05)
        await served.publisher.step(thread, "gpu-7")
        assert began.is_set()
        assert "no whole answer within 0.05 s" in (served.publisher.trouble or "")
        served.later(600)
        await served.publisher.step(thread, "gpu-7")
        assert "the answer to an earlier request has not ended yet" in (served.publisher.trouble or "")
        released.set()
        while served.publisher.trouble:
            await asyncio.sleep(0.01)  # the thread's end is an event of the loop
            served.later(600)
            await served.publisher.step(thread, "gpu-7")

    try:
        asyncio.run(whole())
    finally:
        released.set()
    assert served.names() == [a_device(0).name]


def test_a_conflict_is_followed_by_another_list() -> None:
    served = Served(a_device(0))
    served.steps()
    others = json.loads(json.dumps(served.cluster.objects[FIRST]))

    def change(request: Request) -> None:
        if request.verb.right == "update" and served.cluster.requests["update resourceslices"] == 1:
            served.cluster.put(FIRST, others)

    served.cluster.interfere = change
    served.steps(lambda: served.offer(a_device(0, mtu=7)), lambda: served.later(600))

    assert served.publisher.trouble is None
    (document,) = served.cluster.of("resourceslices")
    assert document["spec"]["devices"][0]["attributes"] == {"mtu": {"int": 7}}
