"""Events of ADDs: only of pods with rails, and after the runtime has its answer."""

import json
from pathlib import Path

import pytest

from cni.rail_observers import AddRefused, RailsAttached
from cni.request_cancellation import TimeLimits
from railnet.errors import PortInactive
from railnet.vf.record import SandboxPod
from tests.cni.fake_executable import CONF, ENVIRON, FakeExecutable, a_request, output
from tests.cni.server_node import RAIL, Node

BYTES = b' {"ips" :[ ]}\n'
POD = SandboxPod("ml", "train-0", "uid-1")
WITH_RAIL = {"PodUID": "uid-1", "ResourceName": RAIL, "DeviceIDs": {"0": ["0000:03:00.1"]}}
ANNOTATIONS = "io.kubernetes.cri.pod-annotations"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    node.kubelet_knows(WITH_RAIL)
    return node


def stdin(**annotations: str) -> bytes:
    return json.dumps({**json.loads(CONF), "runtimeConfig": {ANNOTATIONS: annotations}}).encode()


async def added(executable: FakeExecutable, request: bytes | None = None) -> tuple[int, bytes]:
    """Play a request whose plugins all succeed."""
    await executable.handshake(request or a_request())
    await executable.answer(BYTES)
    return await executable.done()


async def failing(executable: FakeExecutable, plugin_answer: bytes = BYTES, status: int = 0) -> tuple[int, bytes]:
    """Play an ADD whose first plugin answers so, and which is then undone unless that plugin refused."""
    await executable.handshake(a_request())
    number, *_ = await executable.executed()
    await executable.send(output(number, plugin_answer, status))
    if status == 0:
        await executable.answer(b"")
    return await executable.done()


def test_pod_with_rails_is_reported_with_its_record_and_the_primarys_result(node: Node) -> None:
    node.serve(added)

    (event,) = node.events
    assert isinstance(event, RailsAttached)
    assert (event.record.pod, event.result, event.static) == (POD, BYTES, False)
    assert [one.ifname for one in event.record.attachments] == ["net1"]


def test_rails_whose_answer_cannot_be_delivered_are_taken_back_and_not_reported(node: Node) -> None:
    async def play(executable: FakeExecutable) -> None:
        await executable.handshake(a_request())
        await executable.answer(BYTES)

    node.serve(play)

    assert node.attachments.log[-1] == "take back"
    assert node.events == []


@pytest.mark.parametrize(("source", "static"), [("file", True), ("http", True), ("api", False)])
def test_static_pods_are_known_by_kubelets_annotation(node: Node, source: str, static: bool) -> None:
    request = a_request(stdin=stdin(**{"kubernetes.io/config.source": source}))

    node.serve(lambda executable: added(executable, request))

    assert [event.static for event in node.events if isinstance(event, RailsAttached)] == [static]


def test_add_of_a_pod_without_rails_is_not_reported(node: Node) -> None:
    node.kubelet_knows()

    node.serve(added)

    assert node.events == []


def test_del_is_not_reported(node: Node) -> None:
    node.serve(added)
    node.events.clear()

    node.serve(lambda executable: added(executable, a_request({**ENVIRON, b"CNI_COMMAND": b"DEL"})))

    assert node.events == []


def test_refused_rails_are_reported_with_the_error_that_the_runtime_got(node: Node) -> None:
    node.attachments.refuses = PortInactive("the port is not ACTIVE: does a subnet manager run?")

    ((_, answer),) = node.serve(failing)

    (event,) = node.events
    assert isinstance(event, AddRefused)
    assert (event.pod, event.error.code) == (POD, 102)
    assert str(event.error) == json.loads(answer)["msg"] == "the port is not ACTIVE: does a subnet manager run?"


@pytest.mark.slow
def test_add_that_took_too_long_is_reported(node: Node) -> None:
    async def play(executable: FakeExecutable) -> None:
        await executable.handshake(a_request())
        number, *_ = await executable.executed()
        await executable.receive()
        await executable.send(output(number, b"", 9))
        await executable.answer(b"")
        await executable.done()

    node.serve(play, limits=TimeLimits(20, 1))

    assert [event.error.code for event in node.events if isinstance(event, AddRefused)] == [11]


def test_device_that_is_no_vf_is_reported(node: Node) -> None:
    node.kubelet_knows({**WITH_RAIL, "DeviceIDs": {"0": ["GPU-1"]}})

    async def play(executable: FakeExecutable) -> None:
        await executable.handshake(a_request())
        await executable.done()

    node.serve(play)

    assert [event.error.code for event in node.events if isinstance(event, AddRefused)] == [100]


def test_failure_of_the_primary_is_not_reported(node: Node) -> None:
    error = json.dumps({"cniVersion": "0.3.1", "code": 102, "msg": "no lease"}).encode()

    node.serve(lambda executable: failing(executable, error, 1))

    assert node.events == []


def test_failure_of_a_pod_without_rails_is_not_reported(node: Node) -> None:
    node.kubelet_knows()

    node.serve(lambda executable: failing(executable, b"rubbish"))

    assert node.events == []
