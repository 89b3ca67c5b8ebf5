"""What came of a command in a pod, in words."""

import pytest

from railnet.apiserver.client import Answer, RequestFailed
from railnet.apiserver.pod_exec import Executed, PodExec
from railnet.apiserver.request import ApiObject, Request

POD = ApiObject("v1", "pods", "train", "ml")


class Transport:
    """Gives one outcome, or raises it."""

    def __init__(self, outcome: Executed | OSError) -> None:
        self._outcome = outcome
        self.asked: list[tuple[Request, dict[str, str], float]] = []

    def execute(self, request: Request, headers: dict[str, str], seconds: float) -> Executed:
        self.asked.append((request, headers, seconds))
        if isinstance(self._outcome, OSError):
            raise self._outcome
        return self._outcome


def run(outcome: Executed | OSError, token: str = "a-token") -> tuple[str, Transport]:  # noqa: S107 - no secret
    transport = Transport(outcome)
    return PodExec(transport, lambda: token).run(POD, "main", ["echo", "a b&c"], 3.0), transport  # type: ignore[arg-type]


def test_command_and_token_are_sent_and_its_output_comes_back() -> None:
    said, transport = run(Executed("out", "err", "", None))
    ((request, headers, seconds),) = transport.asked

    assert (said, seconds, headers) == ("out", 3.0, {"Authorization": "Bearer a-token"})
    path = "/api/v1/namespaces/ml/pods/train/exec?container=main&stdout=true&stderr=true&command=echo&command=a+b%26c"
    assert request.path == path


def test_user_of_a_certificate_sends_no_token() -> None:
    _, transport = run(Executed("", "", "", None), token="")

    assert transport.asked[0][1] == {}


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Executed("", "why\n", "exit code 3", None), "exit code 3: why$"),
        (Executed("", "", "exit code 3", None), "exit code 3$"),
        (OSError("no route"), "cannot run a command by pods/train/exec in namespace ml: no route"),
        (Executed("", "", "", Answer(404, "", "", b'{"message": "pods not found"}')), "HTTP 404: pods not found"),
        (Executed("", "", "", Answer(502, "", "", b"bad gateway")), "HTTP 502: bad gateway"),
        (
            Executed("", "", "", Answer(403, "", "", b"{}")),
            "HTTP 403: you lack the right 'create' or 'get' on pods/exec",
        ),
    ],
)
def test_failure_is_named(outcome: Executed | OSError, words: str) -> None:
    with pytest.raises(RequestFailed, match=words):
        run(outcome)
