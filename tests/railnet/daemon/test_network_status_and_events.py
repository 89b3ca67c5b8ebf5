"""From an outcome to the object in the API server, over real TLS."""

import asyncio
import json
import logging
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from inspect import signature
from pathlib import Path

import pytest

from cni.host.errors import CniError
from cni.rail_observers import AddRefused, Observer, RailChanged, RailsAttached, ignore
from railnet.apiserver import service_account
from railnet.apiserver.outbox import Message, Outbox
from railnet.configuration import Configuration, HostConfiguration, Publish
from railnet.daemon import network_status_and_events as publish_module
from railnet.daemon.network_status_and_events import Publisher, publishing
from railnet.objects.network_status import ANNOTATION
from railnet.vf.record import SandboxPod
from simnode.kubernetes.api_server import ApiServer, Received, Reply
from tests.railnet.dra.claims import SECOND, a_prepared_claim, a_request
from tests.railnet.vf.builders import a_record, an_attachment

POD = SandboxPod("ml", "train-0", "uid-1")
RECORD = a_record(an_attachment(), primary={"conf": {"name": "cbr0"}, "runtimeConfig": {}}, network="default")
ATTACHED = RailsAttached(RECORD, b"{}", static=False)
REFUSED = AddRefused(POD, CniError(102, "the port is not ACTIVE", "mlx5_4"))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    credentials = tmp_path / "serviceaccount"
    # What waits at the end is sent, however busy this machine is.
    monkeypatch.setattr(publish_module, "_LAST_SECONDS", 20.0)
    with ApiServer(credentials) as server:
        for name, value in {**server.environment, "NODE_NAME": "node-a"}.items():
            monkeypatch.setenv(name, value)
        find = service_account.find
        monkeypatch.setattr(service_account, "find", lambda environ: find(environ, credentials))
        server.add_pod("ml", "train-0", "uid-1")
        yield server


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return Configuration(host=HostConfiguration(root=tmp_path))


def tell(
    configuration: Configuration,
    *told: RailsAttached | AddRefused | RailChanged,
    then: Callable[[], object] = lambda: None,
) -> None:
    """Publish outcomes as a daemon that then ends."""

    async def whole() -> None:
        async with publishing(configuration) as observe:
            for outcome in told:
                observe(outcome)
            await asyncio.to_thread(then)

    asyncio.run(whole())


def statuses(cluster: ApiServer) -> list[str]:
    return [element["interface"] for element in json.loads(cluster.annotations("ml", "train-0").get(ANNOTATION, "[]"))]


def test_pod_with_rails_gets_its_annotation(cluster: ApiServer, configuration: Configuration) -> None:
    tell(configuration, ATTACHED, then=lambda: cluster.wait_until(lambda: statuses(cluster)))

    assert statuses(cluster) == ["eth0", "net1"]
    assert cluster.events == {}


def test_claim_of_a_pod_is_told_of_the_rails_that_the_pod_has(cluster: ApiServer, configuration: Configuration) -> None:
    claims = [a_prepared_claim(a_request("vf", ATTACHED.record.attachments[0].vf, SECOND))]

    async def whole() -> None:
        async with publishing(configuration, lambda vfs: claims if SECOND not in vfs else []) as observe:
            observe(ATTACHED)
            await asyncio.to_thread(
                cluster.wait_until, lambda: [one for one in cluster.received if "resourceclaims" in one.path]
            )

    asyncio.run(whole())
    (told,) = [received for received in cluster.received if "resourceclaims" in received.path]

    assert told.path.startswith("/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/train-vf/status?")
    assert told.body["metadata"]["uid"] == "a1b2"
    assert [device["networkData"]["interfaceName"] for device in told.body["status"]["devices"]] == ["net1"]


def test_refused_pod_gets_an_event_with_reason_and_remedy(cluster: ApiServer, configuration: Configuration) -> None:
    tell(configuration, REFUSED, then=lambda: cluster.wait_until(lambda: cluster.events))

    (event,) = cluster.events.values()
    assert (event["reason"], event["message"]) == ("RailnetAttachFailed", "the port is not ACTIVE (mlx5_4)")
    assert event["source"] == {"component": "railnet", "host": "node-a"}


def test_repeated_attempts_are_counted_in_one_event(cluster: ApiServer, configuration: Configuration) -> None:
    def counted(count: int) -> Callable[[], bool]:
        return lambda: [event["count"] for event in cluster.events.values()] == [count]

    async def whole() -> None:
        async with publishing(configuration) as observe:
            observe(REFUSED)
            await asyncio.to_thread(cluster.wait_until, counted(1))
            observe(REFUSED)
            await asyncio.to_thread(cluster.wait_until, counted(2))
            cluster.events.clear()  # they live for an hour
            observe(REFUSED)
            await asyncio.to_thread(cluster.wait_until, counted(3))

    asyncio.run(whole())

    assert [received.method for received in cluster.received] == ["POST", "PATCH", "PATCH", "POST"]


