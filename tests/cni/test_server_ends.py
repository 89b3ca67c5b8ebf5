"""What ends a request early: a DEL of its sandbox, its executable's end, its time; and peers that are none."""

import asyncio
import json
import os
import socket
import threading
from pathlib import Path

import pytest

from cni import connection as hands_module
from cni import server
from cni.cancellation import to_the_end
from cni.delegate_slots import DelegateSlots
from cni.host import frames
from cni.server import Limits
from tests.cni.executable import ENVIRON, FakeExecutable, a_request, output
from tests.cni.node import RAIL, Node
from vf.table import Owner

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


def test_del_ends_a_running_add_and_begins_when_that_is_undone(node: Node) -> None:
    async def play(adding: FakeExecutable) -> list[object]:
        deleting = await FakeExecutable.connected(node.socket)
        await adding.shaken(ADD)
        number, *_ = await adding.executed()
        await deleting.shaken(DEL)
        deleted = asyncio.create_task(deleting.answer(b""))
        await killed(adding, number)
        undo, plugin, command, _ = await adding.executed()
        early = deleted.done()
        await adding.send(output(undo, b""))
        told = error(await adding.done())
        try:
            return [f"{command} {plugin}", early, told, await deleted, await deleting.done()]
        finally:
            deleting.close()

    told = (11, "the runtime asked for a DEL of this sandbox during its ADD")
    assert node.serve(play) == [["DEL flannel", False, told, "DEL flannel", (0, b"")]]
    assert node.meter.requests == [("ADD", 11), ("DEL", 0)]


def test_del_takes_the_rails_of_the_add_it_ended_only_once(node: Node) -> None:
    node.kubelet_knows(WITH_RAIL)
    attaching = asyncio.Event()

    async def wait_for_the_port() -> None:
        attaching.set()
        await asyncio.Event().wait()

    node.rails.attaching = wait_for_the_port

    async def play(adding: FakeExecutable) -> tuple[int, str]:
        deleting = await FakeExecutable.connected(node.socket)
        await adding.shaken(ADD)
        await adding.answer(BYTES)
        await attaching.wait()
        await deleting.shaken(DEL)
        undone = await adding.answer(b"")
        told = error(await adding.done())
        await deleting.answer(b"")
        await deleting.done()
        deleting.close()
        return undone, told[0]

    assert node.serve(play) == [("DEL flannel", 11)]
    assert node.rails.log == ["plan", "attach", "detach by the record", "forget"]


def test_rails_are_taken_back_as_soon_as_the_executable_is_gone_whatever_is_waited_for(node: Node) -> None:
    node.kubelet_knows(WITH_RAIL)
    attaching = asyncio.Event()

    async def wait_for_the_port() -> None:
        attaching.set()
        await asyncio.Event().wait()

    node.rails.attaching = wait_for_the_port

    async def play(executable: FakeExecutable) -> None:
        await executable.shaken(ADD)
        await executable.answer(BYTES)
        await attaching.wait()

    node.serve(play)

    assert node.rails.log == ["plan", "attach", "detach by the record", "forget"]
    assert node.meter.requests == [("ADD", None)]


def kernel_that_does_not_return(node: Node) -> threading.Event:
    """Have the kernel keep an attach until the event is set."""
    returns = threading.Event()

    async def move() -> None:
        await to_the_end(asyncio.to_thread(returns.wait))

    node.rails.attaching = move
    return returns


@pytest.mark.slow
def test_runtime_is_told_when_the_kernel_does_not_return_and_the_rails_go_back_when_it_does(node: Node) -> None:
    node.kubelet_knows(WITH_RAIL)
    returns = kernel_that_does_not_return(node)

    async def play(executable: FakeExecutable) -> list[object]:
        await executable.shaken(ADD)
        await executable.answer(BYTES)
        told = error(await executable.done())
        meanwhile = list(node.rails.log)
        returns.set()
        return [told[0], "the kernel has not answered for 2 s" in told[1], meanwhile]

    assert node.serve(play, limits=Limits(delegate=1, add=1)) == [[11, True, ["plan", "attach"]]]
    assert node.rails.log == ["plan", "attach", "detach by the record", "forget"]


@pytest.mark.slow
@pytest.mark.parametrize("waits", [True, False], ids=["until its time is over", "until its executable is gone"])
def test_del_that_waits_for_a_kernel_that_does_not_return_ends_in_time(node: Node, waits: bool) -> None:
    node.kubelet_knows(WITH_RAIL)
    returns = kernel_that_does_not_return(node)

    async def play(adding: FakeExecutable) -> list[object]:
        await adding.shaken(ADD)
        await adding.answer(BYTES)
        await adding.done()
        deleting = await FakeExecutable.connected(node.socket)
        await deleting.shaken(DEL)
        try:
            async with asyncio.timeout(15):
                told = error(await deleting.done())[0] if waits else deleting.close()
                while node.meter.requests == []:  # noqa: ASYNC110 - nobody is told of it
                    await asyncio.sleep(0.001)
        finally:
            returns.set()
            deleting.close()
        return [told, list(node.meter.requests)]

    expected = [11, [("DEL", 11)]] if waits else [None, [("DEL", None)]]
    assert node.serve(play, limits=Limits(delegate=1, add=1 if waits else 4)) == [expected]


