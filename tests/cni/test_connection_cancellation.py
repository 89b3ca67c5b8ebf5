"""A chain that is cancelled, or that yields too large a step, undoes what ran."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cni.connection import ExecutableConnection, ExecutableGone
from cni.host import chain, frames
from cni.host.errors import DELEGATE_BROKE, CniError
from tests.cni.connection_pair import converse
from tests.cni.fake_executable import FakeExecutable, a_request, output
from tests.cni.host.fake_runner import a_primary

REQUEST = a_request()


def adding(
    primary: chain.Primary, cancelled: asyncio.Event | None = None
) -> Callable[[ExecutableConnection], Awaitable[object]]:
    """Return a daemon's end that runs ADD through a chain, and is cancelled when the event is set."""

    async def serve(connection: ExecutableConnection) -> object:
        await connection.request()
        driving = asyncio.create_task(connection.drive(chain.add(primary, {})))
        if cancelled is not None:
            await cancelled.wait()
            driving.cancel()
        await asyncio.wait((driving,))
        return "cancelled" if driving.cancelled() else driving.exception()

    return serve


@pytest.mark.parametrize("at_once", [True, False], ids=["with the OUTPUT", "without it"])
def test_chain_that_is_cancelled_undoes_what_ran_before_it_ends(at_once: bool) -> None:
    cancelled = asyncio.Event()

    async def play(executable: FakeExecutable) -> list[object]:
        await executable.send(REQUEST)
        first = await executable.answer(b"{}")
        number, *_ = await executable.executed()
        await executable.send(output(number, b"{}")) if at_once else None
        cancelled.set()
        kind, payload = await executable.receive()
        await executable.send(output(number, b"", 9)) if not at_once else None
        undone = [await executable.answer(b""), await executable.answer(b"")]
        return [first, kind, payload == number, undone]

    ended, played = converse(adding(a_primary("bridge", "tuning", "firewall"), cancelled), play)

    assert ended == "cancelled"
    assert played == ["ADD bridge", frames.KILL, True, ["DEL tuning", "DEL bridge"]]


def test_chain_that_is_cancelled_is_cancelled_also_when_its_undo_fails() -> None:
    cancelled = asyncio.Event()

    async def play(executable: FakeExecutable) -> str:
        await executable.send(REQUEST)
        number, *_ = await executable.executed()
        cancelled.set()
        await executable.receive()
        await executable.send(output(number, b"", 9))
        return await executable.answer(b"", 1 << 8)

    assert converse(adding(a_primary("bridge"), cancelled), play) == ["cancelled", "DEL bridge"]


def test_executable_that_ends_during_the_undo_of_a_cancelled_chain_is_gone() -> None:
    cancelled = asyncio.Event()

    async def play(executable: FakeExecutable) -> None:
        await executable.send(REQUEST)
        await executable.executed()
        cancelled.set()
        await executable.receive()
        executable.close()

    assert isinstance(converse(adding(a_primary("bridge"), cancelled), play)[0], ExecutableGone)


def test_exec_that_is_too_large_is_not_sent_and_what_ran_is_undone() -> None:
    large = {"type": "tuning", "x": "x" * frames.MAX_PAYLOAD}

    async def play(executable: FakeExecutable) -> list[str]:
        await executable.send(REQUEST)
        return [await executable.answer(b"{}"), await executable.answer(b"")]

    ended, played = converse(adding(a_primary("bridge", large)), play)

    assert isinstance(ended, CniError)
    assert ended.code == DELEGATE_BROKE
    assert "configuration and prevResult for plugin 'tuning' are 4" in str(ended)
    assert played == ["ADD bridge", "DEL bridge"]
