"""What came of a command in a pod, in words."""

import pytest

from railnet.apiserver.client import Answer, NoAnswer, RequestFailed
from railnet.apiserver.pod_exec import ExecutedCommand, PodExec
from railnet.apiserver.request import ApiObject, Request

POD = ApiObject("v1", "pods", "train", "ml")


class Transport:
    """Gives one outcome, or raises it."""

    def __init__(self, outcome: ExecutedCommand | OSError) -> None:
        self._outcome = outcome
        self.asked: list[tuple[Request, dict[str, str], float]] = []

    def execute(self, request: Request, headers: dict[str, str], seconds: float) -> ExecutedCommand:
        self.asked.append((request, headers, seconds))
        if isinstance(self._outcome, OSError):
            raise self._outcome
        return self._outcome


def run(outcome: ExecutedCommand | OSError, token: str = "a-token") -> tuple[str, Transport]:  # noqa: S107 - no secret
    transport = Transport(outcome)
    return PodExec(transport, lambda: token).run(POD, "main", ["echo", "a b&c"], 3.0), transport  # type: ignore[arg-type]


def test_command_and_token_are_sent_and_its_output_comes_back() -> None:
    said, transport = run(ExecutedCommand("out", "err", "", None))
    ((request, headers, seconds),) = transport.asked

    assert (said, seconds, headers) == ("out", 3.0, {"Authorization": "Bearer a-token"})
    path = "/api/v1/namespaces/ml/pods/train/exec?container=main&stdout=true&stderr=true&command=echo&command=a+b%26c"
    assert request.path == path


def test_user_of_a_certificate_sends_no_token() -> None:
    _, transport = run(ExecutedCommand("", "", "", None), token="")

    assert transport.asked[0][1] == {}


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (ExecutedCommand("", "why\n", "exit code 3", None), "exit code 3: why$"),
        (ExecutedCommand("", "", "exit code 3", None), "exit code 3$"),
        (OSError("no route"), "cannot run a command by pods/train/exec in namespace ml: no route"),
        (
            ExecutedCommand("", "", "", Answer(404, "", "", b'{"message": "pods not found"}')),
            "HTTP 404: pods not found",
        ),
        (ExecutedCommand("", "", "", Answer(502, "", "", b"bad gateway")), "HTTP 502: bad gateway"),
        (
            ExecutedCommand("", "", "", Answer(403, "", "", b"{}")),
            "HTTP 403: you lack the right 'create' or 'get' on pods/exec",
        ),
    ],
)
def test_failure_is_named(outcome: ExecutedCommand | OSError, words: str) -> None:
    with pytest.raises(RequestFailed, match=words):
        run(outcome)


@pytest.mark.parametrize(
    ("outcome", "kind", "status"),
    [
        (OSError("no route"), NoAnswer, 0),
        (ExecutedCommand("", "", "exit code 137", None), RequestFailed, 0),
        (ExecutedCommand("", "", "Internal error occurred: container not found", None, 500), RequestFailed, 500),
        (ExecutedCommand("", "", "", Answer(502, "", "", b"bad gateway")), RequestFailed, 502),
    ],
    ids=["no answer", "the command fails", "the node fails", "a refusal"],
)
def test_command_that_fails_is_told_from_one_that_was_not_run(
    outcome: ExecutedCommand | OSError, kind: type[RequestFailed], status: int
) -> None:
    with pytest.raises(RequestFailed) as failed:
        run(outcome)

    assert (type(failed.value), failed.value.status) == (kind, status)
