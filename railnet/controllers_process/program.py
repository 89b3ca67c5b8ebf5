"""`railnet controllers`: what is reconciled for training jobs, by one of several replicas, until SIGTERM.

The replica that has the Lease lists and watches; the others only look at the Lease. A replica that loses the Lease ends: kubelet starts it
again, and nothing of its old knowledge is left. Two replicas that both believe for a moment that they lead do no harm, because each write
either says the whole of what should be or names the version that it changes.
"""

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from railnet.apiserver import lease, service_account
from railnet.apiserver.client import StreamingApiServer
from railnet.apiserver.kubernetes_package_transport import KubernetesTransport
from railnet.apiserver.service_account import NotInCluster
from railnet.configuration import Configuration
from railnet.controllers_process.leader_composition import Leader
from railnet.controllers_process.metrics import ControllersMetrics, CountingApiServer
from railnet.errors import Misconfigured
from railnet.health_server import Health, Pages

_log = logging.getLogger(__name__)
_NAME = "railnet-controllers"
_ENDING = (signal.SIGTERM, signal.SIGINT)
_END_SECONDS = 5.0
_LEASE_SECONDS = 3.0  # for one request of the election: several must fit into the time in which the leader renews


@dataclass(frozen=True, slots=True)
class ControllersOptions:
    """The options of the command line, which says what each is."""

    health_port: int
    account: Path
    cleans_up: bool = False
    places_gangs: bool = False


async def serve(configuration: Configuration, options: ControllersOptions) -> bool:
    """Serve until SIGTERM or SIGINT, or until the Lease is lost; return whether a signal was the reason.

    Raises:
        Misconfigured: the program runs outside of a cluster.
    """
    signalled, stopped = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _ENDING:
        loop.add_signal_handler(number, signalled.set)
    replica = Replica(configuration, options, lambda: loop.call_soon_threadsafe(stopped.set))
    async with Health(Pages(replica.reasons, replica.metrics_text)).serving(options.health_port, host=None):
        replica.start()
        waiting = [asyncio.create_task(event.wait()) for event in (signalled, stopped)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        replica.end()
        await asyncio.to_thread(replica.join, _END_SECONDS)
        for task in waiting:
            task.cancel()
    return signalled.is_set()


class Replica:
    """One replica, in threads of its own: the election, and what the leader does."""

    def __init__(
        self, configuration: Configuration, options: ControllersOptions, stopped: Callable[[], object]
    ) -> None:
        """Reach the API server by the options' account; `stopped` is called when the replica can do nothing more.

        Raises:
            Misconfigured: the program runs outside of a cluster.
        """
        folder = options.account
        try:
            account = service_account.find(os.environ, folder)
        except NotInCluster as error:
            raise Misconfigured(f"there is no API server to ask: {error}") from None
        self._metrics = ControllersMetrics()
        self._api = CountingApiServer(KubernetesTransport(account), account.token, _NAME, self._metrics)
        electing = StreamingApiServer(
            KubernetesTransport(account, _LEASE_SECONDS, _LEASE_SECONDS), account.token, _NAME
        )
        self._configuration = configuration
        self._namespace = namespace = (folder / "namespace").read_text().strip()
        self._lease = lease.Lease(electing, _NAME, namespace, f"{socket.gethostname()}-{os.getpid()}")
        self._stopped, self._options = stopped, options
        self._ended = threading.Event()
        self._leader: Leader | None = None
        self._thread = threading.Thread(target=self._elect, name="election", daemon=True)

    def start(self) -> None:
        """Begin to take part in the election."""
        self._thread.start()

    def end(self) -> None:
        """End the work, or the wait for the Lease, so that another replica can lead."""
        self._lease.withdraw()
        self._ended.set()

    def join(self, seconds: float) -> None:
        """Wait for the end of the work, and release the Lease."""
        self._thread.join(seconds)
        self._lease.release()

    def reasons(self) -> list[str]:
        """Return why nothing is reconciled; empty also in a replica that waits for the Lease, because another one works."""
        return [] if self._leader is None else list(self._leader.reasons())

    def metrics_text(self) -> str:
        """Return the text of /metrics."""
        return self._metrics.text(self._leader)

    def _elect(self) -> None:
        try:
            lease.lead(self._lease, self._lead, self._lost)
        finally:
            self._stopped()

    def _lost(self) -> None:
        if not self._ended.is_set():
            _log.error("this replica does not have the Lease any more; it ends")
        self._ended.set()

    def _lead(self) -> None:
        _log.info("leading: listing the cluster's objects")
        leader = Leader(
            self._api,
            self._ended,
            self._configuration,
            self._namespace,
            cleans_up=self._options.cleans_up,
            places_gangs=self._options.places_gangs,
        )
        self._leader = leader
        leader.run()
