"""How kubelet finds a pool's device plugin: a socket in the folder that kubelet's plugin watcher watches.

Here: the socket's life and the Registration API. Not here: the device plugin API served on the same socket
(`deviceplugin.service`).

What kubelet does with the folder (kubernetes/kubernetes, pkg/kubelet/pluginmanager/):

- `pluginwatcher/plugin_watcher.go`: it creates the folder, dials every socket that appears in it (inotify's create,
  which a rename into the folder is too) and, when it starts, every socket that is there. So a kubelet that restarts finds
  us by itself. Names that begin with a dot are ignored. A socket's removal ends the plugin.
- `operationexecutor/operation_generator.go`: it gives GetInfo one second. `endpoint` is the path, as kubelet sees it, of
  the socket that serves the plugin's API, and empty means the socket it found; the path must therefore be the same for
  kubelet and for us, and the folder is mounted at its own path. The result comes by NotifyRegistrationStatus;
  a failure is tried again after growing pauses, which a new socket cuts short.
- `pluginwatcher/monitor.go`: newer kubelets repeat GetInfo every ten seconds and drop a plugin that fails it twice.
- `cm/devicemanager/plugin/v1beta1/handler.go`: older kubelets know a plugin by its resource alone and let the end of an
  old socket end the new one (kubernetes/kubernetes#121994). So a name is never used twice, and what an
  earlier start left behind is removed before the new socket appears.
"""
# ruff: noqa: ARG002, N802 (gRPC calls these methods by the names and with the arguments of the .proto file)

import asyncio
import logging
import os
import re
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from deviceplugin.service import PoolService
from kubelet.api import deviceplugin_pb2_grpc as deviceplugin_api
from kubelet.api import pluginregistration_pb2 as api
from kubelet.api import pluginregistration_pb2_grpc as grpc_api
from vf.errors import Misconfigured

_log = logging.getLogger(__name__)

_Context = grpc.aio.ServicerContext[Any, Any]

# Kubelet opens ListAndWatch right after it took the plugin. One that lost the stream and is alive does not dial again by
# itself; one that is down finds the new socket when it starts.
_LOOKS_WITHOUT_STREAM = 6

_SUN_PATH_BYTES = 107  # sockaddr_un.sun_path has 108 with the final zero (linux/un.h)


class Registration(grpc_api.RegistrationServicer):
    """Keeps one pool registered with kubelet, for as long as `serve` runs."""

    def __init__(self, plugin: PoolService, kubelet: Path, retry_seconds: float = 5.0) -> None:
        """Register `plugin`.

        Args:
            plugin: the service of one pool.
            kubelet: kubelet's state folder, at the same path as kubelet has it.
            retry_seconds: the pause before a new socket, and between looks at whether folder and socket exist.
        """
        self.registered = False
        self.registrations = 0  # how often kubelet took a socket of this pool
        self._plugin = plugin
        self._folder = kubelet / "plugins_registry"
        self._retry_seconds = retry_seconds
        self._socket = self._folder
        self._refused = asyncio.Event()

    @property
    def resource(self) -> str:
        """The resource registered."""
        return self._plugin.pool.resource

    async def serve(self) -> None:
        """Serve until cancelled; the socket is gone afterwards.

        Raises:
            Misconfigured: the socket's path is too long for a Unix socket.
        """
        while True:
            await self._folder_exists()
            try:
                async with self._listening():
                    why = await self._lost()
            except OSError as error:  # e.g. the folder is gone again: kubelet's state is being reset
                why = f"failed: {error}"
            _log.warning("%s: a new socket follows, for %s %s", self.resource, self._socket.name, why)
            await asyncio.sleep(self._retry_seconds)

    async def GetInfo(self, request: api.InfoRequest, context: _Context) -> api.PluginInfo:
        """Tell what this socket is."""
        return api.PluginInfo(
            type="DevicePlugin", name=self.resource, endpoint=str(self._socket), supported_versions=["v1beta1"]
        )

    async def NotifyRegistrationStatus(
        self, request: api.RegistrationStatus, context: _Context
    ) -> api.RegistrationStatusResponse:
        """Hear whether kubelet took the plugin; if not, offer a new socket after a while."""
        self.registered = request.plugin_registered
        if request.plugin_registered:
            self.registrations += 1
            _log.info("%s: registered with kubelet by %s", self.resource, self._socket.name)
        else:
            _log.error("%s: kubelet refused %s: %s", self.resource, self._socket.name, request.error)
            self._refused.set()
        return api.RegistrationStatusResponse()

    async def _folder_exists(self) -> None:
        said = False
        while not self._folder.is_dir():
            if not said:
                _log.warning("%s: waiting for kubelet to create %s (host.kubelet)", self.resource, self._folder)
                said = True
            await asyncio.sleep(self._retry_seconds)

    async def _lost(self) -> str:
        """Return, with the reason, when the socket is of no use any more."""
        unwatched = 0
        while not await self._refused_soon():
            if not self._socket.exists():
                return "was deleted"
            unwatched = unwatched + 1 if self.registered and not self._plugin.streams else 0
            if unwatched > _LOOKS_WITHOUT_STREAM:
                return "is registered, but kubelet does not watch it"
        return "was refused"

    async def _refused_soon(self) -> bool:
        try:
            async with asyncio.timeout(self._retry_seconds):
                return await self._refused.wait()
        except TimeoutError:
            return False

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        """Serve on a socket that kubelet sees only once it is answered."""
        remove_stale_sockets(self._folder, self.resource)
        self._socket = self._folder / socket_name(self.resource, time.time_ns() // 1_000_000)
        self._refused.clear()
        server = self._server()
        hidden = self._folder / f".{self._socket.name}"
        try:
            _bind(server, hidden)
            await server.start()  # before all that may fail: only a server that has begun gives its socket back
            hidden.chmod(0o600)
            hidden.rename(self._socket)
            yield
        finally:
            self.registered = False
            self._socket.unlink(missing_ok=True)
            hidden.unlink(missing_ok=True)
            await server.stop(grace=None)  # ListAndWatch never ends by itself

    def _server(self) -> grpc.aio.Server:
        server = grpc.aio.server()
        grpc_api.add_RegistrationServicer_to_server(self, server)
        deviceplugin_api.add_DevicePluginServicer_to_server(self._plugin, server)
        return server


def socket_name(resource: str, start_ms: int) -> str:
    """Return the name of a socket, unique to one start; starts are milliseconds since 1970."""
    return f"railnet-{_pool(resource)}-{start_ms:011x}.sock"


def remove_stale_sockets(folder: Path, resource: str) -> None:
    """Remove the sockets that earlier starts for this resource left behind and no process listens on."""
    name = re.compile(rf"\.?railnet-{re.escape(_pool(resource))}-[0-9a-f]{{11}}\.sock")
    for path in folder.iterdir():
        if name.fullmatch(path.name) and not _is_listened_on(path):
            path.unlink(missing_ok=True)


def _pool(resource: str) -> str:
    return resource.translate(str.maketrans("/.", "--"))


def _is_listened_on(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)  # a full backlog is EAGAIN, and a listener
        try:
            client.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except BlockingIOError:
            return True
        return True


def _bind(server: grpc.aio.Server, path: Path) -> None:
    if len(os.fsencode(path)) > _SUN_PATH_BYTES:
        raise Misconfigured(
            f"host.kubelet or the pool's resource is too long: a socket cannot be {path}, more than {_SUN_PATH_BYTES} bytes"
        )
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:  # gRPC's only word for any errno
        raise OSError(f"no socket can be bound at {path}: {error}") from error
