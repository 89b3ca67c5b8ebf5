"""The socket from REQUEST to DONE, for pods with a rail: its rails come with the answer, or go back."""

import errno
import json
from pathlib import Path

import pytest

from cni.server import Limits
from tests.cni.executable import ENVIRON, FakeExecutable, a_request, output
from tests.cni.node import RAIL, Node

REQUEST = a_request()
BYTES = b' {"ips" :[ ]}\n'


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def added(executable: FakeExecutable) -> tuple[list[str], tuple[int, bytes]]:
    """Play an ADD whose one plugin succeeds."""
    await executable.shaken(REQUEST)
    executed = await executable.answer(BYTES)
    return [executed], await executable.done()


def error(done: tuple[int, bytes]) -> tuple[int, int, str]:
    answer = json.loads(done[1])
    return done[0], answer["code"], answer["msg"]


async def leaving_while_a_plugin_runs(executable: FakeExecutable) -> None:
    await executable.shaken(REQUEST)
    await executable.executed()


@pytest.fixture
def rail_node(node: Node) -> Node:
    node.kubelet_knows({"PodUID": "uid-1", "ResourceName": RAIL, "DeviceIDs": {"0": ["0000:03:00.1"]}})
    return node


def test_add_of_a_pod_with_a_rail_attaches_after_the_primary_and_then_confirms(rail_node: Node) -> None:
    async def play(executable: FakeExecutable) -> list[object]:
        await executable.shaken(REQUEST)
        number, *_ = await executable.executed()
        meanwhile = list(rail_node.rails.log)
        await executable.send(output(number, BYTES))
        return [meanwhile, await executable.done()]

    assert rail_node.serve(play) == [[["plan"], (0, BYTES)]]
    assert rail_node.rails.log == ["plan", "attach", "confirm", "announce"]


def test_rails_are_taken_back_when_the_executable_dies_while_the_primary_runs(rail_node: Node) -> None:
    rail_node.serve(leaving_while_a_plugin_runs)

    assert rail_node.rails.log == ["plan", "detach by the record", "forget"]


async def leaving_before_done(executable: FakeExecutable) -> None:
    await executable.shaken(REQUEST)
    await executable.answer(BYTES)


async def leaving_before_done_with_a_descriptor(executable: FakeExecutable) -> None:
    executable.send_with_descriptors(REQUEST, [0])
    await executable.shaken(b"")
    await executable.answer(BYTES)


@pytest.mark.parametrize("play", [leaving_before_done, leaving_before_done_with_a_descriptor])
def test_rails_are_taken_back_by_the_record_when_the_answer_cannot_be_delivered(rail_node: Node, play) -> None:
    rail_node.serve(play)

    assert rail_node.rails.log == ["plan", "attach", "confirm", "announce", "take back"]


def test_del_whose_answer_cannot_be_delivered_takes_nothing_back_twice(rail_node: Node) -> None:
    rail_node.serve(added)

    async def play(executable: FakeExecutable) -> None:
        await executable.shaken(a_request({**ENVIRON, b"CNI_COMMAND": b"DEL"}))
        await executable.answer(b"")

    rail_node.rails.log.clear()
    rail_node.serve(play)

    assert rail_node.rails.log == ["detach by the record", "forget"]


def test_time_out_that_is_not_ours_is_the_kernels_and_no_word_of_timeouts_add(rail_node: Node) -> None:
    rail_node.rails.refuses = TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    async def play(executable: FakeExecutable) -> list[object]:
        await executable.shaken(REQUEST)
        return [await executable.answer(BYTES), await executable.answer(b""), error(await executable.done())]

    assert rail_node.serve(play) == [["ADD flannel", "DEL flannel", (1, 5, "Connection timed out")]]


@pytest.mark.slow
def test_rails_are_taken_back_when_the_request_takes_too_long(rail_node: Node) -> None:
    async def play(executable: FakeExecutable) -> tuple[str, int]:
        await executable.shaken(REQUEST)
        number, *_ = await executable.executed()
        await executable.receive()
        await executable.send(output(number, b"", 9))
        return await executable.answer(b""), error(await executable.done())[1]

    assert rail_node.serve(play, limits=Limits(20, 1)) == [("DEL flannel", 11)]
    assert rail_node.rails.log == ["plan", "detach by the record", "forget"]
