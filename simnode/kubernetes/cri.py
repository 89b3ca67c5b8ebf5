"""The container runtime's CRI socket, which has two calls: ListPodSandbox and PodSandboxStatus.

`runtime` has the sandboxes.
"""

from collections.abc import Callable, Iterable
from concurrent import futures
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import grpc

from railnet.kubelet.api import cri_pb2 as api

SOCKET = Path("/run/containerd/containerd.sock")


class ListedSandbox(NamedTuple):
    """A sandbox as CRI shows it: its id, its pod's UID, and whether it is on the host's network, and ready."""

    id: str
    uid: str = ""
    on_host: bool = False
    ready: bool = True


class CriEndpoint:
    """A context manager that serves both calls at `path`, in one version of CRI."""

    def __init__(
        self,
        sandboxes: Callable[[], Iterable[ListedSandbox]],
        path: Path = SOCKET,
        version: str = "v1",
    ) -> None:
        self._sandboxes, self._path = sandboxes, path
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
        listing = grpc.unary_unary_rpc_method_handler(
            self._list,
            request_deserializer=api.ListPodSandboxRequest.FromString,
            response_serializer=api.ListPodSandboxResponse.SerializeToString,
        )
        status = grpc.unary_unary_rpc_method_handler(
            self._status,
            request_deserializer=api.PodSandboxStatusRequest.FromString,
            response_serializer=api.PodSandboxStatusResponse.SerializeToString,
        )
        calls: dict[str, grpc.RpcMethodHandler[Any, Any]] = {"ListPodSandbox": listing, "PodSandboxStatus": status}
        handler = grpc.method_handlers_generic_handler(f"runtime.{version}.RuntimeService", calls)
        self._server.add_generic_rpc_handlers((handler,))

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._server.add_insecure_port(f"unix:{self._path}")
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.stop(grace=None).wait()
        self._path.unlink(missing_ok=True)

    def _list(self, request: api.ListPodSandboxRequest, context: Any) -> api.ListPodSandboxResponse:  # noqa: ARG002
        return api.ListPodSandboxResponse(
            items=[
                api.PodSandbox(id=one.id, metadata=api.PodSandboxMetadata(uid=one.uid), state=_state(one))
                for one in self._sandboxes()
            ]
        )

    def _status(self, request: api.PodSandboxStatusRequest, context: Any) -> api.PodSandboxStatusResponse:
        found = next((one for one in self._sandboxes() if one.id == request.pod_sandbox_id), None)
        if found is None:
            context.abort(
                grpc.StatusCode.NOT_FOUND, f"an error occurred when try to find sandbox: {request.pod_sandbox_id}"
            )
            raise AssertionError
        options = api.NamespaceOption(network=api.NODE if found.on_host else api.POD)
        linux = api.LinuxPodSandboxStatus(namespaces=api.Namespace(options=options))
        status = api.PodSandboxStatus(metadata=api.PodSandboxMetadata(uid=found.uid), state=_state(found), linux=linux)
        return api.PodSandboxStatusResponse(status=status)


def _state(one: ListedSandbox) -> api.PodSandboxState.ValueType:
    return api.SANDBOX_READY if one.ready else api.SANDBOX_NOTREADY
