"""The registration of a pool's device plugin with kubelet: a socket in the folder of kubelet's plugin watcher.

Here: the socket's life and the Registration API. Not here: the device plugin API, which the same socket serves (`deviceplugin.service`).

Kubelet uses the folder in this way (kubernetes/kubernetes, pkg/kubelet/pluginmanager/):

- `pluginwatcher/plugin_watcher.go`: kubelet creates the folder. It dials every socket that appears in it (inotify's create event, which a
  rename into the folder causes, too), and when it starts, every socket that exists. So a restarted kubelet finds the plugin by itself.
  Kubelet ignores names that begin with a dot. The removal of a socket ends the plugin.
- `operationexecutor/operation_generator.go`: GetInfo must answer within one second. `endpoint` is the path, as kubelet sees it, of the
  socket that serves the plugin's API; if it is empty, kubelet uses the socket that it found. The daemon reaches the folder through the
  host's root, by a descriptor: a socket's own path may have 107 bytes, and that through /proc is longer than kubelet's. Kubelet reports the result by NotifyRegistrationStatus. It retries a failure after
  growing pauses; a new socket is tried at once.
- `pluginwatcher/monitor.go`, which 1.36 does not have and the branch for a later version has: kubelet repeats GetInfo every ten seconds,
  and drops a plugin that fails it twice.
- `cm/devicemanager/plugin/v1beta1/handler.go`: older kubelets identify a plugin by its resource alone, so the end of an old socket ends
  the new one (kubernetes/kubernetes#121994). So no name is used twice, and the sockets of an earlier start are removed before the new one
  appears.
"""
# ruff: noqa: ARG002, N802 (gRPC calls these methods by the names and with the arguments of the .proto file)

import asyncio
import logging
import os
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from deviceplugin.service import PoolService
from railnet.errors import Misconfigured
from railnet.kernel.files import open_below, unlink
from railnet.kernel.threads.file_reads import read_in_time
from railnet.kernel.waiting import take_outcome
from railnet.kubelet.api import deviceplugin_pb2_grpc as deviceplugin_api
from railnet.kubelet.api import pluginregistration_pb2 as api
from railnet.kubelet.api import pluginregistration_pb2_grpc as grpc_api
from railnet.kubelet.root_folder import DEFAULT, REGISTRY, KubeletFolder

_log = logging.getLogger(__name__)

_Context = grpc.aio.ServicerContext[Any, Any]

# Kubelet opens ListAndWatch right after the registration. A running kubelet that has lost the stream does not dial again by itself, so it
# needs a new socket; a kubelet that is down finds the new socket when it starts.
_LOOKS_WITHOUT_STREAM = 6

_ANSWER_SECONDS = 1.0  # for the answer to a refusal, before the refused socket ends

_SUN_PATH_BYTES = 107  # sockaddr_un.sun_path has 108 with the final zero (linux/un.h)


