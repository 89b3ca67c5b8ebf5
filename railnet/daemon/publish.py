"""What the cluster is told of a pod's rails: `network-status` where it has them, an event where it was refused.

Everything is sent after the runtime has its answer, by a thread of its own: no ADD waits for the API server.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from apiserver import network_status
from apiserver.client import ApiServer
from apiserver.event import Series
from apiserver.network_status import NetworkStatus
from apiserver.outbox import Outbox
from cni import events
from cni.events import Attached, Observer, Refused
from cni.host.errors import CniError
from kernel.netlink.sandbox_links import hardware_addresses
from kernel.netns import NetnsIdentity, opened
from railnet.configuration import Configuration, Publish

_log = logging.getLogger(__name__)
_REASON = "RailnetAttachFailed"
_LAST_SECONDS = 1.0  # of a daemon that ends; its successor waits for it


@asynccontextmanager
async def publishing(configuration: Configuration) -> AsyncIterator[Observer]:
    """Give who is told what came of an ADD; what still waits at the end has a second."""
    publish = configuration.publish
    if not (publish.network_status or publish.events):
        yield events.ignore
        return
    server = ApiServer.of_cluster(os.environ)
    if server is None:
        _log.info("no service account's token: neither network-status nor events are sent")
        yield events.ignore
        return
    outbox = Outbox(server.send)
    try:
        yield Publisher(outbox, publish, configuration.host.root, os.environ.get("NODE_NAME") or os.uname().nodename)
    finally:
        await asyncio.to_thread(outbox.close, _LAST_SECONDS)


class Publisher:
    """Makes messages of outcomes. A pod whose UID the runtime does not say is left alone: it could be its namesake."""

    def __init__(self, outbox: Outbox, publish: Publish, root: Path, node: str) -> None:
        """Look at the host seen at `root`; `node` is its name in the cluster."""
        self._outbox, self._publish, self._root = outbox, publish, root
        self._series = Series(node)

    def __call__(self, told: Attached | Refused) -> None:
        """Have it sent."""
        match told:
            case Attached(record=record) if record.pod.uid and self._publish.network_status:
                self._outbox.put(NetworkStatus(record.pod, told.static, partial(_elements, told, self._root)))
            case Refused(pod=pod, error=error) if pod.uid and self._publish.events:
                self._outbox.put(self._series.warning(pod, _REASON, _words(error), datetime.now(UTC)))
            case _:
                pass


def _elements(attached: Attached, root: Path) -> list[dict[str, Any]]:
    return network_status.of_pod(attached.record, attached.result, _macs(attached, root))


def _macs(attached: Attached, root: Path) -> dict[str, str]:
    """Read the rails' hardware addresses; a sandbox that is gone has none."""
    netns = attached.record.netns
    with opened(root, netns.path, NetnsIdentity(netns.dev, netns.inode)) as fd:
        return {} if fd is None else hardware_addresses((one.ifname for one in attached.record.attachments), fd)


def _words(error: CniError) -> str:
    return f"{error} ({error.details})" if error.details else str(error)
