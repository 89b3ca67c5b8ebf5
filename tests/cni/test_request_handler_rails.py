"""The socket from REQUEST to DONE for pods with a rail: the rails are attached, or all is undone."""

import asyncio
import errno
import json
from pathlib import Path

import pytest

from cni.request_cancellation import TimeLimits
from tests.cni.fake_executable import ENVIRON, FakeExecutable, a_request, output
from tests.cni.server_node import RAIL, Node

REQUEST = a_request()
BYTES = b' {"ips" :[ ]}\n'


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def added(executable: FakeExecutable) -> tuple[list[str], tuple[int, bytes]]:
    """Play an ADD whose one plugin succeeds."""
    await executable.handshake(REQUEST)
    executed = await executable.answer(BYTES)
    return [executed], await executable.done()


def error(done: tuple[int, bytes]) -> tuple[int, int, str]:
    answer = json.loads(done[1])
    return done[0], answer["code"], answer["msg"]


async def leaving_while_a_plugin_runs(executable: FakeExecutable) -> None:
    await executable.handshake(REQUEST)
    await executable.executed()


@pytest.fixture
def node_with_rail(node: Node) -> Node:
    node.kubelet_knows({"PodUID": "uid-1", "ResourceName": RAIL, "DeviceIDs": {"0": ["0000:03:00.1"]}})
    return node


def test_add_of_a_pod_with_a_rail_attaches_after_the_primary_and_then_confirms(node_with_rail: Node) -> None:
    async def play(executable: FakeExecutable) -> list[object]:
        await executable.handshake(REQUEST)
        number, *_ = await executable.executed()
        meanwhile = list(node_with_rail.attachments.log)
        await executable.send(output(number, BYTES))
        return [meanwhile, await executable.done()]

    assert node_with_rail.serve(play) == [[["plan"], (0, BYTES)]]
    assert node_with_rail.attachments.log == ["plan", "attach", "confirm", "announce"]


def test_rails_are_taken_back_when_the_executable_dies_while_the_primary_runs(node_with_rail: Node) -> None:
    node_with_rail.serve(leaving_while_a_plugin_runs)

    assert node_with_rail.attachments.log == ["plan", "detach by the record", "forget"]


async def leaving_before_done(executable: FakeExecutable) -> None:
    await executable.handshake(REQUEST)
    await executable.answer(BYTES)


async def leaving_before_done_with_a_descriptor(executable: FakeExecutable) -> None:
    executable.send_with_descriptors(REQUEST, [0])
    await executable.handshake(b"")
    await executable.answer(BYTES)


@pytest.mark.parametrize("play", [leaving_before_done, leaving_before_done_with_a_descriptor])
def test_rails_are_taken_back_by_the_record_when_the_answer_cannot_be_delivered(node_with_rail: Node, play) -> None:
    node_with_rail.serve(play)

    assert node_with_rail.attachments.log == ["plan", "attach", "confirm", "announce", "take back"]


DEL = a_request({**ENVIRON, b"CNI_COMMAND": b"DEL"})


async def deleted(executable: FakeExecutable) -> tuple[int, bytes]:
    await executable.handshake(DEL)
    await executable.answer(b"")
    return await executable.done()


def test_del_is_answered_before_the_rails_go_back(node_with_rail: Node) -> None:
    answered = asyncio.Event()
    node_with_rail.serve(added)
    node_with_rail.attachments.log.clear()
    node_with_rail.attachments.returning = lambda: asyncio.wait_for(answered.wait(), 20)

    async def play(executable: FakeExecutable) -> tuple[int, bytes]:
        done = await deleted(executable)
        answered.set()
        return done

    assert node_with_rail.serve(play) == [(0, b"")]
    assert node_with_rail.attachments.log == ["begin to detach", "detach and forget by the record"]


