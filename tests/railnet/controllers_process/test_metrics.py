"""The metrics of the controllers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from railnet.apiserver.client import Conflict
from railnet.apiserver.request import ApiObject, Collection, create, get, watch
from railnet.controllers_process.metrics import ControllersMetrics, CountingApiServer
from tests.railnet.controllers.cluster_in_memory import Cluster

SERVICE = ApiObject("v1", "services", "mnist-net1", "ml")
BODY = {"metadata": {"namespace": "ml", "name": "mnist-net1"}}


@dataclass(frozen=True)
class Leading:
    """A leader, by its figures."""

    objects: Callable[[], Mapping[str, int]] = dict
    waiting: Callable[[], Mapping[str, int]] = dict
    lost: Callable[[], int] = int
    left_out: Callable[[], int] = int
    gangs: Callable[[], Mapping[str, float]] = dict


def samples(metrics: ControllersMetrics, leader: Leading | None = None) -> list[str]:
    return [line.removeprefix("railnet_controllers_") for line in metrics.text(leader).splitlines() if line[0] != "#"]


def test_replica_that_waits_knows_nothing() -> None:
    assert samples(ControllersMetrics()) == ["leader 0", "lost_events_total 0", "writes_left_out_total 0"]


def test_leader_shows_its_objects_and_keys() -> None:
    leader = Leading(lambda: {"services": 2, "pods": 7}, lambda: {"names on net1": 1}, left_out=lambda: 4)

    assert samples(ControllersMetrics(), leader) == [
        "leader 1",
        'objects{kind="pods"} 7',
        'objects{kind="services"} 2',
        'waiting_keys{controller="names on net1"} 1',
        "lost_events_total 0",
        "writes_left_out_total 4",
    ]


def test_leader_that_places_gangs_shows_them() -> None:
    leader = Leading(gangs=lambda: {"waiting": 2, "placed": 7, "failed": 1, "evictions": 4, "plan_seconds": 0.25})

    assert samples(ControllersMetrics(), leader)[3:] == [
        'gangs{state="failed"} 1',
        'gangs{state="placed"} 7',
        'gangs{state="waiting"} 2',
        "gang_evictions_total 4",
        "gang_plan_seconds 0.25",
    ]


def test_requests_are_counted_by_verb_resource_and_result() -> None:
    metrics = ControllersMetrics()
    api = CountingApiServer(Cluster(), lambda: "a-token", "test", metrics)
    api.send(create(SERVICE, BODY))
    with pytest.raises(Conflict):
        api.send(create(SERVICE, BODY))
    api.send(get(SERVICE))
    accepted: list[bool] = []
    assert list(api.lines(watch(Collection("v1", "services"), "0", 1), lambda: accepted.append(True)))
    assert accepted == [True]

    assert [line for line in samples(metrics) if line.startswith("requests_total")] == [
        'requests_total{verb="create",resource="services",result="conflict"} 1',
        'requests_total{verb="create",resource="services",result="done"} 1',
        'requests_total{verb="get",resource="services",result="done"} 1',
        'requests_total{verb="watch",resource="services",result="begun"} 1',
    ]
