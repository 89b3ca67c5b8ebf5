"""kubelet's DRA manager: prepares the claims of a pod before its sandbox is made, and unprepares them after the last pod.

Form and order: pkg/kubelet/cm/dra/manager.go and state/checkpoint.go. The caller has the claims' objects in the API server.
"""

import json
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from railnet.kubelet.api import dra_pb2 as api
from railnet.kubelet.api import dra_pb2_grpc
from simnode.kubernetes import checkpoint
from simnode.kubernetes.podresources import ClaimEntry

_CALL_SECONDS = 45  # pkg/kubelet/cm/dra/plugin/dra_plugin.go
_SERVICE = "v1.DRAPlugin"


class PrepareFailed(RuntimeError):
    """A driver refused a claim: kubelet makes no sandbox, and tries again."""


@dataclass
class _ClaimInfo:
    namespace: str
    name: str
    uid: str
    pods: set[str] = field(default_factory=set)
    pod_names: dict[str, str] = field(default_factory=dict)  # by UID
    devices: list[api.Device] = field(default_factory=list)
    prepared: bool = False

    @property
    def message(self) -> api.Claim:
        return api.Claim(namespace=self.namespace, name=self.name, uid=self.uid)


class DraManager:
    """The claims of a node's pods, and the driver that is registered last.

    Attributes:
        are_listed: whether pod-resources lists claims: the feature gate KubeletPodResourcesDynamicResources, on since Kubernetes 1.34.
    """

    def __init__(self, root: Path) -> None:
        self.path = root / "dra_manager_state"
        self._claims: dict[str, _ClaimInfo] = {}
        self._driver = ""
        self._socket = ""
        self._channel: grpc.Channel | None = None  # kept, as kubelet's
        self._changed = threading.Condition()
        self.are_listed = True
        self.registrations = 0  # of drivers, so far

    def register(self, driver: str, socket: str, versions: Sequence[str]) -> None:
        """Register a driver: the one that comes last is used.

        Raises:
            ValueError: the driver does not serve the version that this kubelet knows.
        """
        if _SERVICE not in versions:
            raise ValueError(f"driver {driver!r} supports {list(versions)}, not {_SERVICE}")
        with self._changed:
            self._driver = driver
            self._connect(socket)
            self.registrations += 1
            self._changed.notify_all()

    def deregister(self, socket: str) -> None:
        """Forget a driver whose socket is gone."""
        with self._changed:
            if self._socket == socket:
                self._connect("")
            self._changed.notify_all()

    def start(self) -> None:
        """Begin as after a restart: the file says which claims there are, and not that they are prepared."""
        for claim in self._claims.values():
            claim.prepared = False
        self._write()

    def stop(self) -> None:
        """Lose the driver, as a kubelet that ends."""
        self._connect("")

    def wait_for_registration(self, before: int, seconds: float) -> None:
        """Wait until a driver is registered that was not yet when there had been `before` registrations.

        Raises:
            TimeoutError: none is after `seconds`.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._socket and self.registrations > before, seconds):
                raise TimeoutError(f"no driver of DRA is registered after {seconds} s")

    def prepare(self, pod_uid: str, *claims: dict[str, Any]) -> list[api.Device]:
        """Prepare the claims of a pod, and write the file: with the pod's UID before the driver is called, with the devices after.

        Raises:
            PrepareFailed: the driver refuses a claim. grpc.RpcError: the driver does not answer.
        """
        infos = [self._info(claim) for claim in claims]
        for info in infos:
            info.pods.add(pod_uid)
        self._write()
        asked = [info for info in infos if not info.prepared]
        if asked:
            answers = self._call(asked)
            for info in asked:
                if answers[info.uid].error:
                    raise PrepareFailed(answers[info.uid].error)
                info.devices = list(answers[info.uid].devices)
            self._write()
            for info in asked:
                info.prepared = True
        return [device for info in infos for device in info.devices]

    def unprepare(self, pod_uid: str) -> None:
        """Let go of the claims of a pod; unprepare those that no other pod uses.

        Raises:
            PrepareFailed: the driver refuses. grpc.RpcError: the driver does not answer. Kubelet tries again.
        """
        ended = [info for info in self._claims.values() if info.pods == {pod_uid}]
        if ended:
            request = api.NodeUnprepareResourcesRequest(claims=[info.message for info in ended])
            answers = self._stub().NodeUnprepareResources(request, timeout=_CALL_SECONDS).claims
            for info in ended:
                if answers[info.uid].error:
                    raise PrepareFailed(answers[info.uid].error)
                del self._claims[info.uid]
        for info in self._claims.values():
            info.pods.discard(pod_uid)
        self._write()

    def call_prepare(self, claim: dict[str, Any]) -> str:
        """Call the driver alone for one claim, without a pod and a write; return the words of a refusal. Threads may call it at once.

        Raises:
            grpc.RpcError: the driver does not answer.
        """
        info = self._new_info(claim)
        return str(self._call([info])[info.uid].error)

    def call_unprepare(self, claim: dict[str, Any]) -> str:
        """Do the same for Unprepare."""
        info = self._new_info(claim)
        request = api.NodeUnprepareResourcesRequest(claims=[info.message])
        return str(self._stub().NodeUnprepareResources(request, timeout=_CALL_SECONDS).claims[info.uid].error)

    def forget_claims(self) -> None:
        """Forget all claims without a call of the driver, as a kubelet whose file was removed."""
        self._claims.clear()
        self._write()

    def listed(self) -> Iterator[ClaimEntry]:
        """Yield the claims of each pod, for pod-resources."""
        for info in tuple(self._claims.values()) if self.are_listed else ():
            devices = tuple(device.device_name for device in info.devices)
            for uid in sorted(info.pods):
                yield ClaimEntry(info.namespace, info.pod_names.get(uid, uid), info.name, self._driver, devices)

    def _info(self, claim: dict[str, Any]) -> _ClaimInfo:
        info = self._claims.setdefault(claim["metadata"]["uid"], self._new_info(claim))
        info.pod_names = {pod["uid"]: pod["name"] for pod in claim["status"]["reservedFor"]}
        return info

    @staticmethod
    def _new_info(claim: dict[str, Any]) -> _ClaimInfo:
        metadata = claim["metadata"]
        return _ClaimInfo(metadata["namespace"], metadata["name"], metadata["uid"])

    def _call(self, asked: Sequence[_ClaimInfo]) -> dict[str, api.NodePrepareResourceResponse]:
        request = api.NodePrepareResourcesRequest(claims=[info.message for info in asked])
        return dict(self._stub().NodePrepareResources(request, timeout=_CALL_SECONDS).claims)

    def _stub(self) -> dra_pb2_grpc.DRAPluginStub:
        if self._channel is None:
            raise RuntimeError("no driver of DRA is registered")
        return dra_pb2_grpc.DRAPluginStub(self._channel)

    def _connect(self, socket: str) -> None:
        if self._channel is not None:
            self._channel.close()
        self._socket, self._channel = socket, grpc.insecure_channel(f"unix:{socket}") if socket else None

    def _write(self) -> None:
        data = {
            "kind": "DRACheckpoint",
            "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
            "ClaimInfoStateList": [self._encode(info) for info in self._claims.values()] or None,
        }
        text = json.dumps(data, separators=(",", ":"))
        document = {"Data": text, "Checksum": zlib.crc32(text.encode())}
        checkpoint.write(self.path, json.dumps(document, separators=(",", ":")).encode())

    def _encode(self, info: _ClaimInfo) -> dict[str, Any]:
        devices = [
            {
                "PoolName": device.pool_name,
                "DeviceName": device.device_name,
                "ShareID": None,
                "RequestNames": list(device.request_names),
                "CDIDeviceIDs": list(device.cdi_device_ids),
            }
            for device in info.devices
        ]
        return {
            "ClaimUID": info.uid,
            "ClaimName": info.name,
            "Namespace": info.namespace,
            "PodUIDs": {pod: {} for pod in sorted(info.pods)},
            "DriverState": {self._driver: {"Devices": devices or None}},
        }