def test_rails_go_back_by_the_namespaces_descriptor_which_stays_open_after_the_answer(node_with_rail: Node) -> None:
    node_with_rail.serve(added)
    node_with_rail.attachments.log.clear()

    async def play(executable: FakeExecutable) -> None:
        executable.send_with_descriptors(DEL, [0])
        await executable.handshake(b"")
        await executable.answer(b"")
        await executable.done()

    node_with_rail.serve(play)

    assert node_with_rail.attachments.log == ["begin to detach", "detach and forget"]


def test_next_del_of_a_sandbox_waits_until_the_rails_are_back(node_with_rail: Node) -> None:
    may_return = asyncio.Event()
    node_with_rail.serve(added)
    node_with_rail.attachments.log.clear()
    node_with_rail.attachments.returning = may_return.wait

    async def second(executable: FakeExecutable) -> list[object]:
        await executable.handshake(DEL)
        waiting = asyncio.create_task(executable.answer(b""))
        done, _ = await asyncio.wait((waiting,), timeout=0.1)
        may_return.set()
        return [done, await waiting, await executable.done()]

    assert node_with_rail.serve(deleted, second) == [(0, b""), [set(), "DEL flannel", (0, b"")]]
    assert node_with_rail.attachments.log == ["begin to detach", "detach and forget by the record"]


def test_del_whose_rails_the_kernel_keeps_has_succeeded_and_the_log_says_who_goes_on(
    node_with_rail: Node, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse() -> None:
        raise OSError(errno.EBUSY, "busy")

    node_with_rail.serve(added)
    node_with_rail.attachments.returning = refuse

    assert node_with_rail.serve(deleted) == [(0, b"")]
    assert "its rails are not back: [Errno 16] busy; the next sweep tries again" in caplog.text
    assert node_with_rail.metrics.requests[-1] == ("DEL", 0)


@pytest.mark.slow
def test_move_that_does_not_end_after_the_answer_is_in_the_log(
    node_with_rail: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node_with_rail.serve(added)
    node_with_rail.attachments.returning = lambda: asyncio.sleep(4)

    assert node_with_rail.serve(deleted, limits=TimeLimits(1, 1.5)) == [(0, b"")]
    assert "the kernel has not moved its rails back for 2.5 s" in caplog.text


def test_rails_go_back_once_when_the_answer_of_a_del_cannot_be_delivered(node_with_rail: Node) -> None:
    node_with_rail.serve(added)

    async def play(executable: FakeExecutable) -> None:
        await executable.handshake(DEL)
        await executable.answer(b"")

    node_with_rail.attachments.log.clear()
    node_with_rail.serve(play)

    assert node_with_rail.attachments.log == ["begin to detach", "detach and forget by the record"]


def test_rails_go_back_when_the_executable_dies_while_the_primarys_del_runs(node_with_rail: Node) -> None:
    node_with_rail.serve(added)
    node_with_rail.attachments.log.clear()

    async def play(executable: FakeExecutable) -> None:
        await executable.handshake(DEL)
        await executable.executed()

    node_with_rail.serve(play)

    assert node_with_rail.attachments.log == ["begin to detach", "detach by the record"]


def test_timeout_of_the_kernel_is_not_reported_as_timeouts_add(node_with_rail: Node) -> None:
    node_with_rail.attachments.refuses = TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    async def play(executable: FakeExecutable) -> list[object]:
        await executable.handshake(REQUEST)
        return [await executable.answer(BYTES), await executable.answer(b""), error(await executable.done())]

    assert node_with_rail.serve(play) == [["ADD flannel", "DEL flannel", (1, 5, "Connection timed out")]]


@pytest.mark.slow
def test_rails_are_taken_back_when_the_request_takes_too_long(node_with_rail: Node) -> None:
    async def play(executable: FakeExecutable) -> tuple[str, int]:
        await executable.handshake(REQUEST)
        number, *_ = await executable.executed()
        await executable.receive()
        await executable.send(output(number, b"", 9))
        return await executable.answer(b""), error(await executable.done())[1]

    assert node_with_rail.serve(play, limits=TimeLimits(20, 1)) == [("DEL flannel", 11)]
    assert node_with_rail.attachments.log == ["plan", "detach by the record", "forget"]
