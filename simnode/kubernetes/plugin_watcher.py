"""kubelet's plugin watcher: finds sockets in plugins_registry and calls GetInfo on each.

The caller registers the plugins that answer.
"""

import contextlib
import os
import select
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc

from railnet.kubelet.api import pluginregistration_pb2 as api
from railnet.kubelet.api import pluginregistration_pb2_grpc
from simnode.linux.inotify import IN_CREATE, IN_DELETE, IN_MOVED_TO, DirectoryWatch

_CALL_SECONDS = 5
_FIRST_RETRY_SECONDS = 0.5  # pkg/util/goroutinemap/exponentialbackoff, doubled each time


class PluginWatcher:
    """A thread that watches a directory; `close` ends it.

    It calls `register` with the info of a plugin; `register` raises to refuse the plugin. It calls `deregister` with the
    path of a removed socket.
    """

    def __init__(
        self, folder: Path, register: Callable[[api.PluginInfo], None], deregister: Callable[[Path], None]
    ) -> None:
        self._register, self._deregister = register, deregister
        self._retries: dict[Path, tuple[float, float]] = {}  # time of the next attempt, and the wait after it
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._watch = DirectoryWatch()
        self._watch.add(folder, IN_CREATE | IN_MOVED_TO | IN_DELETE)
        self._existing = sorted(folder.iterdir())  # inotify reports the sockets that are made after this
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="plugin watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing = True
        os.eventfd_write(self._wake_fd, 1)
        self._thread.join()
        self._watch.close()
        os.close(self._wake_fd)

    def _run(self) -> None:
        for path in self._existing:
            self._attempt(path, _FIRST_RETRY_SECONDS)
        poll = select.poll()
        poll.register(self._watch, select.POLLIN)
        poll.register(self._wake_fd, select.POLLIN)
        while not self._closing:
            poll.poll(self._milliseconds_to_retry())
            for event in self._watch.events():
                self._notice(event.path, gone=bool(event.mask & IN_DELETE))
            self._retry()

    def _notice(self, path: Path, *, gone: bool) -> None:
        if gone:
            self._retries.pop(path, None)
            self._deregister(path)
        else:
            self._attempt(path, _FIRST_RETRY_SECONDS)

    def _milliseconds_to_retry(self) -> int | None:
        due = [at for at, _ in self._retries.values()]
        return max(0, int((min(due) - time.monotonic()) * 1000)) + 1 if due else None

    def _retry(self) -> None:
        now = time.monotonic()
        for path, (at, wait) in list(self._retries.items()):
            if at <= now:
                self._attempt(path, 2 * wait)

    def _attempt(self, path: Path, wait: float) -> None:
        """Call GetInfo of a plugin and register it; on failure, plan the next attempt in `wait` seconds."""
        self._retries.pop(path, None)
        if path.name.startswith(".") or not _is_socket(path):
            return
        try:
            self._ask(path)
        except (grpc.RpcError, ValueError):
            self._retries[path] = (time.monotonic() + wait, wait)

    def _ask(self, path: Path) -> None:
        with grpc.insecure_channel(f"unix:{path}") as channel:
            stub = pluginregistration_pb2_grpc.RegistrationStub(channel)
            info = stub.GetInfo(api.InfoRequest(), timeout=_CALL_SECONDS)
            try:
                self._register(
                    api.PluginInfo(
                        type=info.type,
                        name=info.name,
                        endpoint=info.endpoint or str(path),
                        supported_versions=info.supported_versions,
                    )
                )
            except (grpc.RpcError, ValueError) as error:
                with contextlib.suppress(grpc.RpcError):
                    status = api.RegistrationStatus(plugin_registered=False, error=str(error))
                    stub.NotifyRegistrationStatus(status, timeout=_CALL_SECONDS)
                raise
            stub.NotifyRegistrationStatus(api.RegistrationStatus(plugin_registered=True), timeout=_CALL_SECONDS)


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except FileNotFoundError:
        return False
