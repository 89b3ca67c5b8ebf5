"""The stream of link changes: the messages that count, and recovery from every message and error."""

import asyncio
import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import pytest

from railnet.kernel.netlink import link_changes
from railnet.kernel.netlink.link_changes import _AT_ONCE, _Broken, _Changes
from railnet.kernel.netlink.pf_link_state import PfLink
from railnet.kernel.sockets import socket_filter
from tests.railnet.kernel.netlink.link_messages import DELLINK, link_message

PF, OTHER_PF, VETH = 7, 8, 300
AF_BRIDGE = 7
UP = PfLink(True, True, "UP", "52:54:00:00:00:01")
NO_CARRIER = PfLink(True, False, "DOWN", "52:54:00:00:00:01")


class Route:
    """A netlink socket that receives these datagrams, or raises these errnos. It is always readable."""

    def __init__(self, *received: bytes | int) -> None:
        self.received = list(received)
        self.filters = 0
        self._fd = os.eventfd(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def bind(self, address: tuple[int, int]) -> None:
        assert address == (0, 1)  # RTMGRP_LINK

    def setsockopt(self, _level: int, option: int, _value: object) -> None:
        self.filters += option == socket_filter._ATTACH

    def fileno(self) -> int:
        return self._fd

    def recv(self, _size: int, _flags: int) -> bytes:
        one = self.received.pop(0) if self.received else errno.EAGAIN
        if isinstance(one, int):
            raise OSError(one, os.strerror(one))
        return one


def changes_of(*received: bytes | int, reads: int = 1) -> Mapping[int, PfLink | None]:
    """Return the changes after the first call, which contains all links."""

    async def main() -> Mapping[int, PfLink | None]:
        with Route(*received) as route:
            changes = _Changes(route, lambda: {PF, OTHER_PF})
            assert await changes.wait() == {PF: None, OTHER_PF: None}
            for _ in range(reads):
                changes.read()
            async with asyncio.timeout(0):
                return await changes.wait()

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("received", "changed"),
    [
        ((link_message(PF, carrier=False),), {PF: NO_CARRIER}),
        ((link_message(PF), link_message(PF, carrier=False)), {PF: NO_CARRIER}),
        ((link_message(PF, carrier=False), link_message(OTHER_PF)), {PF: NO_CARRIER, OTHER_PF: UP}),
        ((link_message(PF, kind=DELLINK),), {PF: None}),
        ((link_message(VETH), link_message(PF)), {PF: UP}),
        ((link_message(PF)[:32],), {PF: None}),
    ],
    ids=[
        "no carrier",
        "the newest state",
        "two PFs",
        "gone",
        "after a veth",
        "malformed",
    ],
)
def test_change_of_a_watched_link_is_reported(received: tuple[bytes | int, ...], changed: Mapping[int, PfLink]) -> None:
    assert changes_of(*received) == changed


@pytest.mark.parametrize(
    "received",
    [
        (),
        (link_message(VETH), link_message(VETH, kind=DELLINK)),
        (link_message(PF, family=AF_BRIDGE, carrier=False),),
        (link_message(PF, kind=DELLINK, family=AF_BRIDGE),),
        (link_message(PF, kind=24),),
        (b"\0" * 8,),
    ],
    ids=["no message", "a plain pod's veth", "a bridge's port", "a bridge loses a port", "a route", "cut short"],
)
def test_other_message_is_ignored(received: tuple[bytes, ...]) -> None:
    with pytest.raises(TimeoutError):
        changes_of(*received)


def test_repeated_state_is_reported() -> None:
    """The resync read that the link was down, and the kernel did not report this before the link was up again."""

    async def main() -> None:
        with Route(link_message(PF)) as route:
            changes = _Changes(route, lambda: {PF})
            changes.read()
            await changes.wait()
            route.received.append(link_message(PF))
            changes.read()
            async with asyncio.timeout(0):
                assert await changes.wait() == {PF: UP}

    asyncio.run(main())


