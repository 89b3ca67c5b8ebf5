"""Announce the addresses of attached rails, so that neighbours replace an earlier hardware address. No ADD waits for it."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

from railnet.kernel.namespaces.netns import NetnsIdentity, inside, opened
from railnet.kernel.netlink.arp import announce
from railnet.kernel.threads.bounded_threads import BoundedThreads
from railnet.kernel.waiting import until_awaited
from railnet.vf.record import Attachment, Record

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.05
_THREADS, _AT_ONCE = "gratuitous ARP", 4


class GratuitousArp:
    """The announcements that are under way; `root` is where the host's mount namespace is seen."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._running: set[asyncio.Task[None]] = set()
        self._threads = BoundedThreads(_AT_ONCE)

    def begin(self, record: Record, seconds: float, still_attached: Callable[[], bool]) -> None:
        """Announce the rails of a record in a task, each as soon as it has a carrier, for at most some seconds."""
        task = asyncio.create_task(self._announce(record, seconds, still_attached))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _announce(self, record: Record, seconds: float, still_attached: Callable[[], bool]) -> None:
        """Look for carriers repeatedly. The namespace is open only during a look: an open namespace does not end."""
        expected = NetnsIdentity(record.netns.dev, record.netns.inode)
        left = record.attachments

        async def is_over() -> bool:
            nonlocal left
            if not left or not still_attached():
                return True
            with opened(self._root, record.netns.path, expected) as fd:
                if fd is None:
                    return True
                announce_in = partial(inside, fd, partial(_announce_those_with_carrier, left))
                left = await self._threads.run_to_the_end(_THREADS, announce_in)
            return not left

        try:
            await until_awaited(is_over, seconds, _LOOK_SECONDS)
        except OSError as error:
            _log.warning("sandbox %s: its addresses were not announced to its neighbours: %s", record.key, error)


def _announce_those_with_carrier(attachments: tuple[Attachment, ...]) -> tuple[Attachment, ...]:
    """Announce the IPv4 addresses of rails in the calling thread's namespace; return the rails without a carrier yet."""
    addresses = {
        attachment: [address.ip for address in attachment.addresses if isinstance(address.ip, IPv4Address)]
        for attachment in attachments
    }
    return tuple(attachment for attachment, ips in addresses.items() if ips and not announce(attachment.ifname, ips))
