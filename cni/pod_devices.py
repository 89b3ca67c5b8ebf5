"""Find the devices that kubelet gave to a pod: in its two files, or from its pod-resources socket if a file cannot answer.

One file has the devices of the device plugin, the other those of claims.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

from cni.daemon_exhaustion import is_own_shortage
from cni.host.errors import TRY_AGAIN, CniError
from railnet.errors import NotOurs, NotReady
from railnet.kernel.threads.file_reads import read_in_time
from railnet.kernel.waiting import until
from railnet.kubelet import checkpoint, dra_manager_state, podresources
from railnet.kubelet.checkpoint_file import CheckpointReads
from railnet.kubelet.checkpointed_responses import ContainerAllocation
from railnet.kubelet.dra_driver_name import DRIVER
from railnet.kubelet.dra_manager_state_file import DraManagerStateReads
from railnet.vf.dra_device_name import vf_of
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import SandboxPod

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.02
_UNKNOWN = "it is unknown whether this pod asked for a rail: neither kubelet's files nor kubelet answer"
_NO_UID = "the runtime did not pass K8S_POD_UID in CNI_ARGS"


class PodClaims(NamedTuple):
    """What is known of pods' claims.

    Attributes:
        state: kubelet's `dra_manager_state`.
        prepared: returns what the containers of a claim got, by the claim's UID; nothing if the claim is not recorded.
        resource_of: returns the resource of the pool that a VF belongs to; None if it belongs to none.
        any_recorded: returns whether there is a record of any claim, also an unreadable one. A claim is recorded before its pod's sandbox is
            made, so without a record no pod has a claim.
    """

    state: DraManagerStateReads
    prepared: Callable[[str], tuple[ContainerAllocation, ...]]
    resource_of: Callable[[PciAddress], str | None]
    any_recorded: Callable[[], bool] = lambda: True


class PodDevices:
    """Asks what kubelet knows of pods' devices; the two files are file reads, the socket is the fallback."""

    def __init__(
        self,
        device_plugins: Path,
        socket: Callable[[], AbstractAsyncContextManager[Path]],
        resources: frozenset[str],
        kubelet_seconds: float,
        watched: Callable[[], bool] = lambda: True,
        claims: PodClaims | None = None,
    ) -> None:
        """`device_plugins` has kubelet's checkpoint, and `socket` opens pod-resources where it listens now. `watched` returns whether kubelet holds a stream to each of our device plugins open. Without `claims`, no pod has a claim."""
        self._watched = watched
        self._checkpoint = CheckpointReads(device_plugins, read_in_time)
        self._socket = socket
        self._resources = resources
        self._seconds = kubelet_seconds
        self._claims = claims

    async def vfs(self, pod: SandboxPod) -> tuple[PciAddress, ...]:
        """Return the VFs of a pod over all its containers; empty for a pod without a rail.

        Raises:
            CniError: code 11, neither the checkpoint nor kubelet answers.
            NotOurs: kubelet names a device that is no PCI address.
        """
        return vfs_of(await self.of(pod))

    async def of(self, pod: SandboxPod) -> list[tuple[str, str]]:
        """Return the devices of a pod, as pairs of resource and device id.

        Raises:
            CniError: code 11, neither the checkpoint nor kubelet answers. OSError: the daemon has no descriptor for it.
        """
        if not pod.name and not pod.uid:
            return []  # no Kubernetes pod, so kubelet gave it nothing
        checkpointed, claimed = await asyncio.gather(
            _outcome(self._from_checkpoint(pod.uid)), _outcome(self._from_claims(pod.uid))
        )
        reasons = [reason for reason in (checkpointed.trouble, claimed.trouble) if reason is not None]
        known = [*checkpointed.devices, *claimed.devices]
        if not reasons:
            return known
        # It lists no init containers, so a VF that only one of those has stays unknown: deviceplugin.prestart_attachment_check says so.
        _log.warning("pod %s/%s: %s; asking kubelet", pod.namespace, pod.name, reasons[0])
        try:
            async with self._socket() as socket:
                listed = await podresources.devices(socket, pod.namespace, pod.name, self._resources, self._seconds)
            if claimed.trouble is not None and not listed.devices and not listed.has_claims:
                await self._require_no_claim(pod.uid, claimed.trouble)
            return self._named(listed.devices)
        except (NotReady, OSError) as error:
            if isinstance(error, OSError) and is_own_shortage(error):
                raise
            if await self._surely_names_none(pod.uid, checkpointed, claimed):
                return known
            raise CniError(TRY_AGAIN, _UNKNOWN, "; ".join(map(str, (*reasons, error)))) from None

    async def refuse_held_by_other_pods(self, pod: SandboxPod, holders: Mapping[PciAddress, str]) -> None:
        """Refuse a VF that is attached to another pod if kubelet's files still give it to that pod: it would not return.

        If the files do not know that pod any more, its sandbox is being taken down, and the VF will return.

        Args:
            pod: the pod that kubelet gave the VFs to now.
            holders: the VFs that are attached, with the UID of the pod that has each.

        Raises:
            NotOurs: there is such a VF. NotReady: the VF is of a claim that both pods use.
        """
        others = {vf: uid for vf, uid in holders.items() if uid != pod.uid}
        if not others:
            return
        await self._refuse_claimed(pod, others)
        try:
            entries = await self._checkpoint.read()
        except (NotReady, OSError, ValueError):
            return  # unknown: the VF may return, so this request may wait for it
        for vf, uid in others.items():
            if uid and str(vf) in {id_ for _, id_ in checkpoint.devices(entries, uid, self._resources)}:
                raise NotOurs(
                    f"kubelet's checkpoint names VF {vf} for this pod, and for pod {uid}, which has it: restart kubelet, "
                    "and delete this pod"
                )

    async def until_watched(self) -> None:
        """Wait until kubelet has found a daemon that has just started, or for `kubelet_seconds`.

        kubelet looks for plugins once a second. Before it has found ours it calls no PreStartContainer: the container
        fails, and kubelet starts it again only ten seconds later.
        """
        await until(self._watched, self._seconds, _LOOK_SECONDS)

    async def allocations(self, pod: SandboxPod) -> tuple[ContainerAllocation, ...]:
        """Return the answers that kubelet got to Allocate and Prepare for the pod's containers; none if they are unknown.

        Only kubelet's checkpoint has those to Allocate. If a file is not understood, VFs are attached without this comparison.
        """
        try:
            answers = await self._checkpoint.allocations(pod.uid, self._resources)
            claims = await self._claims_of(pod.uid)
        except (OSError, ValueError) as error:
            _log.warning("pod %s/%s: %s; its devices are not compared", pod.namespace, pod.name, error)
            return ()
        if self._claims is None:
            return answers
        return (*answers, *(answer for claim in claims for answer in self._claims.prepared(claim.claim_uid)))

    async def _from_checkpoint(self, pod_uid: str) -> list[tuple[str, str]]:
        if not pod_uid:
            raise NotReady(_NO_UID)
        return checkpoint.devices(await self._checkpoint.read(), pod_uid, self._resources)

    async def _from_claims(self, pod_uid: str) -> list[tuple[str, str]]:
        """Return the devices of a pod's claims.

        Raises:
            CniError: code 11, the driver has not prepared a claim. NotReady: the runtime did not pass the pod's UID. ValueError, OSError:
                the file does not answer.
        """
        claims = await self._claims_of(pod_uid)
        unprepared = next((claim for claim in claims if not claim.devices), None)
        if unprepared is not None:
            raise CniError(
                TRY_AGAIN,
                f"{unprepared} of this pod is not prepared: kubelet's {dra_manager_state.NAME} has no device of {DRIVER} for it",
            )
        return self._named([(DRIVER, device) for claim in claims for device in claim.devices])

    async def _claims_of(self, pod_uid: str) -> tuple[dra_manager_state.PreparedDevices, ...]:
        claims = await self._all_claims()
        if claims and not pod_uid:
            raise NotReady(_NO_UID)
        return dra_manager_state.of_pod(claims, pod_uid)

    async def _all_claims(self) -> tuple[dra_manager_state.PreparedDevices, ...]:
        if self._claims is None:
            return ()
        try:
            return await self._claims.state.read()
        except (OSError, ValueError) as error:
            if self._claims.any_recorded():
                raise
            _log.warning("%s; no claim is prepared, so no pod has one", error)
            return ()

    def _named(self, devices: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return devices of claims as if the device plugin had given them: their pool's resource, and the VF's PCI address."""
        return sorted(
            {self._as_of_pool(device) if driver == DRIVER else (driver, device) for driver, device in devices}
        )

    def _as_of_pool(self, device: str) -> tuple[str, str]:
        try:
            vf = vf_of(device)
        except ValueError as error:
            raise NotOurs(f"kubelet names a device of another driver under ours: {error}") from None
        resource = None if self._claims is None else self._claims.resource_of(vf)
        return resource or DRIVER, str(vf)

    async def _surely_names_none(self, pod_uid: str, checkpointed: "_Outcome", claimed: "_Outcome") -> bool:
        """Return whether each file that does not answer surely has nothing for a pod."""
        if checkpointed.trouble and not await self._checkpoint.surely_names_none(pod_uid, self._resources):
            return False
        return claimed.trouble is None or self._claims is None or await self._claims.state.surely_names_none(pod_uid)

    async def _require_no_claim(self, pod_uid: str, trouble: Exception) -> None:
        """Make sure that the file of claims, which does not answer, surely has none for a pod: kubelet may list no claims.

        Raises:
            CniError: code 11, it may have one.
        """
        if self._claims is not None and not await self._claims.state.surely_names_none(pod_uid):
            raise CniError(TRY_AGAIN, _UNKNOWN, f"{trouble}; kubelet lists no claim of any pod")

    async def _refuse_claimed(self, pod: SandboxPod, others: Mapping[PciAddress, str]) -> None:
        """Refuse a VF that the pod which has it now has by a claim: a VF is in one sandbox at a time.

        Raises:
            NotReady: this pod shares the claim. NotOurs: the claim is another one.
        """
        try:
            claims = await self._all_claims()
        except (OSError, ValueError):
            return
        for claim in claims:
            for vf in filter(None, map(_vf, claim.devices)):
                uid = others.get(vf)
                if uid is None or uid not in claim.pod_uids:
                    continue
                if pod.uid in claim.pod_uids:
                    raise NotReady(
                        f"VF {vf} is of {claim}, which this pod shares with pod {uid}, and that pod has it: a VF is in one pod at a "
                        "time; this pod gets it when that pod has ended, or give each pod a claim of its own (a ResourceClaimTemplate)"
                    )
                raise NotOurs(
                    f"kubelet gives VF {vf} to this pod, and by {claim} to pod {uid}, which has it: has another program registered a driver "
                    f"{DRIVER}? delete this pod"
                )


class _Outcome(NamedTuple):
    """What a file of kubelet says of a pod, or why it says nothing."""

    devices: list[tuple[str, str]]
    trouble: Exception | None = None


async def _outcome(reading: Awaitable[list[tuple[str, str]]]) -> _Outcome:
    try:
        return _Outcome(await reading)
    except (NotReady, OSError, ValueError) as error:
        if isinstance(error, OSError) and is_own_shortage(error):
            raise
        return _Outcome([], error)


def _vf(device: str) -> PciAddress | None:
    try:
        return vf_of(device)
    except ValueError:
        return None


def vfs_of(devices: list[tuple[str, str]]) -> tuple[PciAddress, ...]:
    """Return the VFs that these devices are, in PCI order.

    Raises:
        NotOurs: one is no PCI address.
    """
    try:
        # a set: the same VF may be listed for two containers, or under two resources
        return tuple(sorted({PciAddress.parse(device) for _, device in devices}))
    except ValueError as error:
        raise NotOurs(f"kubelet names a device of another plugin under our resource: {error}") from None
