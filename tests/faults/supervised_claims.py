"""The node of the fault matrix, which offers its VFs by DRA: kubelet's calls for claims, and what kubelet does after a fault."""

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from railnet.kernel.waiting import block_until
from simnode.chaos.syscall_supervisor import CallWatch, Supervisor
from simnode.kubernetes.api_server import ApiServer
from simnode.kubernetes.dra_manager import PrepareFailed
from simnode.kubernetes.kubelet import PodIdentity
from simnode.node import Node
from simnode.preinstalled_files import CONFIGURATION
from tests.faults.supervised_node import SupervisedNode

VFS = 2
_POOL, _DEVICE, _REQUEST = "node-a", "pci-0000-03-00-1", "rail"
_RECORDS, _CDI, _CDI_FILE = Path("/run/railnet/claims"), Path("/run/cdi"), "rdma.railnet.io-claim_"
METADATA = Path("/run/railnet/device-metadata")
FILES = (str(_RECORDS), str(METADATA), _CDI_FILE)
_SECONDS, _LOOK_SECONDS = 60.0, 0.01
NO_ANSWER = "no answer: "


class DraNode(Node):
    """A node whose start is over when kubelet has registered the driver of DRA, once it offers its VFs so."""

    by_dra = False

    def start_daemon(self, *, wait: bool = True) -> None:
        before = self.kubelet.dra.registrations
        super().start_daemon(wait=wait)
        if wait and self.by_dra:
            self.kubelet.dra.wait_for_registration(before, _SECONDS)


class SupervisedClaims(SupervisedNode):
    """The supervised node beside an API server with claims. All claims have the same VF."""

    def __init__(self, node: DraNode, supervisor: Supervisor, cluster: ApiServer) -> None:
        super().__init__(node, supervisor)
        self._cluster = cluster
        node.stop_daemon()
        CONFIGURATION.write_text(json.dumps({**json.loads(CONFIGURATION.read_text()), "offer": "dra"}))
        node.daemon.environment = {**cluster.environment, "NODE_NAME": _POOL}
        node.by_dra, node.vfs = True, 0  # the device plugin lists none
        node.start_daemon()
        pod = self.admit(0)
        self.prepare(pod, self.claim(pod))  # this makes the folder of CDI
        self.unprepare(pod)
        self.before = self.look()

    def claim(self, pod: PodIdentity) -> dict[str, Any]:
        """Make a claim in the API server that the scheduler has allocated, and reserved for a pod."""
        uid = str(uuid.uuid4())
        result = {"request": _REQUEST, "driver": "rdma.railnet.io", "pool": _POOL, "device": _DEVICE}
        claim = {
            "metadata": {"namespace": pod.namespace, "name": uid, "uid": uid},
            "status": {
                "allocation": {"devices": {"results": [result]}},
                "reservedFor": [{"resource": "pods", "name": pod.name, "uid": pod.uid}],
            },
        }
        self._cluster.claims[pod.namespace, uid] = claim
        return claim

    def prepare(self, pod: PodIdentity, claim: dict[str, Any], watch: CallWatch | None = None) -> str | None:
        """Have kubelet prepare a claim, and check what it gets; return the words of a refusal; None if the claim is prepared."""

        def call() -> str | None:
            devices = self.node.kubelet.dra.prepare(pod.uid, claim)
            found = [
                (*device.request_names, device.pool_name, device.device_name, *device.cdi_device_ids)
                for device in devices
            ]
            uid = claim["metadata"]["uid"]
            expected = [(_REQUEST, _POOL, _DEVICE, f"rdma.railnet.io/claim={uid}-{_REQUEST}")]
            return None if found == expected else f"{NO_ANSWER}{found} in place of {expected}"

        return self._answered(call, watch)

    def unprepare(self, pod: PodIdentity, watch: CallWatch | None = None) -> str | None:
        """Have kubelet unprepare the claims of a pod; return the words of a refusal; None if they are."""
        return self._answered(lambda: self.node.kubelet.dra.unprepare(pod.uid), watch)

    def run_and_unprepare(self, pod: PodIdentity) -> list[str]:
        """Run the sandbox of a pod whose claim is prepared, and unprepare the claim; return the problems."""
        with self.patient():
            sandbox = self.sandbox(pod)
            self.node.runtime.add(sandbox)
            problems = self.delete(sandbox)
        self.node.wait_for_answered_deletes()
        refused = self.unprepare(pod)
        return problems if refused is None else [*problems, f"Unprepare after the pod's end: {refused}"]

    def leave_files(self, damaged_uid: str) -> None:
        """Leave what crashes may leave: a record that was cut short, a file that was not renamed, and files of CDI and of device metadata without a record."""
        (_RECORDS / f"{damaged_uid}.json").write_bytes(b'{"version": 1,')
        (_RECORDS / f".{damaged_uid}.json.1.0").touch()
        (METADATA / "gone").mkdir(parents=True)
        for name in (f"{_CDI_FILE}gone.json", f".{_CDI_FILE}gone.json.1.0"):
            (_CDI / name).touch()

    def start_with_fault(self, watch: CallWatch) -> list[str]:
        """Start the daemon with a watch, and again if it ends by the fault, as the DaemonSet does; return the problems."""
        dra = self.node.kubelet.dra
        before = dra.registrations
        with self.watching(watch):
            self.node.start_daemon(wait=False)
            process = self.node.daemon.process
            block_until(lambda: process.poll() is not None or dra.registrations > before, _SECONDS, _LOOK_SECONDS)
        return self.restart_dead_daemon(killed=process.poll() is not None and watch.hit is not None)

    def clean_up(self) -> None:
        """Do the same for claims: kubelet and the API server forget them."""
        self.node.kubelet.dra.forget_claims()
        self._cluster.claims.clear()
        super().clean_up()

    def _answered(self, call: Callable[[], str | None], watch: CallWatch | None) -> str | None:
        with self.watching(watch or CallWatch()):
            try:
                return call()
            except PrepareFailed as refused:
                return str(refused)
            except grpc.RpcError as error:
                return f"{NO_ANSWER}{error.code()}"
