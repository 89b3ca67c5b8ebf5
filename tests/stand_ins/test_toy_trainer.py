"""The toy trainer as plain processes on the loopback: two parameter servers and three workers, which are killed and come back."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Self

import pytest

from tests import waiting
from tests.free_port import free_port
from tests.stand_ins import toy_trainer

_PROGRAM = Path(toy_trainer.__file__)
_ROLES = {"ps": 2, "worker": 3}
_SECONDS = 60.0


class Job:
    """The tasks of one job, each with a log; `cluster` is TF_CONFIG's, which a test may change before it starts a task."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.cluster = {role: [f"localhost:{free_port()}" for _ in range(count)] for role, count in _ROLES.items()}

    def start(self, role: str, index: int, *options: str, own_port: int = 0) -> None:
        """Start a task; with `own_port` it listens there, and its peers know another port, as in host-network mode."""
        cluster = json.loads(json.dumps(self.cluster))
        if own_port:
            cluster[role][index] = f"localhost:{own_port}"
        config = {"cluster": cluster, "task": {"type": role, "index": index}, "environment": "cloud"}
        command = [sys.executable, _PROGRAM, f"--checkpoint={self._folder}", *options]
        with self._log(role, index).open("ab") as log:
            self._processes[f"{role}-{index}"] = subprocess.Popen(
                command, env={**os.environ, "TF_CONFIG": json.dumps(config)}, stdout=log, stderr=log
            )

    def kill(self, role: str, index: int, how: signal.Signals = signal.SIGKILL) -> int:
        process = self._processes[f"{role}-{index}"]
        process.send_signal(how)
        return process.wait(_SECONDS)

    def status(self, role: str, index: int) -> int | None:
        return self._processes[f"{role}-{index}"].poll()

    def end(self, role: str, index: int) -> int:
        return self._processes[f"{role}-{index}"].wait(_SECONDS)

    def said(self, role: str, index: int) -> str:
        return self._log(role, index).read_text()

    def wait_for(self, role: str, index: int, words: str) -> None:
        waiting.until(lambda: words in self.said(role, index), _SECONDS, f"{role}-{index} to say {words!r}")

    def step(self, index: int) -> int:
        return toy_trainer.Checkpoint(self._folder, f"worker-{index}").read()

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _log(self, role: str, index: int) -> Path:
        return self._folder / f"{role}-{index}.log"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with contextlib.closing(Job(tmp_path)) as made:
        yield made


