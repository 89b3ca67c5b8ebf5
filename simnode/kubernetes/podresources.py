"""kubelet's pod-resources v1 server, which counts connections and calls: Railnet must need neither for most pods.

`kubelet` has the devices that it lists.
"""

import contextlib
import shutil
import socket
import threading
from collections.abc import Callable, Iterable
from concurrent import futures
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from railnet.kubelet.api import podresources_pb2 as api
from railnet.kubelet.api import podresources_pb2_grpc

_COPY_BYTES = 65536


class PodEntry(NamedTuple):
    """The devices of one resource in one container of a pod."""

    namespace: str
    pod: str
    container: str
    resource: str
    device_ids: tuple[str, ...]


class ClaimEntry(NamedTuple):
    """A prepared claim of a pod, with the devices of one driver."""

    namespace: str
    pod: str
    claim: str
    driver: str
    device_names: tuple[str, ...]


class Use(NamedTuple):
    """The number of connections to the socket, and the number of calls."""

    connections: int
    calls: int


class PodResourcesServer(podresources_pb2_grpc.PodResourcesListerServicer):
    """A server at `path`; `close` ends it. It counts connections as a proxy between the caller and gRPC."""

    def __init__(
        self,
        path: Path,
        allocated: Callable[[], Iterable[PodEntry]],
        claimed: Callable[[], Iterable[ClaimEntry]],
        scratch: Path,
    ) -> None:
        self._allocated, self._claimed = allocated, claimed
        self._connections = self._calls = 0
        self._path, self._scratch = path, scratch
        scratch.mkdir(parents=True)
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
        podresources_pb2_grpc.add_PodResourcesListerServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{scratch}/grpc.sock")
        self._server.start()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._accept, name="pod-resources", daemon=True)
        self._thread.start()

    @property
    def use(self) -> Use:
        """The connections and calls so far."""
        return Use(self._connections, self._calls)

    def close(self) -> None:
        """Stop serving and remove the socket."""
        self._path.unlink(missing_ok=True)
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self._server.stop(grace=None).wait()
        shutil.rmtree(self._scratch)

    def List(self, request: api.ListPodResourcesRequest, context: Any) -> api.ListPodResourcesResponse:  # noqa: ARG002, N802
        """List each pod that has devices or claims."""
        self._calls += 1
        return api.ListPodResourcesResponse(pod_resources=self._pods())

    def GetAllocatableResources(  # noqa: N802
        self,
        request: api.AllocatableResourcesRequest,  # noqa: ARG002
        context: Any,  # noqa: ARG002
    ) -> api.AllocatableResourcesResponse:
        """Return no allocatable resources, because they are not simulated."""
        self._calls += 1
        return api.AllocatableResourcesResponse()

    def Get(self, request: api.GetPodResourcesRequest, context: Any) -> api.GetPodResourcesResponse:  # noqa: N802
        """Return the devices of one pod."""
        self._calls += 1
        wanted = (request.pod_namespace, request.pod_name)
        for pod in self._pods():
            if (pod.namespace, pod.name) == wanted:
                return api.GetPodResourcesResponse(pod_resources=pod)
        context.abort(
            grpc.StatusCode.NOT_FOUND, f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        )
        raise AssertionError("abort raises")

    def _pods(self) -> list[api.PodResources]:
        pods: dict[tuple[str, str], api.PodResources] = {}
        for devices in self._allocated():
            key = (devices.namespace, devices.pod)
            pod = pods.setdefault(key, api.PodResources(name=devices.pod, namespace=devices.namespace))
            held = api.ContainerDevices(resource_name=devices.resource, device_ids=devices.device_ids)
            pod.containers.append(api.ContainerResources(name=devices.container, devices=[held]))
        for claim in self._claimed():
            key = (claim.namespace, claim.pod)
            pod = pods.setdefault(key, api.PodResources(name=claim.pod, namespace=claim.namespace))
            of_driver = [
                api.ClaimResource(driver_name=claim.driver, device_name=device) for device in claim.device_names
            ]
            resource = api.DynamicResource(
                claim_name=claim.claim, claim_namespace=claim.namespace, claim_resources=of_driver
            )
            pod.containers.append(api.ContainerResources(name="main", dynamic_resources=[resource]))
        return list(pods.values())

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # EINVAL: shut down by close
            while True:
                client, _ = self._listener.accept()
                self._connections += 1
                server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                server.connect(f"{self._scratch}/grpc.sock")
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=_copy, args=(source, target), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until the source ends; each copying thread closes the socket that it reads."""
    with source, contextlib.suppress(OSError):
        while data := source.recv(_COPY_BYTES):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)
