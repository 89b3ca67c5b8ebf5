"""The registration of a plugin with kubelet: a socket in the folder of kubelet's plugin watcher.

Here: when there is a socket, and the Registration API. Not here: the socket's file (`deviceplugin.plugin_socket`), and the plugin's own API, which
the same socket serves (`deviceplugin.service`, `railnet.dra.service`). The folder is on a disk, which may hang: what touches it runs in a thread,
for 2 s at most.

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
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import grpc.aio

from deviceplugin.plugin_socket import PluginSocket, require_folder
from railnet.kernel.threads.file_reads import answered, read_in_time
from railnet.kernel.waiting import take_outcome
from railnet.kubelet.api import pluginregistration_pb2 as api
from railnet.kubelet.api import pluginregistration_pb2_grpc as grpc_api
from railnet.kubelet.root_folder import REGISTRY, KubeletFolder

_log = logging.getLogger(__name__)

_Context = grpc.aio.ServicerContext[Any, Any]
_Result = TypeVar("_Result")

# Kubelet opens ListAndWatch right after the registration. A running kubelet that has lost the stream does not dial again by itself, so it
# needs a new socket; a kubelet that is down finds the new socket when it starts.
_LOOKS_WITHOUT_STREAM = 6

_ANSWER_SECONDS = 1.0  # for the answer to a refusal, before the refused socket ends


class Plugin(Protocol):
    """What kubelet registers."""

    @property
    def kind(self) -> str:
        """The type of plugin: DevicePlugin or DRAPlugin."""

    @property
    def name(self) -> str:
        """The resource of a device plugin; the driver of DRA."""

    @property
    def versions(self) -> Sequence[str]:
        """The versions of the plugin's API, or its services, as kubelet names them for this type."""

    @property
    def watched(self) -> bool:
        """Whether kubelet has the stream open that it should have."""

    @property
    def outdated(self) -> bool:
        """Whether kubelet has learned at the registration what is not so any more."""

    def serve_on(self, server: grpc.aio.Server) -> None:
        """Have a server serve the plugin's API."""


