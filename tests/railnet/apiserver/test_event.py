"""Events: one object for each pod and reason, with a count."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from railnet.apiserver import event as event_module
from railnet.apiserver.event import Event, Series, involved_node
from railnet.apiserver.request import Request
from railnet.objects.involved_object import InvolvedObject
from railnet.vf.record import SandboxPod

POD = SandboxPod("ml", "train-0", "uid-1")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def body(request: Request) -> Any:
    return request.body


def warned(series: Series, times: int, pod: SandboxPod = POD) -> Event:
    return [series.warning(pod, "RailnetAttachFailed", f"words {n}", NOON + n * MINUTE) for n in range(times)][-1]


def test_first_warning_creates_an_object_about_the_pod() -> None:
    event = warned(Series("node-a"), 1)

    (make,) = event.requests()

    assert (make.method, make.path, make.content_type) == ("POST", "/api/v1/namespaces/ml/events", "application/json")
    assert body(make) == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event.name, "namespace": "ml"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "ml", "name": "train-0", "uid": "uid-1"},
        "type": "Warning",
        "reason": "RailnetAttachFailed",
        "message": "words 0",
        "source": {"component": "railnet", "host": "node-a"},
        "firstTimestamp": "2026-01-01T12:00:00Z",
        "lastTimestamp": "2026-01-01T12:00:00Z",
        "count": 1,
    }


def test_later_warnings_change_the_object_or_create_it_again_if_it_has_expired() -> None:
    series = Series("node-a")
    first, third = warned(series, 1), warned(series, 2)

    change, make = third.requests()

    assert (change.method, change.path) == ("PATCH", f"/api/v1/namespaces/ml/events/{first.name}")
    assert body(change) == {"message": "words 1", "count": 3, "lastTimestamp": "2026-01-01T12:01:00Z"}
    assert body(make)["metadata"]["name"] == first.name
    assert (body(make)["count"], body(make)["firstTimestamp"]) == (3, "2026-01-01T12:00:00Z")
    assert first.key == third.key


def test_event_may_be_about_any_object_and_on_no_node() -> None:
    job = InvolvedObject("kubeflow.org/v1", "TFJob", "ml", "mnist", "uid-9")
    (make,) = Event(job, "Named", "words", "", NOON, NOON, type="Normal", component="controllers").requests()

    assert make.path == "/api/v1/namespaces/ml/events"
    assert body(make)["involvedObject"] == {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "namespace": "ml",
        "name": "mnist",
        "uid": "uid-9",
    }
    assert (body(make)["type"], body(make)["source"]) == ("Normal", {"component": "controllers"})


def test_event_about_an_object_of_the_whole_cluster_is_in_the_namespace_default() -> None:
    namespace = InvolvedObject("v1", "Namespace", None, "ml", "uid-9")
    (make,) = Event(namespace, "Kept", "words", "", NOON, NOON).requests()

    assert (make.path, body(make)["metadata"]["namespace"]) == ("/api/v1/namespaces/default/events", "default")
    assert "namespace" not in body(make)["involvedObject"]


def test_pods_of_the_same_name_are_counted_apart() -> None:
    series = Series("node-a")
    one, other = warned(series, 2), warned(series, 1, POD._replace(uid="uid-2"))

    assert (one.count, other.count) == (2, 1)
    assert one.name != other.name


def test_name_of_the_event_is_valid_however_long_the_name_of_the_pod_is() -> None:
    names = [warned(Series("n"), 1, POD._replace(name=("a." * 126) + end)).name for end in ("", "b")]

    assert max(map(len, names)) <= 253
    assert not any(".." in name or "-." in name for name in names)


def test_long_message_is_cut_between_characters_at_the_limit_of_the_api() -> None:
    text = "ü" * 1000
    (make,) = Series("n").warning(POD, "R", text, NOON).requests()

    message = body(make)["message"]
    assert len(message.encode()) <= 1024
    assert message == "ü" * 510 + "…"


def test_only_the_latest_series_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_module, "_REMEMBERED", 2)
    series = Series("n")
    pods = [POD._replace(uid=f"uid-{n}") for n in range(3)]

    counts = [warned(series, 1, pod).count for pod in (pods[0], pods[1], pods[0], pods[2], pods[1], pods[2])]

    assert counts == [1, 1, 2, 1, 1, 2]


def test_characters_that_are_not_unicode_are_replaced_in_the_message() -> None:
    (make,) = Series("n").warning(POD, "R", "link \udcff", NOON).requests()

    assert body(make)["message"] == "link ?"


@pytest.mark.parametrize(
    "pod", [POD._replace(namespace="../../nodes"), POD._replace(namespace=""), POD._replace(namespace="a?b")]
)
def test_namespace_that_is_no_dns_name_makes_no_path(pod: SandboxPod) -> None:
    with pytest.raises(ValueError, match="cannot be the name of an API object"):
        Series("n").warning(pod, "R", "words", NOON).requests()


def test_event_about_a_node_has_the_nodes_name_for_its_uid_and_is_in_namespace_default() -> None:
    event = Series("node-a").event(involved_node("node-a"), "RailnetRailActive", "words", NOON, "Normal")
    (make,) = event.requests()

    assert make.path == "/api/v1/namespaces/default/events"
    assert (body(make)["involvedObject"], body(make)["type"]) == (
        {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "node-a"},
        "Normal",
    )