def test_new_pod_with_the_name_of_a_gone_pod_is_not_changed(cluster: ApiServer, configuration: Configuration) -> None:
    cluster.add_pod("ml", "train-0", "uid-2")

    tell(configuration, ATTACHED, then=lambda: cluster.wait_until(lambda: cluster.received))

    assert cluster.annotations("ml", "train-0") == {}


@pytest.mark.parametrize(("mirrored", "written"), [("uid-1", ["eth0", "net1"]), ("uid-2", [])])
def test_static_pod_is_written_to_its_own_mirror_only(
    cluster: ApiServer, configuration: Configuration, mirrored: str, written: list[str]
) -> None:
    cluster.add_pod("ml", "train-0", "another-uid", {"kubernetes.io/config.mirror": mirrored})

    tell(configuration, RailsAttached(RECORD, b"{}", static=True))

    assert statuses(cluster) == written
    assert cluster.annotations("ml", "train-0")["kubernetes.io/config.mirror"] == mirrored


def test_waiting_messages_are_sent_at_the_end(cluster: ApiServer, configuration: Configuration) -> None:
    tell(configuration, ATTACHED, REFUSED)

    assert (statuses(cluster), len(cluster.events)) == (["eth0", "net1"], 1)


def test_end_does_not_wait_for_a_hanging_api_server(
    cluster: ApiServer, configuration: Configuration, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    import threading

    answer = threading.Event()
    request.addfinalizer(answer.set)

    def hang(_received: Received) -> Reply | None:
        assert answer.wait(20)
        return None

    cluster.interfere = hang
    monkeypatch.setattr(publish_module, "_LAST_SECONDS", 0.05)

    tell(configuration, ATTACHED, then=lambda: cluster.wait_until(lambda: cluster.received))

    assert statuses(cluster) == []  # the daemon has ended, and the request is still open


@pytest.mark.parametrize(
    ("publish", "sent"),
    [
        (Publish(network_status=False), ["/api/v1/namespaces/ml/events"]),
        (Publish(events=False), ["/api/v1/namespaces/ml/pods/train-0/status"]),
        (Publish(network_status=False, events=False), []),
    ],
    ids=["events", "network-status", "nothing"],
)
def test_configuration_chooses_the_messages_that_are_sent(
    cluster: ApiServer, configuration: Configuration, publish: Publish, sent: list[str]
) -> None:
    tell(Configuration(host=configuration.host, publish=publish), ATTACHED, REFUSED)

    assert [received.path for received in cluster.received] == sent


def test_pod_without_a_uid_gets_no_message(cluster: ApiServer, configuration: Configuration) -> None:
    anonymous = POD._replace(uid="")

    tell(
        configuration, AddRefused(anonymous, REFUSED.error), RailsAttached(a_record(pod=anonymous), b"{}", static=False)
    )

    assert cluster.received == []


def test_outside_of_a_cluster_nothing_is_sent_and_the_log_says_it_once(
    configuration: Configuration, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    async def whole() -> Observer:
        async with publishing(configuration) as observe:
            observe(ATTACHED)
            return observe

    with caplog.at_level(logging.INFO):
        observe = asyncio.run(whole())

    assert observe is ignore
    (said,) = [record.message for record in caplog.records if "network-status" in record.message]
    assert said.startswith("neither network-status nor events are sent: KUBERNETES_SERVICE_HOST and")


def rail_lost(*pods: SandboxPod) -> RailChanged:
    return RailChanged("RailnetRailNotActive", "rail 0 is not ACTIVE", warning=True, pods=pods)


def test_lost_rail_is_an_event_of_the_node_and_of_the_pods_that_have_it(
    cluster: ApiServer, configuration: Configuration
) -> None:
    tell(
        configuration,
        rail_lost(POD, SandboxPod("ml", "without-uid", "")),
        RailChanged("RailnetRailActive", "back", False, ()),
    )

    told = sorted(
        (event["involvedObject"]["kind"], event["involvedObject"]["name"], event["reason"], event["type"])
        for event in cluster.events.values()
    )
    assert told == [
        ("Node", "node-a", "RailnetRailActive", "Normal"),
        ("Node", "node-a", "RailnetRailNotActive", "Warning"),
        ("Pod", "train-0", "RailnetRailNotActive", "Warning"),
    ]


class Kept(Outbox):
    """An outbox that sends nothing."""

    def __init__(self) -> None:
        self.keys: set[Hashable] = set()

    def put(self, message: Message) -> None:
        self.keys.add(message.key)


def test_eight_lost_rails_of_a_full_node_leave_room_in_the_outbox(configuration: Configuration) -> None:
    kept = Kept()
    publisher = Publisher(kept, configuration.publish, configuration.host.root, "node-a")
    for rail in range(8):
        publisher(rail_lost(*(SandboxPod("ml", f"train-{rail}-{pod}", f"{rail}-{pod}") for pod in range(127))))

    (room,) = (one.default for one in signature(Outbox).parameters.values() if one.name == "room")
    assert len(kept.keys) == 8 * 24 + 1
    assert len(kept.keys) < room


def test_lost_rail_is_no_event_if_events_are_off(cluster: ApiServer, configuration: Configuration) -> None:
    tell(replace(configuration, publish=Publish(events=False)), rail_lost(POD))

    assert cluster.events == {}