class Registration(grpc_api.RegistrationServicer):
    """Keeps one plugin registered with kubelet while `serve` runs."""

    def __init__(
        self,
        plugin: Plugin,
        look: Callable[[], Awaitable[KubeletFolder]],
        root: Path,
        retry_seconds: float = 5.0,
        registered: Callable[[], None] = lambda: None,
    ) -> None:
        """Register `plugin`.

        Args:
            plugin: the service of one pool, or the driver of DRA.
            look: returns kubelet's root folder as it is now, or raises OSError: it is not known now.
            root: the host's root folder, in which kubelet's path is.
            retry_seconds: the pause before a new socket, and between checks that folder and socket exist.
            registered: called after each registration.
        """
        self.registered = False
        self.registrations = 0  # how often kubelet has registered a socket of this plugin
        self.trouble = "it has not been looked for yet"
        self._plugin = plugin
        self._look, self._root = look, root
        self._retry_seconds, self._tell_registered = retry_seconds, registered
        self._name, self._seen_by_kubelet = "", Path()  # of the socket
        self._refused = asyncio.Event()
        self._late = set[asyncio.Task[None]]()  # the ends of sockets that were bound too late

    @property
    def resource(self) -> str:
        """The resource, or the driver, that is registered."""
        return self._plugin.name

    async def serve(self) -> None:
        """Serve until cancelled; remove the socket at the end.

        Raises:
            Misconfigured: the socket's path is too long for a Unix socket.
        """
        while True:
            try:
                folder = await self._existing_folder()
                async with self._listening(folder) as plugin_socket:
                    why = await self._lost(folder, plugin_socket)
            except OSError as error:  # for example, the folder is gone again because kubelet's state is being reset
                why = f"failed: {error}"
            _log.warning("%s: making a new socket, because %s %s", self.resource, self._name, why)
            await asyncio.sleep(self._retry_seconds)

    async def GetInfo(self, request: api.InfoRequest, context: _Context) -> api.PluginInfo:
        """Return the type, name and path of this socket."""
        return api.PluginInfo(
            type=self._plugin.kind,
            name=self.resource,
            endpoint=str(self._seen_by_kubelet),
            supported_versions=self._plugin.versions,
        )

    async def NotifyRegistrationStatus(
        self, request: api.RegistrationStatus, context: _Context
    ) -> api.RegistrationStatusResponse:
        """Record whether kubelet has registered the plugin; after a refusal, `serve` makes a new socket."""
        self.registered = request.plugin_registered
        if request.plugin_registered:
            self.registrations += 1
            self._tell_registered()
            _log.info("%s: registered with kubelet by %s", self.resource, self._name)
        else:
            _log.error(
                "%s: kubelet refused %s, and a new socket will be tried: %s",
                self.resource,
                self._name,
                request.error,
            )
            self._refused.set()
        return api.RegistrationStatusResponse()

    async def _existing_folder(self) -> KubeletFolder:
        """Wait until kubelet has made its plugins_registry."""
        while True:
            try:
                folder = await self._look()
            except OSError as error:  # kubelet's folder may be another one than its default, so none is taken
                self._say(f"{error.filename} was {error.strerror}")
            else:
                registry = f"{folder.path}/{REGISTRY}"
                try:
                    await read_in_time(registry, partial(require_folder, self._root, folder.path / REGISTRY))
                except OSError as error:
                    self._say(f"{registry} cannot be opened: {error.strerror}; kubelet's root folder is {folder}")
                else:
                    self.trouble = f"its socket is in {registry}; kubelet's root folder is {folder}"
                    return folder
            await asyncio.sleep(self._retry_seconds)

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            _log.warning("%s: waiting for kubelet: %s", self.resource, trouble)
        self.trouble = trouble

    async def _lost(self, folder: KubeletFolder, plugin_socket: PluginSocket) -> str:
        """Wait until the socket has no use any more, and return the reason."""
        unwatched = 0
        while not await self._refused_soon():
            if await self._is_deleted(folder, plugin_socket):
                return "was deleted"
            if self.registered and self._plugin.outdated:
                return "was registered with options that have changed"
            if not self.registered and (now := await self._moved(folder)) is not None:
                return f"is not in kubelet's root folder {now}"
            unwatched = unwatched + 1 if self.registered and not self._plugin.watched else 0
            if unwatched > _LOOKS_WITHOUT_STREAM:
                return "is registered, but kubelet does not watch it"
        return "was refused"

    async def _is_deleted(self, folder: KubeletFolder, plugin_socket: PluginSocket) -> bool:
        """Return whether kubelet can find the socket no more. A disk that hangs does not say so, and kubelet may still watch."""
        try:
            return not await read_in_time(f"{folder.path}/{REGISTRY}", plugin_socket.exists)
        except TimeoutError as error:
            _log.warning("%s: whether %s is still there is not known: %s", self.resource, self._name, error)
            return False

    async def _moved(self, folder: KubeletFolder) -> KubeletFolder | None:
        """Return kubelet's folder if it is surely another one now."""
        try:
            now = await self._look()
        except OSError:
            return None
        return None if now.path == folder.path else now

    async def _refused_soon(self) -> bool:
        try:
            async with asyncio.timeout(self._retry_seconds):
                return await self._refused.wait()
        except TimeoutError:
            return False

    @asynccontextmanager
    async def _listening(self, kubelet: KubeletFolder) -> AsyncIterator[PluginSocket]:
        """Serve on a socket that becomes visible to kubelet only when it answers."""
        plugin_socket = PluginSocket(self._root, kubelet.path / REGISTRY, self.resource, time.time_ns() // 1_000_000)
        self._name, self._seen_by_kubelet = plugin_socket.name, plugin_socket.seen_by_kubelet
        in_time = partial(_in_time, f"{kubelet.path}/{REGISTRY}")
        self._refused.clear()
        server, late = self._server(), False
        try:
            await in_time(plugin_socket.open)
            try:
                await in_time(partial(plugin_socket.bind, server.add_insecure_port))
            except TimeoutError:
                late = True
                raise
            await _to_the_end(
                server.start()
            )  # before any step that may fail: only a server that has started closes its socket
            await in_time(plugin_socket.show)
            yield plugin_socket
        finally:
            self.registered = False
            if late:
                self._end_when_the_disk_answers(f"{kubelet.path}/{REGISTRY}", plugin_socket, server)
            else:
                await _remove(in_time, plugin_socket)
                plugin_socket.close()
                # ListAndWatch never ends by itself. Kubelet, which has just refused the socket, hears the answer to that call first.
                await server.stop(grace=_ANSWER_SECONDS if self._refused.is_set() else None)

    def _end_when_the_disk_answers(self, registry: str, plugin_socket: PluginSocket, server: grpc.aio.Server) -> None:
        """Have a socket end that may be bound after its time: a process listens on it then, so no later start would remove its file."""

        async def end() -> None:
            try:
                await answered(registry)
                await server.start()  # only a server that has started closes its socket
                await server.stop(grace=None)
                await _remove(partial(_in_time, registry), plugin_socket)
            finally:
                plugin_socket.close()

        task = asyncio.create_task(end())
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        task.add_done_callback(take_outcome)

    def _server(self) -> grpc.aio.Server:
        server = grpc.aio.server()
        grpc_api.add_RegistrationServicer_to_server(self, server)
        self._plugin.serve_on(server)
        return server


async def _in_time(registry: str, work: Callable[[], _Result]) -> _Result:
    """Do work with files of kubelet's folder in a thread, and wait for its end, also if the caller is cancelled meanwhile.

    Raises:
        OSError: ETIMEDOUT, the disk does not answer; else what `work` raises.
    """
    return await _to_the_end(read_in_time(registry, work))


async def _to_the_end(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Await work to its end, also if the caller is cancelled meanwhile.

    A cancelled `start` of a server ends the server's own task, and `stop` then raises that task's InvalidStateError, which would take the
    place of the cancellation.
    """
    task = asyncio.create_task(work)
    task.add_done_callback(take_outcome)
    try:
        return await asyncio.shield(task)
    finally:
        await asyncio.wait({task})


async def _remove(in_time: Callable[[Callable[[], None]], Awaitable[None]], plugin_socket: PluginSocket) -> None:
    try:
        await in_time(plugin_socket.remove)
    except OSError as error:  # a later start removes it: no process listens on it then
        _log.warning("%s stays: %s", plugin_socket.seen_by_kubelet, error)