class Forwarder:
    """Forwards each new connection to the port that `target` returns at that moment, as a Service does; a context manager."""

    def __init__(self, target: Callable[[], int]) -> None:
        self._target = target
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = [socket.create_server(("localhost", 0))]
        self.port: int = self._sockets[0].getsockname()[1]

    def __enter__(self) -> Self:
        self._start(self._serve, self._sockets[0])
        return self

    def __exit__(self, *_: object) -> None:
        """End the connections, also those that are being made."""
        while running := [thread for thread in self._threads if thread.is_alive()]:
            for each in self._sockets:
                _shut_down(each)
            running[0].join(0.1)
        for each in self._sockets:
            each.close()

    def _start(self, run: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=run, args=arguments))
        self._threads[-1].start()

    def _serve(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                self._sockets.append(client)
                try:
                    server = socket.create_connection(("localhost", self._target()))
                except OSError:
                    client.close()
                    continue
                self._sockets.append(server)
                self._start(_copy, client, server)
                self._start(_copy, server, client)


def _copy(source: socket.socket, to: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            to.sendall(data)
    for each in (source, to):
        _shut_down(each)


def _shut_down(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
def test_killed_worker_resumes_at_its_checkpoint_and_all_complete(job: Job, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    options = ("--steps=30", "--step-seconds=0.02", f"--hold={hold}")
    for role, count in _ROLES.items():
        for index in range(count):
            job.start(role, index, *options, "--bytes=2000")
    waiting.until(lambda: job.step(1) >= 5, _SECONDS, "worker-1 to do five steps")
    job.kill("worker", 1)
    reached = job.step(1)
    job.start("worker", 1, *options)
    job.wait_for("worker", 1, f"resumed at step {reached}\n")
    waiting.until(lambda: [job.step(index) for index in range(3)] == [30] * 3, _SECONDS, "the last step of each worker")
    held = [job.status("worker", index) for index in range(3)]
    hold.unlink()

    assert [job.end("worker", index) for index in range(3)] == [0, 0, 0]
    assert held == [None] * 3
    assert [job.said("worker", index).count("complete at step 30") for index in range(3)] == [1, 1, 1]
    assert "resumed" not in job.said("worker", 0) + job.said("worker", 2)
    assert [job.status("ps", index) for index in range(2)] == [None, None]
    assert job.kill("ps", 0, signal.SIGTERM) == 128 + signal.SIGTERM


@pytest.mark.slow
def test_held_worker_that_is_killed_after_its_last_step_reaches_its_servers_again(job: Job, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    options = ("--steps=2", "--step-seconds=0.02", f"--hold={hold}")
    for role, count in _ROLES.items():
        for index in range(count):
            job.start(role, index, *options)
    waiting.until(lambda: job.step(1) == 2, _SECONDS, "the last step of worker-1")
    job.kill("worker", 1)
    job.start("worker", 1, *options)
    job.wait_for("worker", 1, "resumed at step 2\n")
    for index in range(_ROLES["ps"]):
        waiting.until(
            lambda reached=f"reached ps-{index} at": job.said("worker", 1).count(reached) == 2,
            _SECONDS,
            f"worker-1 to reach ps-{index} again",
        )
    hold.unlink()

    assert job.end("worker", 1) == 0


@pytest.mark.slow
def test_peers_go_on_when_a_task_comes_back_on_another_port(job: Job) -> None:
    ports = {"ps": free_port(), "worker": free_port()}
    with Forwarder(lambda: ports["ps"]) as ps, Forwarder(lambda: ports["worker"]) as worker:
        job.cluster = {
            "ps": [f"localhost:{ps.port}"],
            "worker": [job.cluster["worker"][0], f"localhost:{worker.port}"],
        }
        job.start("ps", 0, own_port=ports["ps"])
        job.start("worker", 0, "--steps=1000000", "--step-seconds=0.01")
        job.start("worker", 1, "--steps=1000000", "--step-seconds=0.01", own_port=ports["worker"])
        job.wait_for("worker", 0, "reached worker-1")
        waiting.until(lambda: min(job.step(0), job.step(1)) >= 3, _SECONDS, "steps")
        for role, index in (("ps", 0), ("worker", 1)):
            job.kill(role, index)
            ports[role] = free_port()
            greeted, at = job.said("worker", 0).count("reached"), job.step(0)
            job.start(role, index, "--steps=1000000", own_port=ports[role])
            back = f"after {role}-{index} came back"
            waiting.until(lambda before=at: job.step(0) > before + 3, _SECONDS, f"steps of worker-0 {back}")
            said = partial(job.said, "worker", 0)
            waiting.until(
                lambda n=greeted, said=said: said().count("reached") > n, _SECONDS, f"a new connection {back}"
            )

        # The forwarder takes worker-0's connection before worker-1 listens.
        job.wait_for("worker", 1, "resumed at step")
        assert job.status("worker", 0) is None


def test_name_is_resolved_again_for_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = toy_trainer.Task("ps-0"), toy_trainer.Task("ps-0")
    ports = [free_port(), free_port()]
    for task, port in zip((first, second), ports, strict=True):
        task.listen(port)
    asked: list[object] = []

    def resolve(host: object, *_: object) -> list[object]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", ports[len(asked) - 1]))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    peer = toy_trainer.Peer("ps-0", ("mnist-ps-0.ml.svc", 2222))
    peer.ask_once({"from": "worker-0", "step": 1})
    peer.ask_once({"from": "worker-0", "step": 2})
    peer.close()
    answer = peer.ask_once({"from": "worker-0", "step": 3})
    peer.close()

    assert asked == ["mnist-ps-0.ml.svc"] * 2
    assert answer == {"task": "ps-0", "steps": {"worker-0": 3}}


def test_answer_of_another_task_is_refused() -> None:
    port = free_port()
    toy_trainer.Task("ps-1").listen(port)
    peer = toy_trainer.Peer("ps-0", ("localhost", port))

    with pytest.raises(ValueError, match="ps-1 answers at its address"):
        peer.ask_once({"from": "worker-0", "step": 1})


def test_sparse_tf_config_of_kubeflow_is_read() -> None:
    config = {"cluster": {"ps": ["a:1"], "worker": {"2": "[fd00::1]:2222"}}, "task": {"type": "worker", "index": 2}}
    cluster = toy_trainer.Cluster(json.dumps(config))

    assert (cluster.name, cluster.addresses) == ("worker-2", {"ps-0": ("a", 1), "worker-2": ("fd00::1", 2222)})
    assert cluster.peers(parameter_servers=True) == {"ps-0": ("a", 1)}
    assert cluster.peers(parameter_servers=False) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be used"),
        ("[]", "cannot be used"),
        ('{"cluster": {"ps": ["a"]}, "task": {"type": "ps", "index": 0}}', "'a' has no port"),
        ('{"cluster": {"ps": ["a:1"]}, "task": {"type": "worker", "index": 0}}', "no worker-0, only ps-0"),
    ],
)
def test_bad_tf_config_is_named(text: str, words: str) -> None:
    with pytest.raises(toy_trainer.BadConfiguration, match=words):
        toy_trainer.Cluster(text)
