"""The stream of link changes (RTNLGRP_LINK): a task is called at once when a PF's link goes down or up.

The caller chooses the watched links. The kernel drops messages about other links (`railnet.kernel.sockets.socket_filter`): the veth of one plain pod
causes two dozen messages, and each would wake the daemon.

The kernel sends the first change of a carrier at once, and repeated changes once a second (linkwatch_nextevent,
net/core/link_watch.c).
"""

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from errno import ENOBUFS
from socket import AF_NETLINK, AF_UNSPEC, MSG_DONTWAIT, NETLINK_ROUTE, SOCK_CLOEXEC, SOCK_RAW, socket

from railnet.kernel.netlink.pf_link_query import parse
from railnet.kernel.netlink.pf_link_state import PfLink
from railnet.kernel.netlink.protocol import decode, understanding
from railnet.kernel.sockets.socket_filter import attach, links

_log = logging.getLogger(__name__)
_RTM_NEWLINK, _RTM_DELLINK, _RTMGRP_LINK = 16, 17, 1  # include/uapi/linux/rtnetlink.h
_HEADERS = struct.Struct("=IHHIIBxHi")  # struct nlmsghdr, and struct ifinfomsg as far as the ifindex
_RECEIVE_BYTES = 65536
_AT_ONCE = 256  # messages that are read before other tasks of the event loop run
_PAUSE_SECONDS = 0.05  # between two calls of `look`, also when a flood causes lost messages
_RETRY_SECONDS = 1.0

Observe = Callable[[Callable[[], None]], Callable[[], None]]
Look = Callable[[Mapping[int, PfLink | None]], Awaitable[None]]


async def watch(
    watched: Callable[[], Collection[int]], observe: Observe, look: Look, quiet_seconds: float = 0.0
) -> None:
    """Call `look` with the watched links that the kernel reports, by ifindex, until the task is cancelled.

    A link is None if no message has its state: the link is gone, or the caller must read it. In the first call, all watched
    links are None. The same holds after messages were lost or the socket failed: the socket is then opened again.

    Args:
        watched: returns the ifindexes of the watched links; it is called for each message.
        observe: has a function called whenever other links may be watched, until the function that it returns is called. A link that
            is watched from now on is None in the next call of `look`.
        look: handles the changes. While it runs, further changes are collected.
        quiet_seconds: the time after the first opening of the socket in which `look` is not called.
    """
    while True:
        try:
            with _listening(watched, observe) as changes:
                await asyncio.sleep(quiet_seconds)
                quiet_seconds = 0.0
                while True:
                    await look(await changes.wait())
                    await asyncio.sleep(_PAUSE_SECONDS)
        except _Lost:
            await asyncio.sleep(_PAUSE_SECONDS)
        except _Broken as broken:
            _log.warning("link changes are not received (%s); the socket is opened again", broken.__cause__)
            await asyncio.sleep(_RETRY_SECONDS)


class _Broken(Exception):
    """The socket cannot be opened or read; the exception's cause has the reason."""


class _Lost(Exception):
    """The kernel dropped messages because the socket was full (ENOBUFS). The queued messages are older than the lost ones."""


class _Changes:
    """The changes of watched links since the last `wait`."""

    def __init__(self, route: socket, watched: Callable[[], Collection[int]]) -> None:
        """Read messages from an open socket."""
        self._route, self._watched = route, watched
        self._changed: dict[int, PfLink | None] = dict.fromkeys(watched())
        self._passing: frozenset[int] | None = None  # what the kernel does not drop; None is everything
        self._news = asyncio.Event()
        self._news.set()
        self._error: OSError | None = None

    async def wait(self) -> Mapping[int, PfLink | None]:
        """Wait until a watched link is reported. Return the newest state of each reported link.

        Raises:
            _Lost, _Broken: the socket must be opened again.
        """
        await self._news.wait()
        if self._error is not None:
            raise _Lost if self._error.errno == ENOBUFS else _Broken from self._error
        self._news.clear()
        changed, self._changed = self._changed, {}
        return changed

    def pass_watched(self) -> None:
        """Have the kernel drop messages about links that are not watched now. It never raises."""
        watched = frozenset(self._watched())
        if watched == self._passing:
            return
        attach(self._route, links(watched))
        # Its messages were dropped until now, so its state may be newer than what made it watched.
        if self._passing is not None and not watched <= self._passing:
            self._changed |= dict.fromkeys(watched - self._passing)
            self._news.set()
        self._passing = watched

    def read(self) -> None:
        """Read the queued messages. The event loop calls this; it never raises."""
        try:
            for _ in range(_AT_ONCE):
                self._take(self._route.recv(_RECEIVE_BYTES, MSG_DONTWAIT))
        except BlockingIOError:
            pass
        except OSError as error:
            self._error = error
            self._news.set()
            asyncio.get_running_loop().remove_reader(self._route.fileno())  # the event loop would call this without end

    def _take(self, datagram: bytes) -> None:
        """Note the change in one message. The kernel sends one message in each datagram of the group."""
        if len(datagram) < _HEADERS.size:
            return
        _, kind, _, _, _, family, _, ifindex = _HEADERS.unpack_from(datagram)
        # Messages of the family AF_BRIDGE are about a bridge's port, and have no carrier.
        if kind not in (_RTM_NEWLINK, _RTM_DELLINK) or family != AF_UNSPEC or ifindex not in self._watched():
            return
        # A repeated state is a change, too: the caller may have read another state in between, which no message reported.
        self._changed[ifindex] = None if kind == _RTM_DELLINK else self._state(datagram)
        self._news.set()

    def _state(self, datagram: bytes) -> PfLink | None:
        """Decode a message. A malformed message yields None, and counts as a change."""
        try:
            with understanding("receive a link change"):
                return parse(next(decode(datagram)).payload)
        except OSError as error:
            _log.warning("%s", error)
            return None


@contextmanager
def _listening(watched: Callable[[], Collection[int]], observe: Observe) -> Iterator[_Changes]:
    """Open the stream in the calling thread's network namespace. The running event loop reads it."""
    loop = asyncio.get_running_loop()
    try:
        route = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)
    except OSError as error:
        raise _Broken from error
    with route:
        try:
            route.bind((0, _RTMGRP_LINK))
        except OSError as error:
            raise _Broken from error
        changes = _Changes(route, watched)
        changes.pass_watched()
        stop = observe(changes.pass_watched)
        loop.add_reader(route.fileno(), changes.read)
        try:
            yield changes
        finally:
            loop.remove_reader(route.fileno())
            stop()
