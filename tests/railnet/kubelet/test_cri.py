"""The CRI client with a container runtime's socket."""

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from railnet.errors import NotReady
from railnet.kubelet.cri import pods_on_host_network, pods_with_sandboxes, sandboxes
from simnode.kubernetes.cri import CriEndpoint, ListedSandbox


def ask(socket: Path, timeout_seconds: float = 20) -> frozenset[str]:
    return asyncio.run(sandboxes(socket, timeout_seconds))


def test_sandboxes_of_the_runtime_are_listed(tmp_path: Path) -> None:
    with CriEndpoint(lambda: (ListedSandbox("c0ffee"), ListedSandbox("beef")), tmp_path / "cri.sock"):
        assert ask(tmp_path / "cri.sock") == {"c0ffee", "beef"}


def test_pods_with_a_sandbox_are_listed_also_one_that_has_ended(tmp_path: Path) -> None:
    listed = (ListedSandbox("a", "uid-1"), ListedSandbox("b", "uid-1"), ListedSandbox("c", "uid-2", ready=False))
    with CriEndpoint(lambda: listed, tmp_path / "cri.sock"):
        assert asyncio.run(pods_with_sandboxes(tmp_path / "cri.sock", 20)) == {"uid-1", "uid-2"}


def test_runtime_without_sandboxes_lists_none(tmp_path: Path) -> None:
    with CriEndpoint(tuple, tmp_path / "cri.sock"):
        assert ask(tmp_path / "cri.sock") == frozenset()


def test_sandboxes_are_not_ready_without_a_socket(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match=r"does not list its sandboxes: .*cri\.sock"):
        ask(tmp_path / "cri.sock")


def test_sandboxes_are_not_ready_if_the_runtime_has_another_version(tmp_path: Path) -> None:
    with CriEndpoint(tuple, tmp_path / "cri.sock", "v1alpha2"), pytest.raises(NotReady):
        ask(tmp_path / "cri.sock")


def test_sandboxes_are_not_ready_if_the_runtime_does_not_answer_in_time(tmp_path: Path) -> None:
    answer = threading.Event()

    def listed() -> Iterable[ListedSandbox]:
        answer.wait(20)
        return ()

    with CriEndpoint(listed, tmp_path / "cri.sock"):
        with pytest.raises(NotReady, match="Deadline Exceeded"):
            ask(tmp_path / "cri.sock", timeout_seconds=0.1)
        answer.set()


PODS = (
    ListedSandbox("c0ffee", "host", on_host=True),
    ListedSandbox("beef", "own"),
    ListedSandbox("dead", "again", on_host=True, ready=False),
    ListedSandbox("face", "again"),
    ListedSandbox("fade", "ended", on_host=True, ready=False),
    ListedSandbox("feed", "both", on_host=True),
    ListedSandbox("f00d", "both"),
    ListedSandbox("babe", "another", on_host=True),
)


def test_pod_is_on_the_hosts_network_if_each_ready_sandbox_of_it_is(tmp_path: Path) -> None:
    asked = {"host", "own", "again", "ended", "both", "missing"}

    with CriEndpoint(lambda: PODS, tmp_path / "cri.sock"):
        assert asyncio.run(pods_on_host_network(tmp_path / "cri.sock", asked, 20)) == {"host"}


def test_network_of_a_pod_is_not_known_if_the_runtime_does_not_answer_in_time(tmp_path: Path) -> None:
    answer = threading.Event()

    def listed() -> Iterable[ListedSandbox]:
        answer.wait(20)
        return PODS

    with CriEndpoint(listed, tmp_path / "cri.sock"):
        with pytest.raises(NotReady, match="does not say which network"):
            asyncio.run(pods_on_host_network(tmp_path / "cri.sock", {"host"}, 0.1))
        answer.set()


def test_network_of_a_pod_is_not_known_without_a_socket(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match=r"does not say which network .*cri\.sock"):
        asyncio.run(pods_on_host_network(tmp_path / "cri.sock", {"host"}, 20))
