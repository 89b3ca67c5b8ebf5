"""The DRA API that kubelet calls: decode, read the claim, call the pure modules, record, encode.

Not here: the registration with kubelet (`deviceplugin.registration`), and any decision.

Kubelet calls Prepare before it makes a pod's sandbox, and Unprepare after the claim's last pod on this node has ended. It repeats a call
that fails, gives up a call after 45 s, and after its own restart prepares every claim of a new sandbox again (kubernetes/kubernetes,
pkg/kubelet/cm/dra/manager.go, plugin/dra_plugin.go). docs/decisions/0081 says what is done in which order.
"""
# ruff: noqa: ARG002, N802 (gRPC calls these methods by the names and with the arguments of the .proto file)

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import grpc.aio

from cni.sandbox_locks import PerKey
from deviceplugin.allocation import PoolOffer
from railnet.apiserver.client import Absent, RequestFailed
from railnet.apiserver.request import ApiObject, JsonObject
from railnet.apiserver.service_account import NotInCluster
from railnet.dra import cdi_spec, claim, device_health
from railnet.dra.cdi_files import CdiFiles
from railnet.dra.claim import AllocatedClaim, ClaimIdentity
from railnet.dra.device_health import DeviceHealthService
from railnet.dra.device_metadata_files import DeviceMetadataFiles
from railnet.dra.devices import DraDevice
from railnet.dra.preparation import Uses, prepare
from railnet.dra.prepared_claim import PreparedClaim, is_uid
from railnet.dra.prepared_claim_files import PreparedClaims
from railnet.errors import NotReady, RailnetError
from railnet.kernel.threads.bounded_threads import BoundedThreads
from railnet.kubelet.api import dra_pb2 as api
from railnet.kubelet.api import dra_pb2_grpc as grpc_api
from railnet.kubelet.api import drahealth_pb2_grpc as health_api
from railnet.kubelet.dra_driver_name import DRIVER
from railnet.vf.dra_device_name import device_name
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import Owner

_log = logging.getLogger(__name__)

_Context = grpc.aio.ServicerContext[Any, Any]

_READ_SECONDS = (
    10.0  # for the API server: kubelet gives up the whole call after 45 s, and what it then logs has no reason
)
_MOST_THREADS = 8  # of their own: a slow API server must not take those that the rest of the daemon works in
_WORDS = 4000  # characters; kubelet puts them into an event and the pod's status

ReadClaim = Callable[[ClaimIdentity], JsonObject]
"""Reads a claim from the API server; blocks. Raises RequestFailed, NotInCluster, OSError."""


def address_of(identity: ClaimIdentity) -> ApiObject:
    """Return where the API server has a claim. Raises ValueError: a name is none."""
    return ApiObject("resource.k8s.io/v1", "resourceclaims", identity.name, identity.namespace)


class NodeFacts(NamedTuple):
    """What the service asks of the rest of the daemon.

    Attributes:
        pool: the name of this node's pool, which is the node's.
        offers: returns what each pool of VFs offers now.
        attached: returns the sandbox that a VF is attached to.
        by_pods: returns the UID of the pod to which kubelet's device checkpoint gives a VF. Raises RailnetError, OSError, ValueError.
        by_claims: returns the claim that has a VF, in words, by kubelet's own file, without the claim of a UID. It raises as `by_pods`.
        why_closed: why this node prepares no new claim; None if it does.
        devices: returns the devices of this node as its ResourceSlices have them.
        node_reason: returns why no VF of this node can serve a pod now; None if VFs can.
    """

    pool: str
    offers: Callable[[], Sequence[PoolOffer]]
    attached: Callable[[PciAddress], Owner | None]
    by_pods: Callable[[], Awaitable[Mapping[PciAddress, str]]]
    by_claims: Callable[[str], Awaitable[Mapping[PciAddress, str]]]
    devices: Callable[[], Mapping[PciAddress, DraDevice]] = dict
    why_closed: str | None = None
    node_reason: Callable[[], str | None] = lambda: None


