"""The container runtime's CRI socket, which has only one call: ListPodSandbox.

`runtime` has the sandboxes.
"""

from collections.abc import Callable, Iterable
from concurrent import futures
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from kubelet.api import cri_pb2 as api

SOCKET = Path("/run/containerd/containerd.sock")
VERSIONS = ("v1", "v1alpha2")


class CriEndpoint:
    """A context manager that serves ListPodSandbox at `path`, in the given versions of CRI."""

    def __init__(
        self, sandboxes: Callable[[], Iterable[str]], path: Path = SOCKET, versions: Iterable[str] = VERSIONS[:1]
    ) -> None:
        self._sandboxes, self._path = sandboxes, path
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
        listing = grpc.unary_unary_rpc_method_handler(
            self._list,
            request_deserializer=api.ListPodSandboxRequest.FromString,
            response_serializer=api.ListPodSandboxResponse.SerializeToString,
        )
        services = [f"runtime.{version}.RuntimeService" for version in versions]
        self._server.add_generic_rpc_handlers(
            tuple(grpc.method_handlers_generic_handler(service, {"ListPodSandbox": listing}) for service in services)
        )

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
        return api.ListPodSandboxResponse(items=[api.PodSandbox(id=one) for one in self._sandboxes()])
