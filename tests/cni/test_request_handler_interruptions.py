"""What interrupts a request: a DEL of its sandbox, its executable's end, its deadline."""

import asyncio
import json
import socket
import threading
from pathlib import Path

import pytest

from cni import connection as connection_module
from cni.cancellation_shield import to_the_end
from cni.delegate_slots import DelegateSlots
from cni.host import frames
from cni.request_cancellation import TimeLimits
from railnet.vf.vf_table import Owner
from tests.cni.fake_executable import ENVIRON, FakeExecutable, a_request, output
from tests.cni.server_node import RAIL, Node
from tests.waiting import until_async

ADD = a_request()
DEL = a_request({**ENVIRON, b"CNI_COMMAND": b"DEL"})
OTHER = a_request({**ENVIRON, b"CNI_CONTAINERID": b"another"})
BYTES = b' {"ips" :[ ]}\n'
WITH_RAIL = {"PodUID": "uid-1", "ResourceName": RAIL, "DeviceIDs": {"0": ["0000:03:00.1"]}}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def error(done: tuple[int, bytes]) -> tuple[int, str]:
    answer = json.loads(done[1])
    return answer["code"], answer["msg"]


async def killed(executable: FakeExecutable, number: bytes) -> None:
    """Receive a KILL and say that the plugin has ended."""
    kind, payload = await executable.receive()
    assert (kind, payload) == (frames.KILL, number)
    await executable.send(output(number, b"", 9))


def test_del_interrupts_a_running_add_and_begins_when_that_is_undone(node: Node) -> None:
    async def play(adding: FakeExecutable) -> list[object]:
        deleting = await FakeExecutable.connected(node.socket)
        await adding.handshake(ADD)
        number, *_ = await adding.executed()
        await deleting.handshake(DEL)
        deleted = asyncio.create_task(deleting.answer(b""))
        await killed(adding, number)
        undo, plugin, command, _ = await adding.executed()
        early = deleted.done()
        await adding.send(output(undo, b""))
        answer = error(await adding.done())
        try:
            return [f"{command} {plugin}", early, answer, await deleted, await deleting.done()]
        finally:
            deleting.close()

    answer = (11, "the runtime asked for a DEL of this sandbox during its ADD")
    assert node.serve(play) == [["DEL flannel", False, answer, "DEL flannel", (0, b"")]]
    assert sorted(node.metrics.requests) == [("ADD", 11), ("DEL", 0)]  # the answer to either may be counted first


def test_rails_of_an_add_that_a_del_interrupted_are_detached_once(node: Node) -> None:
    node.kubelet_knows(WITH_RAIL)
    attaching = asyncio.Event()

    async def wait_for_the_port() -> None:
        attaching.set()
        await asyncio.Event().wait()

    node.attachments.attaching = wait_for_the_port

    async def play(adding: FakeExecutable) -> tuple[int, str]:
        deleting = await FakeExecutable.connected(node.socket)
        await adding.handshake(ADD)
        await adding.answer(BYTES)
        await attaching.wait()
        await deleting.handshake(DEL)
        undone = await adding.answer(b"")
        answer = error(await adding.done())
        await deleting.answer(b"")
        await deleting.done()
        deleting.close()
        return undone, answer[0]

    assert node.serve(play) == [("DEL flannel", 11)]
    assert node.attachments.log == ["plan", "attach", "detach by the record", "forget"]


def test_rails_are_detached_as_soon_as_the_executable_is_gone(node: Node) -> None:
    node.kubelet_knows(WITH_RAIL)
    attaching = asyncio.Event()

    async def wait_for_the_port() -> None:
        attaching.set()
        await asyncio.Event().wait()

    node.attachments.attaching = wait_for_the_port

    async def play(executable: FakeExecutable) -> None:
        await executable.handshake(ADD)
        await executable.answer(BYTES)
        await attaching.wait()

    node.serve(play)

    assert node.attachments.log == ["plan", "attach", "detach by the record", "forget"]
    assert node.metrics.requests == [("ADD", None)]


def blocked_attach(node: Node) -> threading.Event:
    """Make each attach block until the event is set."""
    returns = threading.Event()

    async def move() -> None:
        await to_the_end(asyncio.to_thread(returns.wait))

    node.attachments.attaching = move
    return returns


@pytest.mark.slow
def test_runtime_is_answered_before_a_system_call_returns_and_the_rails_are_detached_after(node: Node) -> None:
    node.kubelet_knows(WITH_RAIL)
    returns = blocked_attach(node)

    async def play(executable: FakeExecutable) -> list[object]:
        await executable.handshake(ADD)
        await executable.answer(BYTES)
        answer = error(await executable.done())
        meanwhile = list(node.attachments.log)
        returns.set()
        return [answer[0], "the kernel has not answered for 2 s" in answer[1], meanwhile]

    assert node.serve(play, limits=TimeLimits(delegate=1, add=1)) == [[11, True, ["plan", "attach"]]]
    assert node.attachments.log == ["plan", "attach", "detach by the record", "forget"]