class DraService(grpc_api.DRAPluginServicer):
    """Prepares the claims of this node and unprepares them, one call at a time for each claim."""

    def __init__(  # noqa: PLR0913 - composed once
        self,
        facts: NodeFacts,
        claims: PreparedClaims,
        cdi: CdiFiles,
        metadata: DeviceMetadataFiles,
        read_claim: ReadClaim,
        changed: Callable[[], None] = lambda: None,
        *,
        read_seconds: float = _READ_SECONDS,
        health: DeviceHealthService | None = None,
    ) -> None:
        """Serve; `changed` is called after a claim has got VFs, or has none any more. `health` is served on the same socket."""
        self._facts, self._claims, self._cdi, self._metadata = facts, claims, cdi, metadata
        self._read_claim, self._changed, self._read_seconds = read_claim, changed, read_seconds
        self._health = health
        self._locks = PerKey()
        self._threads = BoundedThreads(_MOST_THREADS)

    kind, name = "DRAPlugin", DRIVER
    watched, outdated = True, False
    """Kubelet keeps no stream to a DRA driver: that it has registered the driver is all that can be known."""

    @property
    def versions(self) -> tuple[str, ...]:
        """The services, as kubelet names them."""
        return ("v1.DRAPlugin",) if self._health is None else ("v1.DRAPlugin", device_health.SERVICE)

    def serve_on(self, server: grpc.aio.Server) -> None:
        """Have a server serve this API, and the one of the devices' health."""
        grpc_api.add_DRAPluginServicer_to_server(self, server)
        if self._health is not None:
            health_api.add_DRAResourceHealthServicer_to_server(self._health, server)

    async def NodePrepareResources(
        self, request: api.NodePrepareResourcesRequest, context: _Context
    ) -> api.NodePrepareResourcesResponse:
        """Prepare each claim; a claim that is refused costs no other claim of the call."""
        answers = await asyncio.gather(*(self._answer(_identity(asked)) for asked in request.claims))
        return api.NodePrepareResourcesResponse(
            claims={asked.uid: answer for asked, answer in zip(request.claims, answers, strict=True)}
        )

    async def NodeUnprepareResources(
        self, request: api.NodeUnprepareResourcesRequest, context: _Context
    ) -> api.NodeUnprepareResourcesResponse:
        """Unprepare each claim, from its record alone: the claim may be gone from the API server."""
        answers = await asyncio.gather(*(self._unprepared(_identity(asked)) for asked in request.claims))
        return api.NodeUnprepareResourcesResponse(
            claims={asked.uid: answer for asked, answer in zip(request.claims, answers, strict=True)}
        )

    async def _answer(self, identity: ClaimIdentity) -> api.NodePrepareResourceResponse:
        answer = api.NodePrepareResourceResponse()
        with _refused_in_words(identity, "prepared", answer):
            _check_uid(identity)
            async with self._locks.held(identity.uid):
                prepared = await self._prepared(identity)
                await self._threads.run_to_the_end("CDI", partial(self._write, prepared))
            answer.devices.extend(_devices(prepared))
        return answer

    def _write(self, prepared: PreparedClaim) -> None:
        """Write what the container runtime reads; the CDI file, which names the others, is the last."""
        self._metadata.write(prepared, self._facts.devices())
        self._cdi.write(prepared)

    def _remove(self, uid: str) -> None:
        self._cdi.remove(uid)
        self._metadata.remove(uid)

    async def _prepared(self, identity: ClaimIdentity) -> PreparedClaim:
        """Return the record of a claim, which is on disk.

        Raises:
            RailnetError, OSError: the claim is refused.
        """
        self._refuse_a_pod_without_its_vf(identity)
        recorded = self._claims.get(identity.uid)
        try:
            allocated = claim.read(await self._read(identity), identity, self._facts.pool)
        except _NotRead:
            if recorded is None:
                raise
            return recorded  # as it was prepared before: the allocation of a claim that is in use does not change
        if recorded is not None and recorded.fits(allocated):
            return recorded
        if self._facts.why_closed is not None:
            raise NotReady(f"{identity} is not prepared: {self._facts.why_closed}")
        return await self._newly_prepared(allocated)

    def _refuse_a_pod_without_its_vf(self, identity: ClaimIdentity) -> None:
        """Refuse if the runtime would make the pod's sandbox without Railnet, for example: kubelet asks no driver again before containers start."""
        why = self._facts.node_reason()
        if why is not None:
            raise NotReady(f"{identity} is not prepared: {why}; kubelet tries again")

    async def _newly_prepared(self, allocated: AllocatedClaim) -> PreparedClaim:
        identity, facts = allocated.identity, self._facts
        by_pods, by_kubelet = await facts.by_pods(), await facts.by_claims(identity.uid)
        # No await from here on: what was checked is still so when the record is written.
        by_claims = {**by_kubelet, **self._claims.users_but(identity.uid)}
        prepared = prepare(allocated, facts.pool, facts.offers(), Uses(by_claims, by_pods, facts.attached))
        self._claims.write(prepared)
        self._changed()
        _log.info("%s is prepared: %s", identity, ", ".join(map(device_name, prepared.vfs)))
        return prepared

    async def _read(self, identity: ClaimIdentity) -> JsonObject:
        """Read a claim within the time that there is.

        Raises:
            _NotRead: the API server does not answer, or not as it should. NotReady: it does not have the claim.
        """
        try:
            async with asyncio.timeout(self._read_seconds):
                return await self._threads.run("claims", partial(self._read_claim, identity))
        except Absent as error:
            raise NotReady(f"{identity} is not in the API server: it was deleted ({error})") from None
        except TimeoutError:
            why = f"the API server did not answer within {self._read_seconds:g} s"
        except (RequestFailed, NotInCluster, OSError, ValueError) as error:
            why = str(error)
        raise _NotRead(
            f"{identity} cannot be read, so it is not known which devices it has: {why}; kubelet tries again"
        )

    async def _unprepared(self, identity: ClaimIdentity) -> api.NodeUnprepareResourceResponse:
        answer = api.NodeUnprepareResourceResponse()
        with _refused_in_words(identity, "unprepared", answer):
            _check_uid(identity)
            async with self._locks.held(identity.uid):
                recorded = self._claims.get(identity.uid)
                _refuse_attached(identity, () if recorded is None else recorded.vfs, self._facts.attached)
                await self._threads.run_to_the_end("CDI", partial(self._remove, identity.uid))
                self._claims.remove(identity.uid)
            if recorded is not None:
                _log.info("%s is unprepared: %s", identity, ", ".join(map(device_name, recorded.vfs)))
                self._changed()
        return answer