class Registration(grpc_api.RegistrationServicer):
    """Keeps one pool registered with kubelet while `serve` runs."""

    def __init__(
        self, plugin: PoolService, look: Callable[[], KubeletFolder], root: Path, retry_seconds: float = 5.0
    ) -> None:
        """Register `plugin`.

        Args:
            plugin: the service of one pool.
            look: returns kubelet's root folder as it is now; called in a thread.
            root: the host's root folder, in which kubelet's path is.
            retry_seconds: the pause before a new socket, and between checks that folder and socket exist.
        """
        self.registered = False
        self.registrations = 0  # how often kubelet has registered a socket of this pool
        self.trouble = "it has not been looked for yet"
        self._plugin = plugin
        self._look, self._root = look, root
        self._retry_seconds = retry_seconds
        self._socket = self._seen_by_kubelet = Path()
        self._refused = asyncio.Event()

    @property
    def resource(self) -> str:
        """The resource that is registered."""
        return self._plugin.pool.resource

    async def serve(self) -> None:
        """Serve until cancelled; remove the socket at the end.

        Raises:
            Misconfigured: the socket's path is too long for a Unix socket.
        """
        while True:
            try:
                folder = await self._existing_folder()
                async with self._listening(folder):
                    why = await self._lost(folder)
            except OSError as error:  # for example, the folder is gone again because kubelet's state is being reset
                why = f"failed: {error}"
            _log.warning("%s: making a new socket, because %s %s", self.resource, self._socket.name, why)
            await asyncio.sleep(self._retry_seconds)

    async def GetInfo(self, request: api.InfoRequest, context: _Context) -> api.PluginInfo:
        """Return the type, resource and path of this socket."""
        return api.PluginInfo(
            type="DevicePlugin", name=self.resource, endpoint=str(self._seen_by_kubelet), supported_versions=["v1beta1"]
        )

    async def NotifyRegistrationStatus(
        self, request: api.RegistrationStatus, context: _Context
    ) -> api.RegistrationStatusResponse:
        """Record whether kubelet has registered the plugin; after a refusal, `serve` makes a new socket."""
        self.registered = request.plugin_registered
        if request.plugin_registered:
            self.registrations += 1
            _log.info("%s: registered with kubelet by %s", self.resource, self._socket.name)
        else:
            _log.error(
                "%s: kubelet refused %s, and a new socket will be tried: %s",
                self.resource,
                self._socket.name,
                request.error,
            )
            self._refused.set()
        return api.RegistrationStatusResponse()

    async def _existing_folder(self) -> KubeletFolder:
        """Wait until kubelet has made its plugins_registry."""
        while True:
            folder = await self._kubelet_folder()
            registry = f"{folder.path}/{REGISTRY}"
            try:
                os.close(open_below(self._root, registry, os.O_PATH | os.O_DIRECTORY))
            except OSError as error:
                self._say(f"{registry} cannot be opened: {error.strerror}; kubelet's root folder is {folder}")
            else:
                self.trouble = f"its socket is in {registry}; kubelet's root folder is {folder}"
                return folder
            await asyncio.sleep(self._retry_seconds)

    async def _kubelet_folder(self) -> KubeletFolder:
        """Look for kubelet's root folder. A process that hangs may hold its command line for ever, and costs kubelet's own answer alone."""
        try:
            return await read_in_time("command lines in /proc", self._look)
        except OSError as error:
            return KubeletFolder(
                Path(DEFAULT), f"kubelet's default: {error.filename} are {error.strerror}; set host.kubelet"
            )

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            _log.warning("%s: waiting for kubelet: %s", self.resource, trouble)
        self.trouble = trouble

    async def _lost(self, folder: KubeletFolder) -> str:
        """Wait until the socket has no use any more, and return the reason."""
        unwatched = 0
        while not await self._refused_soon():
            if not self._socket.exists():
                return "was deleted"
            if not self.registered and (now := await self._kubelet_folder()).path != folder.path:
                return f"is not in kubelet's root folder {now}"
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
    async def _listening(self, kubelet: KubeletFolder) -> AsyncIterator[None]:
        """Serve on a socket that becomes visible to kubelet only when it answers."""
        seen_by_kubelet = kubelet.path / REGISTRY
        with self._opened(seen_by_kubelet) as folder:
            remove_stale_sockets(folder, self.resource)
            self._socket = folder / socket_name(self.resource, time.time_ns() // 1_000_000)
            self._seen_by_kubelet = seen_by_kubelet / self._socket.name
            _check_length(self._seen_by_kubelet)
            async with self._bound(folder / f".{self._socket.name}"):
                yield

    @contextmanager
    def _opened(self, folder: Path) -> Iterator[Path]:
        """Open a folder of the host; yield a path by which this process reaches it."""
        fd = open_below(self._root, str(folder), os.O_PATH | os.O_DIRECTORY)
        try:
            yield Path(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)

    @asynccontextmanager
    async def _bound(self, hidden: Path) -> AsyncIterator[None]:
        self._refused.clear()
        server = self._server()
        try:
            _bind(server, hidden)
            await _start(server)  # before any step that may fail: only a server that has started closes its socket
            self._show(hidden)
            yield
        finally:
            self.registered = False
            for path in (self._socket, hidden):
                _remove(path)
            # ListAndWatch never ends by itself. Kubelet, which has just refused the socket, hears the answer to that call first.
            await server.stop(grace=_ANSWER_SECONDS if self._refused.is_set() else None)

    def _show(self, hidden: Path) -> None:
        hidden.chmod(0o600)
        hidden.rename(self._socket)

    def _server(self) -> grpc.aio.Server:
        server = grpc.aio.server()
        grpc_api.add_RegistrationServicer_to_server(self, server)
        deviceplugin_api.add_DevicePluginServicer_to_server(self._plugin, server)
        return server


async def _start(server: grpc.aio.Server) -> None:
    """Start a server to the end, also if the caller is cancelled meanwhile.

    A cancelled `start` ends the server's own task, and `stop` then raises that task's InvalidStateError, which would take the place of
    the cancellation.
    """
    start = asyncio.create_task(server.start())
    start.add_done_callback(take_outcome)
    try:
        await asyncio.shield(start)
    finally:
        await asyncio.wait({start})


def socket_name(resource: str, start_ms: int) -> str:
    """Return the name of a socket, unique to one start; starts are milliseconds since 1970."""
    return f"railnet-{_pool(resource)}-{start_ms:011x}.sock"


def remove_stale_sockets(folder: Path, resource: str) -> None:
    """Remove the sockets of earlier starts for this resource on which no process listens.

    A socket that cannot be removed stays and is logged: no name is used twice, so it is in the way of nothing.
    """
    name = re.compile(rf"\.?railnet-{re.escape(_pool(resource))}-[0-9a-f]{{11}}\.sock")
    for path in folder.iterdir():
        if name.fullmatch(path.name) and not _is_listened_on(path):
            _remove(path)


def _remove(path: Path) -> None:
    try:
        unlink(path)
    except OSError as error:
        _log.warning("%s stays: %s", path, error.strerror)


def _pool(resource: str) -> str:
    return resource.translate(str.maketrans("/.", "--"))


def _is_listened_on(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)  # EAGAIN means that a process listens and its backlog is full
        try:
            client.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except BlockingIOError:
            return True
        except OSError:  # EACCES, ELOOP, EIO: it is not known, and such a socket of ours does not exist
            return False
        return True


def _check_length(path: Path) -> None:
    if len(os.fsencode(path)) > _SUN_PATH_BYTES:
        raise Misconfigured(
            f"host.kubelet or the pool's resource is too long: the socket's path {path} has more than {_SUN_PATH_BYTES} bytes; "
            "shorten one of them"
        )


def _bind(server: grpc.aio.Server, path: Path) -> None:
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:  # gRPC raises it for any errno, without the errno
        raise OSError(f"no socket can be bound at {path}: {error}") from error