@pytest.mark.slow
@pytest.mark.parametrize("waits", [True, False], ids=["until its time is over", "until its executable is gone"])
def test_del_that_waits_for_a_blocked_add_ends_in_time(node: Node, waits: bool) -> None:
    node.kubelet_knows(WITH_RAIL)
    returns = blocked_attach(node)

    async def play(adding: FakeExecutable) -> list[object]:
        await adding.handshake(ADD)
        await adding.answer(BYTES)
        await adding.done()
        deleting = await FakeExecutable.connected(node.socket)
        await deleting.handshake(DEL)
        try:
            async with asyncio.timeout(15):
                answer = error(await deleting.done())[0] if waits else deleting.close()
                await until_async(lambda: node.metrics.requests, 15, "the DEL has ended")
        finally:
            returns.set()
            deleting.close()
        return [answer, list(node.metrics.requests)]

    expected = [11, [("DEL", 11)]] if waits else [None, [("DEL", None)]]
    assert node.serve(play, limits=TimeLimits(delegate=1, add=1 if waits else 4)) == [expected]


def test_connection_may_get_the_descriptor_number_of_one_with_a_half_sent_frame(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "_FRAME_SECONDS", 0.2)
    monkeypatch.setattr(connection_module, "_ENDING_SECONDS", 0.05)
    large = {"type": "flannel", "what": "x" * 900_000}
    node.has_primary(json.dumps({"cniVersion": "1.0.0", "name": "cbr0", "plugins": [large]}))

    async def play(stopped: FakeExecutable) -> int:
        connection = socket.socket(socket.AF_UNIX)  # before a number is free, so that the daemon's end gets it
        await stopped.handshake(ADD)
        await until_async(lambda: node.metrics.requests, 20, "the ADD has ended")
        node.has_primary('{"cniVersion": "1.0.0", "name": "cbr0", "plugins": [{"type": "flannel"}]}')
        executable = FakeExecutable(connection)
        await asyncio.get_running_loop().sock_connect(connection, str(node.socket))
        try:
            await executable.handshake(OTHER)
            await executable.answer(BYTES)
            return (await executable.done())[0]
        finally:
            executable.close()

    assert node.serve(play) == [0]


async def waiting_delegates(node: Node, count: int) -> None:
    await until_async(lambda: node.slots.waiting >= count, 20, f"{count} delegates wait")


def test_delegate_waits_for_a_slot_and_a_del_comes_before_an_add(node: Node) -> None:
    node.slots = DelegateSlots(1, long_seconds=20)

    async def play(first: FakeExecutable) -> list[str]:
        adding, deleting = [await FakeExecutable.connected(node.socket) for _ in range(2)]
        order: list[str] = []

        async def run(executable: FakeExecutable, name: str) -> None:
            number, *_ = await executable.executed()
            order.append(name)
            await executable.send(output(number, BYTES))
            await executable.done()
            executable.close()

        await first.handshake(ADD)
        number, *_ = await first.executed()
        await adding.handshake(OTHER)
        waiting = [asyncio.create_task(run(adding, "ADD"))]
        await waiting_delegates(node, 1)
        await deleting.handshake(a_request({**ENVIRON, b"CNI_COMMAND": b"DEL", b"CNI_CONTAINERID": b"a-third"}))
        waiting.append(asyncio.create_task(run(deleting, "DEL")))
        await waiting_delegates(node, 2)
        await first.send(output(number, BYTES))
        await first.done()
        await asyncio.gather(*waiting)
        return order

    assert node.serve(play) == [["DEL", "ADD"]]


def test_vf_that_kubelet_still_gives_to_the_pod_that_has_it_is_code_100_at_once(node: Node) -> None:
    node.kubelet_knows(WITH_RAIL, {**WITH_RAIL, "PodUID": "uid-2"})
    node.attachments.owner = Owner("another", "eth0", "uid-2")

    async def play(executable: FakeExecutable) -> tuple[int, str]:
        await executable.handshake(ADD)
        return error(await executable.done())

    ((code, message),) = node.serve(play)

    assert (code, node.attachments.log) == (100, [])
    assert "names VF 0000:03:00.1 for this pod, and for pod uid-2, which has it" in message


def test_vf_of_a_pod_that_kubelet_has_forgotten_is_waited_for(node: Node) -> None:
    node.kubelet_knows(WITH_RAIL)
    node.attachments.owner = Owner("another", "eth0", "uid-2")

    async def play(executable: FakeExecutable) -> tuple[int, bytes]:
        await executable.handshake(ADD)
        await executable.answer(BYTES)
        return await executable.done()

    assert node.serve(play) == [(0, BYTES)]


def test_stages_and_verbs_are_counted(node: Node) -> None:
    async def play(executable: FakeExecutable) -> None:
        await executable.handshake(ADD)
        await executable.answer(BYTES)
        await executable.done()

    async def odd(executable: FakeExecutable) -> None:
        await executable.handshake(a_request({b"CNI_COMMAND": b"FROB"}))
        await executable.done()

    node.serve(play, odd)

    assert node.metrics.stages == [("ADD", "queue"), ("ADD", "delegate")]
    assert node.metrics.requests == [("ADD", 0), ("unknown", 4)]
