"""Tell the neighbours of attached rails which hardware address their addresses have now, beside the answer of an ADD."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

from cni.cancellation import to_the_end
from kernel.netlink.arp import announce
from kernel.netns import NetnsIdentity, inside, opened
from vf.record import Attachment, Record

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.05


class GratuitousArp:
    """Those that are under way; `root` is where the host's mount namespace is seen."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, record: Record, seconds: float, still_attached: Callable[[], bool]) -> None:
        """Announce the rails of a record as soon as there is a carrier, within some seconds; nobody waits for it."""
        task = asyncio.create_task(self._announce(record, seconds, still_attached))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _announce(self, record: Record, seconds: float, still_attached: Callable[[], bool]) -> None:
        """Look again and again, and hold the namespace open only while looking: an open one does not die."""
        give_up = asyncio.get_running_loop().time() + seconds
        expected = NetnsIdentity(record.netns.dev, record.netns.inode)
        left = record.attachments
        try:
            while left and still_attached():
                with opened(self._root, record.netns.path, expected) as fd:
                    if fd is None:
                        return
                    left = await to_the_end(asyncio.to_thread(inside, fd, partial(_silent, left)))
                if asyncio.get_running_loop().time() > give_up:
                    return
                await asyncio.sleep(_LOOK_SECONDS)
        except OSError as error:
            _log.warning("sandbox %s: its neighbours were not told of its addresses: %s", record.key, error)


def _silent(attachments: tuple[Attachment, ...]) -> tuple[Attachment, ...]:
    """Announce the IPv4 addresses of rails in the calling thread's namespace; gives the rails that have no carrier yet."""
    addresses = {one: [each.ip for each in one.addresses if isinstance(each.ip, IPv4Address)] for one in attachments}
    return tuple(one for one, ips in addresses.items() if ips and not announce(one.ifname, ips))
