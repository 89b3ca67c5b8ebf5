"""`railnet admission`: the webhook's program, composed of policy, certificates and HTTPS server; it runs until SIGTERM."""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn, Protocol

from railnet.admission.certificates.cluster_objects import NAME, ClusterObjects
from railnet.admission.certificates.folder import Folder
from railnet.admission.certificates.reconcile_step import Keeper
from railnet.admission.certificates.renewal_loop import Own, utc_now
from railnet.admission.gang.engine_choice import GATES, ChosenEngine, GangEngine
from railnet.admission.review_configuration import Policy
from railnet.admission.server.server import WebhookServer
from railnet.admission.tls import Shown
from railnet.apiserver import service_account
from railnet.apiserver.client import StreamingApiServer
from railnet.apiserver.kubernetes_package_transport import KubernetesTransport
from railnet.apiserver.service_account import NotInCluster
from railnet.configuration import Configuration
from railnet.errors import Misconfigured
from railnet.health_server import Health, Pages
from railnet.webhook import watched_host_ports
from railnet.webhook.explain_command import policy
from railnet.webhook.gang_engine_probe import GangEngineProbe
from railnet.webhook.metrics import AdmissionMetrics
from railnet.webhook.watched_claims import WatchedClaims

_log = logging.getLogger(__name__)
_ENDING = (signal.SIGTERM, signal.SIGINT)
_DRAIN_SECONDS = 10.0
_NAMESPACE = "railnet"


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """The options of the command line, which says what each is. `certificates` and `host_ports` are None without the option."""

    port: int
    health_port: int
    certificates: Path | None
    account: Path
    leave_seconds: float
    host_ports: str | None = None
    gangs: bool = False
    gang_engine: str = GangEngine.GATES
    claims: bool = False


class Certificates(Protocol):
    """The source of the server's certificate."""

    def reasons(self) -> list[str]:
        """Return why API servers cannot trust the certificate; empty if they can."""

    async def keep(self) -> NoReturn:
        """Keep the certificate valid and trusted, until cancelled."""


async def serve(configuration: Configuration, options: WebhookOptions) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        Misconfigured: the program runs outside of a cluster, and no folder of certificates is given, or host-network mode is on; or
            its range of ports is none.
        OSError: the port is taken.
    """
    ended = asyncio.Event()
    for number in _ENDING:
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    shown = Shown()
    namespace = _namespace(options.account)
    certificates = _certificates(options, namespace, shown)
    metrics = AdmissionMetrics(lambda: None if shown.leaf is None else shown.leaf.ends)
    ports = None
    if options.host_ports is not None:
        ports = watched_host_ports.watch(options.host_ports, _api(options.account), namespace)
    engine = _gang_engine(options, namespace)
    rules = policy(configuration)
    claims = _claims(options, rules)
    server = WebhookServer(
        rules,
        metrics,
        shown,
        ports,
        gangs=options.gangs,
        gang_engine=engine,
        claimed=None if claims is None else claims.vfs,
    )
    health = Health(Pages(lambda: ["it is starting"], metrics.text))
    async with health.serving(options.health_port, host=None):
        await server.listen(options.port)
        keeping = asyncio.create_task(certificates.keep())
        reasons = partial(_reasons, server, shown, certificates, names(namespace)[0], claims)
        health.show(Pages(reasons, metrics.text))
        _log.info("serving reviews on port %d", server.port)
        gc.collect()
        gc.freeze()  # these objects live as long as the program; scanning them again finds no garbage
        try:
            await _until(ended, keeping)
            await _leave(server, options.leave_seconds)
        finally:
            keeping.cancel()
            await server.close(_DRAIN_SECONDS)


def names(namespace: str) -> tuple[str, ...]:
    """Return the DNS names of the Service; API servers use the first."""
    return (f"{NAME}.{namespace}.svc", f"{NAME}.{namespace}.svc.cluster.local", f"{NAME}.{namespace}", NAME)


async def _until(ended: asyncio.Event, keeping: asyncio.Task[NoReturn]) -> None:
    """Wait for a signal; the task that keeps the certificates ends only by an error, which is raised here."""
    waiting = asyncio.create_task(ended.wait())
    await asyncio.wait((waiting, keeping), return_when=asyncio.FIRST_COMPLETED)
    if keeping.done():
        await keeping


async def _leave(server: WebhookServer, seconds: float) -> None:
    _log.info("ending: not ready from now on; new connections are refused after %g s", seconds)
    server.leave()
    await asyncio.sleep(seconds)


def _certificates(options: WebhookOptions, namespace: str, shown: Shown) -> Certificates:
    if options.certificates is not None:
        return Folder(options.certificates, shown)
    return Own(Keeper(ClusterObjects(_api(options.account), namespace), names(namespace), utc_now), shown)


def _gang_engine(options: WebhookOptions, namespace: str) -> Callable[[], ChosenEngine]:
    """Return what returns the engine for new pods of gangs."""
    wanted = GangEngine(options.gang_engine)
    if not options.gangs or wanted is GangEngine.GATES:
        return lambda: GATES
    probe = GangEngineProbe(_api(options.account), namespace, wanted)
    probe.start()
    return probe.engine


def _claims(options: WebhookOptions, rules: Policy) -> WatchedClaims | None:
    """Return the claims, which are watched from now on; None without the option."""
    if not options.claims:
        return None
    watched = WatchedClaims(_api(options.account), rules.resources)
    watched.start()
    return watched


def _api(folder: Path) -> StreamingApiServer:
    try:
        account = service_account.find(os.environ, folder)
    except NotInCluster as error:
        raise Misconfigured(
            f"there is no API server to ask: {error}; outside of a cluster, give --certificates, and no --host-ports"
        ) from None
    return StreamingApiServer(KubernetesTransport(account), account.token, NAME)


def _reasons(
    server: WebhookServer, shown: Shown, certificates: Certificates, name: str, claims: WatchedClaims | None
) -> list[str]:
    trouble = shown.trouble(utc_now(), name)
    return [
        *([] if server.accepts else ["it takes no connections, because it is ending"]),
        *([trouble] if trouble else []),
        *certificates.reasons(),
        *([] if claims is None else claims.reasons()),
    ]


def _namespace(account: Path) -> str:
    try:
        return (account / "namespace").read_text().strip() or _NAMESPACE
    except OSError:
        return _NAMESPACE