def test_other_tasks_run_during_a_flood() -> None:
    flood = [link_message(VETH)] * _AT_ONCE

    with pytest.raises(TimeoutError):
        changes_of(*flood, link_message(PF), reads=1)
    assert changes_of(*flood, link_message(PF), reads=2) == {PF: UP}


def test_broken_socket_is_no_longer_read() -> None:
    async def main() -> None:
        with Route(errno.EBADF) as route:
            changes = _Changes(route, set)
            asyncio.get_running_loop().add_reader(route.fileno(), changes.read)
            await changes.wait()
            with pytest.raises(_Broken) as broken:
                await changes.wait()
            assert not asyncio.get_running_loop().remove_reader(route.fileno())
            assert isinstance(broken.value.__cause__, OSError)

    asyncio.run(main())


def unchanging(_: Callable[[], None]) -> Callable[[], None]:
    return lambda: None


def looks_of_watch(monkeypatch: pytest.MonkeyPatch, open_socket: Callable[..., Route], calls: int) -> list[object]:
    """Return the arguments of the first `calls` calls of `look` by `watch`."""
    monkeypatch.setattr(link_changes, "socket", open_socket)
    monkeypatch.setattr(link_changes, "_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(link_changes, "_PAUSE_SECONDS", 0.0)
    looked: list[object] = []

    async def look(links: Mapping[int, PfLink | None]) -> None:
        looked.append(dict(links))
        if len(looked) == calls:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(link_changes.watch(lambda: {PF}, unchanging, look))
    return looked


def test_broken_socket_is_opened_again_and_all_links_must_be_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    routes = [Route(errno.EBADF), Route(link_message(PF))]

    looked = looks_of_watch(monkeypatch, lambda *_: routes.pop(0), 3)

    assert looked == [{PF: None}, {PF: None}, {PF: UP}]
    assert "link changes are not received ([Errno 9] Bad file descriptor); the socket is opened again" in caplog.text


def test_all_links_must_be_read_after_lost_messages_and_older_messages_are_ignored(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    routes = [Route(errno.ENOBUFS, link_message(PF)), Route(link_message(PF, carrier=False))]

    looked = looks_of_watch(monkeypatch, lambda *_: routes.pop(0), 3)

    assert looked == [{PF: None}, {PF: None}, {PF: NO_CARRIER}]
    assert caplog.text == ""


def test_opening_of_a_socket_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [OSError(errno.EMFILE, "too many")]

    def bind(self: Route, address: tuple[int, int]) -> None:
        if failures:
            raise failures.pop()

    monkeypatch.setattr(Route, "bind", bind)

    assert looks_of_watch(monkeypatch, lambda *_: Route(), 1) == [{PF: None}]


def test_link_that_is_watched_from_now_on_must_be_read_and_one_that_is_not_any_more_is_filtered() -> None:
    watched = {PF}

    async def main() -> None:
        with Route() as route:
            changes = _Changes(route, lambda: watched)
            changes.pass_watched()
            assert await changes.wait() == {PF: None}
            watched.add(OTHER_PF)
            changes.pass_watched()
            async with asyncio.timeout(0):
                assert await changes.wait() == {OTHER_PF: None}
            watched.remove(PF)
            changes.pass_watched()
            changes.pass_watched()
            assert route.filters == 3
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await changes.wait()

    asyncio.run(main())


def test_stream_is_told_of_other_links_as_long_as_it_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def observe(observer: Callable[[], None]) -> Callable[[], None]:
        told.append("from now on")
        observer()
        return lambda: told.append("no more")

    async def look(_: Mapping[int, PfLink | None]) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(link_changes, "socket", lambda *_: Route())
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(link_changes.watch(lambda: {PF}, observe, look))

    assert told == ["from now on", "no more"]


def test_stream_of_the_real_kernel_leaves_no_open_descriptor() -> None:
    def listen() -> None:
        async def look(_: Mapping[int, PfLink | None]) -> None:
            raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            asyncio.run(link_changes.watch(lambda: {1}, unchanging, look))

    listen()
    before = sorted(Path("/proc/self/fd").iterdir())
    listen()

    assert sorted(Path("/proc/self/fd").iterdir()) == before
