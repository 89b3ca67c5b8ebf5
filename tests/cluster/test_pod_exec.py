"""A command in a container by a real kubelet, as `railnet validate` runs its probe."""

import pytest

from railnet.apiserver.client import RequestFailed
from railnet.apiserver.pod_exec import PodExec
from railnet.apiserver.request import ApiObject
from railnet.cli.connection import connect_with_exec
from tests.cluster.control_plane import ADMIN
from tests.cluster.node import ClusterNode

_SECONDS = 120.0


@pytest.fixture
def execution() -> PodExec:
    _, found = connect_with_exec({}, str(ADMIN), None, "railnet validate")
    return found


def test_output_of_a_command_comes_back_whole_and_without_its_errors(node: ClusterNode, execution: PodExec) -> None:
    pod = ApiObject("v1", "pods", node.run("train", 1), "default")
    said = execution.run(pod, "main", ["sh", "-c", "seq 1 20000; echo no >&2"], _SECONDS)

    assert said == "".join(f"{number}\n" for number in range(1, 20001))


@pytest.mark.parametrize(
    ("container", "command", "seconds", "words"),
    [
        ("main", ["sh", "-c", "echo this is why >&2; exit 3"], _SECONDS, "exit code 3: this is why"),
        ("main", ["no-such-program"], _SECONDS, "no-such-program"),
        ("main", ["sleep", "60"], 2.0, "2 s"),
        ("other", ["true"], _SECONDS, "container other is not valid"),
    ],
    ids=["fails", "is not there", "does not end", "no such container"],
)
def test_command_that_does_not_succeed_is_named(
    node: ClusterNode, execution: PodExec, container: str, command: list[str], seconds: float, words: str
) -> None:
    pod = ApiObject("v1", "pods", node.run("train"), "default")

    with pytest.raises(RequestFailed, match=words):
        execution.run(pod, container, command, seconds)


def test_pod_that_does_not_exist_is_named(execution: PodExec, node: ClusterNode) -> None:
    with pytest.raises(RequestFailed, match='pods "absent" not found'):
        execution.run(ApiObject("v1", "pods", "absent", "default"), "main", ["true"], _SECONDS)