class _NotRead(NotReady):
    """The API server's words about a claim are not known."""


@contextmanager
def _refused_in_words(
    identity: ClaimIdentity,
    what: str,
    answer: api.NodePrepareResourceResponse | api.NodeUnprepareResourceResponse,
) -> Iterator[None]:
    """Put an error's words into a claim's answer: an error of the call would cost the other claims their answers."""
    try:
        yield
    except (RailnetError, OSError) as error:
        words = str(error) if isinstance(error, RailnetError) else f"{identity} is not {what}: {error}"
        _log.warning("not %s: %s", what, words)
        answer.error = words[:_WORDS]


def _identity(asked: api.Claim) -> ClaimIdentity:
    return ClaimIdentity(asked.namespace, asked.name, asked.uid)


def _check_uid(identity: ClaimIdentity) -> None:
    if not is_uid(identity.uid):
        raise NotReady(f"{identity} has the UID {identity.uid!r:.80}, which is none")


def _refuse_attached(
    identity: ClaimIdentity, vfs: Iterable[PciAddress], attached: Callable[[PciAddress], Owner | None]
) -> None:
    for vf in vfs:
        owner = attached(vf)
        if owner is not None:
            raise NotReady(
                f"{identity} is not unprepared: device {device_name(vf)} is attached to sandbox {owner.container_id} of pod "
                f"{owner.pod_uid or 'with an unknown UID'}; kubelet tries again after the sandbox's end"
            )


def _devices(prepared: PreparedClaim) -> list[api.Device]:
    """Return a claim's devices. Of a request, the first one has the CDI device that is for all of them.

    Kubelet gives a container the CDI devices of the requests that it names, and of all if it names none (pkg/kubelet/cm/dra/claiminfo.go,
    cdiDevicesAsList).
    """
    uid = prepared.identity.uid
    return [
        _device(prepared, request.name, vf, [] if position else [cdi_spec.device_of_request(uid, request.name)])
        for request in prepared.requests
        for position, vf in enumerate(request.vfs)
    ]


def _device(prepared: PreparedClaim, request: str, vf: PciAddress, cdi_devices: Sequence[str]) -> api.Device:
    return api.Device(
        request_names=[request], pool_name=prepared.pool, device_name=device_name(vf), cdi_device_ids=cdi_devices
    )
