"""Publish the result of an ADD with rails to the API server: `network-status` on the pod, or an event if it was refused.

A rail that is lost, or back, is an event of the node and of the pods that have the rail.

A thread of its own sends each message after the runtime has its answer: no ADD waits for the API server.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from cni import rail_observers
from cni.host.errors import CniError
from cni.rail_observers import AddRefused, Observer, RailChanged, RailsAttached
from railnet.apiserver import claim_status, network_status, service_account
from railnet.apiserver.claim_status import ClaimStatus
from railnet.apiserver.client import ApiServer
from railnet.apiserver.event import Series, involved_node, involved_pod
from railnet.apiserver.network_status import NetworkStatus
from railnet.apiserver.node_transport import NodeTransport
from railnet.apiserver.outbox import Outbox
from railnet.apiserver.service_account import NotInCluster
from railnet.configuration import Configuration, Publish
from railnet.dra.prepared_claim import PreparedClaim
from railnet.kernel.namespaces.netns import NetnsIdentity, opened
from railnet.kernel.netlink.sandbox_link_state import hardware_addresses
from railnet.kubelet.dra_driver_name import DRIVER
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Attachment

_log = logging.getLogger(__name__)
_ACCOUNT = "railnet"
_REASON = "RailnetAttachFailed"
# With eight rails that are lost at once, fewer than the outbox has places.
_MOST_PODS = 24
_KINDS: dict[bool, Literal["Normal", "Warning"]] = {True: "Warning", False: "Normal"}
_LAST_SECONDS = 1.0  # at the daemon's end; the next daemon waits for this one


ClaimsOf = Callable[[Collection[PciAddress]], Sequence[PreparedClaim]]
"""Returns the prepared claims that have any of some VFs."""


@asynccontextmanager
async def publishing(configuration: Configuration, claims: ClaimsOf = lambda _: ()) -> AsyncIterator[Observer]:
    """Yield the observer of ADDs; messages that still wait at the end have one second. `claims` returns the prepared claims with any of some VFs."""
    publish = configuration.publish
    if not (publish.network_status or publish.events or configuration.offer == "dra"):
        yield rail_observers.ignore
        return
    try:
        api_server = api_server_of_daemon()
    except NotInCluster as error:
        _log.info("neither network-status nor events are sent: %s", error)
        yield rail_observers.ignore
        return
    outbox = Outbox(api_server.send)
    try:
        yield Publisher(outbox, publish, configuration.host.root, name_of_node(), claims)
    finally:
        await asyncio.to_thread(outbox.close, _LAST_SECONDS)


def api_server_of_daemon() -> ApiServer:
    """Return the client that has the rights of the daemon's service account.

    Raises:
        NotInCluster: the daemon has no service account.
    """
    account = service_account.find(os.environ)
    return ApiServer(NodeTransport(account), account.token, _ACCOUNT)


def name_of_node() -> str:
    """Return the name that this node has in the cluster."""
    return os.environ.get("NODE_NAME") or os.uname().nodename


class Publisher:
    """Makes a message of each event. A pod without a UID from the runtime gets none: another pod may have its name."""

    def __init__(
        self, outbox: Outbox, publish: Publish, root: Path, node: str, claims: ClaimsOf = lambda _: ()
    ) -> None:
        """Read sandboxes of the host seen at `root`; `node` is the node's name in the cluster. `claims` returns the claims that have one of some VFs."""
        self._claims = claims
        self._outbox, self._publish, self._root, self._node = outbox, publish, root, node
        self._series = Series(node)

    def __call__(self, event: RailsAttached | AddRefused | RailChanged) -> None:
        """Queue the message of one event."""
        if isinstance(event, RailsAttached):
            self._tell_of_claims(event)
        match event:
            case RailsAttached(record=record) if record.pod.uid and self._publish.network_status:
                self._outbox.put(NetworkStatus(record.pod, event.static, partial(_elements, event, self._root)))
            case AddRefused(pod=pod, error=error) if pod.uid and self._publish.events:
                self._outbox.put(self._series.warning(pod, _REASON, _words(error), datetime.now(UTC)))
            case RailChanged() if self._publish.events:
                self._tell_of_rail(event)
            case _:
                pass

    def _tell_of_claims(self, event: RailsAttached) -> None:
        by_vf = {attachment.vf: attachment for attachment in event.record.attachments}
        for claim in self._claims(by_vf.keys()):
            attachments = [by_vf[vf] for vf in claim.vfs if vf in by_vf]
            devices = partial(_devices, event, self._root, claim.pool, attachments, datetime.now(UTC))
            namespace, name, uid = claim.identity.namespace, claim.identity.name, claim.identity.uid
            self._outbox.put(ClaimStatus(DRIVER, namespace, name, uid, devices))

    def _tell_of_rail(self, event: RailChanged) -> None:
        now, kind = datetime.now(UTC), _KINDS[event.warning]
        pods = [involved_pod(pod) for pod in event.pods if pod.uid][:_MOST_PODS]
        for about in (*pods, involved_node(self._node)):
            self._outbox.put(self._series.event(about, event.reason, event.text, now, kind))


def _elements(attached: RailsAttached, root: Path) -> list[dict[str, Any]]:
    return network_status.of_pod(attached.record, attached.result, macs_of_rails(attached, root))


def _devices(
    attached: RailsAttached, root: Path, pool: str, attachments: Sequence[Attachment], since: datetime
) -> list[dict[str, Any]]:
    return claim_status.of_devices(DRIVER, pool, attachments, macs_of_rails(attached, root), since)


def macs_of_rails(attached: RailsAttached, root: Path) -> dict[str, str]:
    """Read the hardware addresses of a sandbox's rails; empty if the sandbox is gone."""
    netns = attached.record.netns
    with opened(root, netns.path, NetnsIdentity(netns.dev, netns.inode)) as fd:
        return (
            {}
            if fd is None
            else hardware_addresses((attachment.ifname for attachment in attached.record.attachments), fd)
        )


def _words(error: CniError) -> str:
    return f"{error} ({error.details})" if error.details else str(error)
