"""A command in a container, by the subresource `exec` of its pod.

Source: kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1, "connect GET requests to exec of Pod".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import NamedTuple, Protocol
from urllib.parse import urlencode

from railnet.apiserver.client import Answer, NoAnswer, RequestFailed, message
from railnet.apiserver.request import ApiObject, Request, Verb

_MOST_TEXT = 400


class ExecutedCommand(NamedTuple):
    """The outcome of a command.

    Attributes:
        out, said: what it wrote to standard output and to standard error.
        failure: why it did not succeed, as the node's runtime says it; empty if it did.
        refusal: the API server's answer, if it has begun no command.
        failure_code: the status of HTTP in the failure, if the API server or the node could not run the command to its end; 0 if the command
            itself has failed (k8s.io/kubelet, pkg/cri/streaming/remotecommand/exec.go: NonZeroExitCode has no code, InternalError has 500).
    """

    out: str
    said: str
    failure: str
    refusal: Answer | None
    failure_code: int = 0


class ExecTransport(Protocol):
    """A transport that can run commands."""

    def execute(self, request: Request, headers: Mapping[str, str], seconds: float) -> ExecutedCommand:
        """Run the command of a request, for at most some seconds.

        Raises:
            OSError: there is no answer, or the command has not ended.
        """


class PodExec:
    """Runs commands in pods with the rights of a user. Threads may share it."""

    def __init__(self, transport: ExecTransport, token: Callable[[], str]) -> None:
        """Send through a transport; `token` is as `ApiServer`'s."""
        self._transport, self._token = transport, token

    def run(self, pod: ApiObject, container: str, command: Sequence[str], seconds: float) -> str:
        """Run a command, and return what it wrote to standard output.

        Raises:
            NoAnswer: there is no answer, or the command did not end within some seconds.
            RequestFailed: it could not be run, which has the status of HTTP; or it has failed, which has the status 0.
        """
        about = replace(pod, subresource="exec")
        options = [("container", container), ("stdout", "true"), ("stderr", "true")]
        query = urlencode([*options, *(("command", text) for text in command)])
        token = self._token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            done = self._transport.execute(Request(Verb.GET, about, query=query), headers, seconds)
        except OSError as error:
            raise NoAnswer(f"cannot run a command by {about}: {error!s:.400}") from None
        if done.refusal is not None:
            raise RequestFailed(_refused(about, done.refusal), done.refusal.status)
        if done.failure:
            stderr = f": {done.said.strip()[-_MOST_TEXT:]}" if done.said.strip() else ""
            text = f"cannot run a command by {about}: {done.failure[:_MOST_TEXT]}{stderr}"
            raise RequestFailed(text, done.failure_code)
        return done.out


def _refused(about: ApiObject, refusal: Answer) -> str:
    cause = message(refusal.body)[:_MOST_TEXT]
    if refusal.status == HTTPStatus.FORBIDDEN:
        cause = f"you lack the right 'create' or 'get' on pods/exec, or a policy forbids the request: {cause}"
    return f"cannot run a command by {about}: HTTP {refusal.status}: {cause}"
