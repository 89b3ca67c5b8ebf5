"""The device plugin API that kubelet calls: decode, call the pure modules, encode. One service for each pool.

Not here: the registration with kubelet (`deviceplugin.registration`), and any decision.

Source: kubernetes/kubelet, pkg/apis/deviceplugin/v1beta1/api.proto.
"""
# ruff: noqa: ARG002, N802 (gRPC calls these methods by the names and with the arguments of the .proto file)

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NoReturn

import grpc.aio

from deviceplugin.allocation import Allocation, PoolOffer, allocate
from deviceplugin.devices import OfferedVf, Offers, differing
from deviceplugin.pool_selection import Pool
from deviceplugin.preference import prefer
from deviceplugin.prestart_attachment_check import (
    NOT_ASKED,
    FindAttachedOwner,
    Holders,
    HostNetworkPods,
    refusal,
    without_attachment,
)
from railnet.errors import NotOurs, NotReady, RailnetError
from railnet.kubelet import checkpoint
from railnet.kubelet.api import deviceplugin_pb2 as api
from railnet.kubelet.api import deviceplugin_pb2_grpc as grpc_api
from railnet.kubelet.checkpoint_file import CheckpointReads
from railnet.vf.inventory import RdmaDevice
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import VfTable

_log = logging.getLogger(__name__)

_Context = grpc.aio.ServicerContext[Any, Any]

# One attach or detach changes the table several times within milliseconds (owner, netdev, RDMA device): kubelet gets the result only,
# not each step.
_SETTLE_SECONDS = 0.1

# Kubelet never repeats an Allocate that was refused: the pod fails for good (UnexpectedAdmissionError, kubernetes/kubernetes
# pkg/kubelet/lifecycle/predicate.go). It waits for the answer without a deadline (pkg/kubelet/cm/devicemanager/endpoint.go), in the loop
# in which it starts and ends all pods. So Allocate and GetPreferredAllocation answer at once, from what is known: they await nothing,
# read no file, and take no lock (docs/decisions/0038).

_REFUSAL_BYTES = (
    1500  # a message of gRPC is a header, of which 8 KiB are taken, with each byte that is not ASCII as three
)

_CODES: dict[type[RailnetError], grpc.StatusCode] = {
    NotOurs: grpc.StatusCode.NOT_FOUND,
    NotReady: grpc.StatusCode.UNAVAILABLE,
}


FindPodsOnHostNetwork = Callable[[Collection[str]], Awaitable[frozenset[str]]]
"""Returns which of some pods, by UID, are on the host's network. Raises NotReady, OSError: the container runtime does not say."""


_NONE: Mapping[PciAddress, str] = MappingProxyType({})


async def _no_runtime(_: Collection[str]) -> frozenset[str]:
    return frozenset()