def test_executable_that_reads_nothing_of_a_large_frame_leaves_its_descriptors_number_to_the_next(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hands_module, "_FRAME_SECONDS", 0.2)
    monkeypatch.setattr(hands_module, "_ENDING_SECONDS", 0.05)
    large = {"type": "flannel", "what": "x" * 900_000}
    node.has_primary(json.dumps({"cniVersion": "1.0.0", "name": "cbr0", "plugins": [large]}))

    async def play(stopped: FakeExecutable) -> int:
        connection = socket.socket(socket.AF_UNIX)  # before a number is free, so that the daemon's end gets it
        await stopped.shaken(ADD)
        while node.meter.requests == []:  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0.001)
        node.has_primary('{"cniVersion": "1.0.0", "name": "cbr0", "plugins": [{"type": "flannel"}]}')
        executable = FakeExecutable(connection)
        await asyncio.get_running_loop().sock_connect(connection, str(node.socket))
        try:
            await executable.shaken(OTHER)
            await executable.answer(BYTES)
            return (await executable.done())[0]
        finally:
            executable.close()

    assert node.serve(play) == [0]


async def waited_for_a_place(node: Node, count: int) -> None:
    while node.places.waiting < count:  # noqa: ASYNC110 - nobody is told of it
        await asyncio.sleep(0.001)


def test_delegate_waits_for_a_place_and_a_del_comes_before_an_add(node: Node) -> None:
    node.places = DelegateSlots(1, long_seconds=20)

    async def play(first: FakeExecutable) -> list[str]:
        adding, deleting = [await FakeExecutable.connected(node.socket) for _ in range(2)]
        order: list[str] = []

        async def run(executable: FakeExecutable, name: str) -> None:
            number, *_ = await executable.executed()
            order.append(name)
            await executable.send(output(number, BYTES))
            await executable.done()
            executable.close()

        await first.shaken(ADD)
        number, *_ = await first.executed()
        await adding.shaken(OTHER)
        waiting = [asyncio.create_task(run(adding, "ADD"))]
        await waited_for_a_place(node, 1)
        await deleting.shaken(a_request({**ENVIRON, b"CNI_COMMAND": b"DEL", b"CNI_CONTAINERID": b"a-third"}))
        waiting.append(asyncio.create_task(run(deleting, "DEL")))
        await waited_for_a_place(node, 2)
        await first.send(output(number, BYTES))
        await first.done()
        await asyncio.gather(*waiting)
        return order

    assert node.serve(play) == [["DEL", "ADD"]]


def test_vf_that_kubelet_still_gives_to_the_pod_that_has_it_is_code_100_at_once(node: Node) -> None:
    node.kubelet_knows(WITH_RAIL, {**WITH_RAIL, "PodUID": "uid-2"})
    node.rails.owner = Owner("another", "eth0", "uid-2")

    async def play(executable: FakeExecutable) -> tuple[int, str]:
        await executable.shaken(ADD)
        return error(await executable.done())

    ((code, message),) = node.serve(play)

    assert (code, node.rails.log) == (100, [])
    assert "names VF 0000:03:00.1 for this pod, and for pod uid-2, which has it" in message


def test_vf_of_a_pod_that_kubelet_has_forgotten_is_waited_for(node: Node) -> None:
    node.kubelet_knows(WITH_RAIL)
    node.rails.owner = Owner("another", "eth0", "uid-2")

    async def play(executable: FakeExecutable) -> tuple[int, bytes]:
        await executable.shaken(ADD)
        await executable.answer(BYTES)
        return await executable.done()

    assert node.serve(play) == [(0, BYTES)]


def test_stages_and_verbs_are_told(node: Node) -> None:
    async def play(executable: FakeExecutable) -> None:
        await executable.shaken(ADD)
        await executable.answer(BYTES)
        await executable.done()

    async def odd(executable: FakeExecutable) -> None:
        await executable.shaken(a_request({b"CNI_COMMAND": b"FROB"}))
        await executable.done()

    node.serve(play, odd)

    assert node.meter.stages == [("ADD", "queue"), ("ADD", "delegate")]
    assert node.meter.requests == [("ADD", 0), ("unknown", 4)]


# Peers that are none.


def test_peer_that_is_not_root_is_dropped_before_it_is_heard(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    users = [1000, 1000]
    monkeypatch.setattr(server, "_peer_uid", lambda _: users.pop() if users else 0)

    async def heard(executable: FakeExecutable) -> int:
        try:
            await executable.send(ADD)
            return (await executable.receive())[0]
        except (BrokenPipeError, ConnectionResetError):
            return 0

    assert node.serve(heard, heard) == [0, frames.HELLO]


def test_user_of_a_peer_is_the_kernels_word() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert server._peer_uid(ours) == os.getuid()


ODD: dict[str, bytes] = {
    "nothing": b"\0",
    "half a header": ADD[:5],
    "half a frame": ADD[:-1],
    "a huge length": b"RN\x01\x01\xff\xff\xff\xff",
    "no frame": b"GET / HTTP/1.1\r\n\r\n",
    "no REQUEST": frames.frame(frames.GO),
    "no GO": ADD,
}


@pytest.mark.parametrize("leaves", [True, False], ids=["and leaves", "and stays"])
@pytest.mark.parametrize("sent", ODD.values(), ids=ODD.keys())
def test_odd_peer_is_dropped_with_all_its_descriptors(
    node: Node, monkeypatch: pytest.MonkeyPatch, sent: bytes, leaves: bool
) -> None:
    monkeypatch.setattr(hands_module, "_FRAME_SECONDS", 0.05)
    reading, writing = os.pipe()

    async def play(executable: FakeExecutable) -> None:
        executable.send_with_descriptors(sent, [writing] * 10)
        os.close(writing)
        if leaves:
            executable.close()
        # The end of the pipe: nobody has its other side any more.
        assert await asyncio.to_thread(os.read, reading, 1) == b""

    async def served(executable: FakeExecutable) -> tuple[int, bytes]:
        await executable.shaken(ADD)
        await executable.answer(BYTES)
        return await executable.done()

    assert node.serve(play, served) == [None, (0, BYTES)]
    os.close(reading)
