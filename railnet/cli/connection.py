"""Connects a user's command to its API server, with the rights of a kubeconfig, or of the pod that the command runs in."""

import random
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING

from railnet.apiserver import service_account
from railnet.apiserver.client import NoAnswer, RequestFailed, StreamingTransport, UserApiServer
from railnet.apiserver.cluster_name import ClusterName
from railnet.apiserver.pod_exec import PodExec
from railnet.apiserver.request import JsonObject, Request
from railnet.backoff import Backoff
from railnet.cli.messages import say
from railnet.errors import Misconfigured

if TYPE_CHECKING:
    from railnet.apiserver.kubernetes_package_transport import PooledTransport

_PROGRAM = "railnet train"
_BACKOFF = Backoff(first_seconds=0.5, longest_seconds=8.0)
_PAUSES = 5
_LONGEST_PAUSE_SECONDS = 30.0  # also if the API server asks for more
_TO_DO = "start the cluster, or choose another one with --kubeconfig or --context (`kubectl cluster-info` says which one this is)"
_REFUSED = "your credentials are wrong or have expired: log in again, or choose others with --kubeconfig or --context"


class PatientApiServer(UserApiServer):
    """Tries a request again after a pause if the API server is overloaded, or does not answer any more.

    An API server that has never answered is not asked again: its address is wrong, or it does not run.

    A request that was done although its answer is lost is done twice: the second creation of an object is a `Conflict`.
    """

    def __init__(
        self,
        transport: StreamingTransport,
        token: Callable[[], str],
        sleep: Callable[[float], None] = time.sleep,
        program: str = _PROGRAM,
    ) -> None:
        """Send through a transport; `program` is the User-Agent."""
        super().__init__(transport, token, program.replace(" ", "-"))
        self._sleep, self._answers = sleep, False

    def send(self, request: Request) -> JsonObject:
        """Send a request and return the object of the answer; as `ApiServer.send`."""
        for failures in range(1, _PAUSES + 1):
            try:
                return self._sent(request)
            except RequestFailed as error:
                if isinstance(error, NoAnswer) and not self._answers:
                    raise NoAnswer(f"the API server does not answer: {error}; {_TO_DO}") from None
                # A token that is refused will be refused again: a kubeconfig is not renewed while the command runs.
                if error.status == HTTPStatus.UNAUTHORIZED:
                    raise RequestFailed(f"{error}; {_REFUSED}", error.status) from None
                if not error.temporary:
                    raise
                pause = _BACKOFF.pause(failures, random.random())  # noqa: S311 - no secret
                seconds = min(max(pause, error.retry_after), _LONGEST_PAUSE_SECONDS)
                say(f"{error}; trying again in {seconds:.1f} s")
                self._sleep(seconds)
        return super().send(request)

    def _sent(self, request: Request) -> JsonObject:
        """Send a request once, and note whether any answer came."""
        try:
            answer = super().send(request)
        except RequestFailed as error:
            self._answers |= not isinstance(error, NoAnswer)
            raise
        self._answers = True
        return answer


def connect(
    environ: Mapping[str, str], kubeconfig: str | None, context: str | None, program: str = _PROGRAM
) -> PatientApiServer:
    """Return the client: by a kubeconfig, or if there is none, by the service account of this pod. `program` is the command in messages.

    Raises:
        Misconfigured: there is neither, or the kubeconfig cannot be used. ModuleNotFoundError: this machine lacks `kubernetes`.
    """
    transport, token = _transport(environ, kubeconfig, context)
    return PatientApiServer(transport, token, program=program)


def connect_with_exec(
    environ: Mapping[str, str], kubeconfig: str | None, context: str | None, program: str
) -> tuple[PatientApiServer, PodExec]:
    """Return the client, and what runs commands in pods with the same rights; `program` is the command in messages.

    Raises:
        Misconfigured: as `connect`.
    """
    api, execution, _ = connect_to_cluster(environ, kubeconfig, context, program)
    return api, execution


def connect_to_cluster(
    environ: Mapping[str, str], kubeconfig: str | None, context: str | None, program: str
) -> tuple[PatientApiServer, PodExec, ClusterName]:
    """Return what `connect_with_exec` returns, and which cluster it is.

    Raises:
        Misconfigured: as `connect`.
    """
    transport, token = _transport(environ, kubeconfig, context)
    return PatientApiServer(transport, token, program=program), PodExec(transport, token), transport.cluster


def _transport(
    environ: Mapping[str, str], kubeconfig: str | None, context: str | None
) -> "tuple[PooledTransport, Callable[[], str]]":
    from railnet.apiserver import kubeconfig_transport as kubeconfigs  # noqa: PLC0415 - the image of the node lacks the package
    from railnet.apiserver.kubernetes_package_transport import KubernetesTransport  # noqa: PLC0415 - as above

    try:
        files = kubeconfigs.files(environ, kubeconfig)
    except kubeconfigs.NoKubeconfig as error:
        if kubeconfig or context or environ.get("KUBECONFIG"):  # not as another user than the one that was named
            raise Misconfigured(str(error)) from None
        try:
            account = service_account.find(environ)
        except service_account.NotInCluster:
            raise Misconfigured(f"{error}; and this is no pod of a cluster") from None
        return KubernetesTransport(account), account.token
    try:
        transport = kubeconfigs.KubeconfigTransport(files, context)
    except kubeconfigs.NoKubeconfig as error:
        raise Misconfigured(str(error)) from None
    return transport, transport.token