class PoolService(grpc_api.DevicePluginServicer):
    """Serves one pool's VFs. Several streams may be open, since a restarted kubelet dials again."""

    def __init__(  # noqa: PLR0913 - composed once
        self,
        pool: Pool,
        pools: Sequence[Pool],
        table: VfTable,
        attached: FindAttachedOwner,
        kubelet_checkpoint: CheckpointReads,
        node_reason: Callable[[], str | None] = lambda: None,
        *,
        on_host_network: FindPodsOnHostNetwork = _no_runtime,
        claimed: Callable[[], Mapping[PciAddress, str]] = lambda: _NONE,
        lists: bool = True,
    ) -> None:
        """Serve `pool`, one of `pools`.

        Args:
            pool: the pool to serve.
            pools: all pools of the node in their order.
            table: the facts and owners of the VFs; each change is streamed.
            attached: returns the owner to which a VF is attached; called before a container starts.
            kubelet_checkpoint: kubelet's device checkpoint.
            node_reason: returns why no VF of the node may be used now, or None; call `changed()` when its result changes.
            on_host_network: returns which pods are on the host's network; called before a container starts whose VF is not attached.
            claimed: returns the VFs of prepared claims, each with the reason why no other pod may get it: another object after each
                change, after which `changed()` is called.
            lists: whether kubelet is told of the VFs; if not, kubelet has no devices to allocate, and containers that have VFs may start again.
        """
        self.pool = pool
        self._offers = Offers(pools, pool)
        self._table = table
        self._attached = attached
        self._checkpoint = kubelet_checkpoint
        self.node_reason = node_reason
        self._on_host_network = on_host_network
        self._claimed, self._lists = claimed, lists
        self._listed: tuple[Sequence[OfferedVf], Mapping[PciAddress, str], tuple[OfferedVf, ...]] = ((), _NONE, ())
        self._streams: set[_Stream] = set()
        self._told: api.DevicePluginOptions | None = None
        self._seen: tuple[OfferedVf, ...] = ()
        self._last_rdma: dict[
            PciAddress, RdmaDevice
        ] = {}  # the RDMA device that each VF showed last, with its uverbs device

    kind, versions = "DevicePlugin", ("v1beta1",)

    @property
    def name(self) -> str:
        """The pool's resource."""
        return self.pool.resource

    @property
    def watched(self) -> bool:
        """Whether kubelet has a stream open."""
        return bool(self._streams)

    @property
    def outdated(self) -> bool:
        """Whether kubelet has asked for the options, and they differ by now: it asks once for each registration."""
        return self._told is not None and self._told != self._options()

    def serve_on(self, server: grpc.aio.Server) -> None:
        """Have a server serve this API."""
        grpc_api.add_DevicePluginServicer_to_server(self, server)

    @property
    def streams(self) -> int:
        """The number of open ListAndWatch streams; with none, kubelet does not know this pool's devices."""
        return len(self._streams)

    def offers(self) -> tuple[OfferedVf, ...]:
        """Return the VFs that the pool offers now."""
        offered = self._offers.now(self._table, self.node_reason())
        if offered is not self._seen:
            self._last_rdma.update(
                (offer.vf.address, device)
                for _, offer in differing(self._seen, offered)
                if offer is not None and (device := offer.vf.rdma) is not None and device.uverbs
            )
            self._seen = offered
        return offered

    def offer(self) -> PoolOffer:
        """Return what the pool offers now, with the RDMA devices that its VFs had last."""
        return PoolOffer(self.pool, self.offers(), self._last_rdma)

    def listed(self) -> tuple[OfferedVf, ...]:
        """Return the VFs that kubelet is told of: none of a node that offers them by DRA; the VFs of prepared claims are unhealthy."""
        offered, claimed = self.offers(), self._claimed()
        if not self._lists:
            return ()
        if not claimed:
            return offered
        before = self._listed
        if before[0] is not offered or before[1] is not claimed:
            listed = tuple(_withheld(vf, claimed.get(vf.vf.address)) for vf in offered)
            self._listed = before = (offered, claimed, listed)
        return before[2]

    def changed(self, *, at_once: bool = False) -> None:
        """Compute the offered VFs again, and stream them if they differ; `at_once` waits for no further changes."""
        for stream in self._streams:
            stream.changed.set()
            if at_once:
                stream.at_once.set()

    async def GetDevicePluginOptions(self, request: api.Empty, context: _Context) -> api.DevicePluginOptions:
        """Ask kubelet for GetPreferredAllocation, and for PreStartContainer unless pods have VFs of this resource by claims.

        Kubelet looks for the devices of a container in its own checkpoint before it calls PreStartContainer. Of a pod that has the resource by
        DRA it finds none, and the container fails (kubernetes/kubernetes 1.37, pkg/kubelet/cm/devicemanager/manager.go,
        callPreStartContainerIfNeeded). It asks for the options once for each registration, so there is a new one after the last claim's end.
        """
        self._told = self._options()
        return self._told

    def _options(self) -> api.DevicePluginOptions:
        pre_start = self._lists and not self._claimed()
        return api.DevicePluginOptions(pre_start_required=pre_start, get_preferred_allocation_available=True)

    async def ListAndWatch(self, request: api.Empty, context: _Context) -> AsyncIterator[api.ListAndWatchResponse]:
        """Yield the list of devices, and again whenever it differs; end when kubelet disconnects or the server stops."""
        with self._stream() as stream:
            sent: tuple[OfferedVf, ...] | None = None
            while True:
                stream.clear()
                offered = self.listed()
                if sent is None or any(_shown(old) != _shown(new) for old, new in differing(sent, offered)):
                    self._log(offered)
                    yield api.ListAndWatchResponse(devices=map(_device, offered))
                sent = offered
                await stream.settled()

    async def GetPreferredAllocation(
        self, request: api.PreferredAllocationRequest, context: _Context
    ) -> api.PreferredAllocationResponse:
        """Return the preferred devices for each container; kubelet follows the preference as far as it can."""
        offered = self.listed()
        return api.PreferredAllocationResponse(
            container_responses=[_preferred(offered, container) for container in request.container_requests]
        )

    async def Allocate(self, request: api.AllocateRequest, context: _Context) -> api.AllocateResponse:
        """Return each container's device nodes and environment."""
        try:
            answers = self._allocations([tuple(container.devices_ids) for container in request.container_requests])
        except RailnetError as error:
            await self._refuse(context, _CODES.get(type(error), grpc.StatusCode.FAILED_PRECONDITION), str(error))
        return api.AllocateResponse(container_responses=[_response(answer) for answer in answers])

    async def PreStartContainer(
        self, request: api.PreStartContainerRequest, context: _Context
    ) -> api.PreStartContainerResponse:
        """Refuse a container whose VFs are not attached to its pod."""
        ids = tuple(request.devices_ids)
        holders = await self._holders(ids)
        unattached = without_attachment(ids, self._attached, holders)
        on_host = await self._on_host(unattached) if unattached else NOT_ASKED
        words = refusal(ids, self._attached, holders, on_host)
        if words is not None:
            await self._refuse(context, grpc.StatusCode.FAILED_PRECONDITION, words)
        return api.PreStartContainerResponse()

    def _allocations(self, containers: Sequence[tuple[str, ...]]) -> list[Allocation]:
        offered = self.listed()
        return [allocate(self.pool, offered, ids, self._last_rdma) for ids in containers]

    async def _on_host(self, pod_uids: Collection[str]) -> HostNetworkPods:
        try:
            return HostNetworkPods(await self._on_host_network(pod_uids))
        except (NotReady, OSError) as error:
            return HostNetworkPods(why_unknown=str(error))

    @contextmanager
    def _stream(self) -> Iterator["_Stream"]:
        stream = _Stream()
        forget = self._table.observe(stream.changed.set)
        self._streams.add(stream)
        try:
            yield stream
        finally:
            self._streams.remove(stream)
            forget()

    async def _holders(self, ids: Sequence[str]) -> dict[str, Holders]:
        try:
            entries = await self._checkpoint.read()
        except (NotReady, ValueError, OSError) as error:
            _log.warning(
                "%s: containers start without a check against kubelet's checkpoint: %s", self.pool.resource, error
            )
            return dict.fromkeys(ids, Holders(why_unknown=str(error) or "no reason is known"))
        resource = self.pool.resource
        return {id_: Holders(frozenset(checkpoint.holders(entries, resource, id_))) for id_ in ids}

    def _log(self, offered: Sequence[OfferedVf]) -> None:
        reasons = [offer.reason for offer in offered if offer.reason]
        _log.info("%s: %d devices, %d healthy", self.pool.resource, len(offered), len(offered) - len(reasons))
        for reason in dict.fromkeys(reasons):
            _log.warning("%s: %s", self.pool.resource, reason)

    async def _refuse(self, context: _Context, code: grpc.StatusCode, words: str) -> NoReturn:
        words = words.encode()[:_REFUSAL_BYTES].decode(errors="ignore")
        _log.warning("%s: refused: %s", self.pool.resource, words)
        await context.abort(code, words)


class _Stream:
    """An open ListAndWatch stream waits for these: a change, and a change that waits for no further changes."""

    def __init__(self) -> None:
        self.changed, self.at_once = asyncio.Event(), asyncio.Event()

    def clear(self) -> None:
        self.changed.clear()
        self.at_once.clear()

    async def settled(self) -> None:
        """Wait for a change, then for those that come with it."""
        await self.changed.wait()
        timer = asyncio.get_running_loop().call_later(_SETTLE_SECONDS, self.at_once.set)
        try:
            await self.at_once.wait()
        finally:
            timer.cancel()


def _withheld(offer: OfferedVf, claimed: str | None) -> OfferedVf:
    return offer if claimed is None else replace(offer, reason=claimed, lasting=claimed)


def _shown(offer: OfferedVf | None) -> tuple[str, bool, int] | None:
    """Return what kubelet gets of one VF: the id, whether it is healthy, and the NUMA node."""
    return None if offer is None else (offer.id, offer.reason is None, offer.vf.numa_node)


def _device(offer: OfferedVf) -> api.Device:
    node = offer.vf.numa_node
    return api.Device(
        ID=offer.id,
        health="Healthy" if offer.reason is None else "Unhealthy",
        topology=api.TopologyInfo(nodes=[api.NUMANode(ID=node)]) if node >= 0 else None,
    )


def _preferred(
    offered: Sequence[OfferedVf], container: api.ContainerPreferredAllocationRequest
) -> api.ContainerPreferredAllocationResponse:
    available, settled = frozenset(container.available_deviceIDs), frozenset(container.must_include_deviceIDs)
    return api.ContainerPreferredAllocationResponse(
        deviceIDs=prefer(offered, available, settled, container.allocation_size)
    )


def _response(allocation: Allocation) -> api.ContainerAllocateResponse:
    return api.ContainerAllocateResponse(
        envs=allocation.envs,
        devices=[api.DeviceSpec(container_path=n, host_path=n, permissions="rw") for n in allocation.device_nodes],
    )
