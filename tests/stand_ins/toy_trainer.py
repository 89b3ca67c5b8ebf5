"""A stand-in for TensorFlow with parameter servers: tasks that know their peers by TF_CONFIG alone, and talk to them over TCP.

It learns nothing. A worker counts steps: it reports each step to every parameter server, waits for their answers, and writes the
step to its checkpoint. A restarted worker goes on after its checkpoint. Workers greet each other all the time and wait for none,
as in asynchronous training. A name is resolved again for each connection, because a peer that was made again has another address
or port.

This file is a whole program of the standard library, so that a pod can run its text:
`TF_CONFIG=… toy_trainer.py [--steps N] [--checkpoint FOLDER] [--step-seconds S] [--bytes N] [--hold FILE]`.
It prints `resumed at step N`, `complete at step N` (and ends with 0), and `reached ps-0 at 10.0.0.1:2222` for each new
connection. A parameter server serves until it is killed. SIGTERM ends every task with 143, which KubeDL and Kubeflow take for
"try again".
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import socketserver
import sys
import threading
import time
from pathlib import Path

_RETRY_SECONDS = 0.2
_ANSWER_SECONDS = 5.0
_GREETING_SECONDS = 0.5


class BadConfiguration(ValueError):
    """TF_CONFIG does not describe this task; the message says what is wrong with it."""


class Cluster:
    """What TF_CONFIG says.

    Attributes:
        addresses: host and port by the name of the task, such as `worker-1`.
        name: of this task.
    """

    def __init__(self, text: str) -> None:
        """Read TF_CONFIG in KubeDL's form, or in Kubeflow's sparse form, in which a role's tasks have their indices as keys.

        Raises:
            BadConfiguration: a part is missing or is not of the form `host:port`.
        """
        try:
            config = json.loads(text)
            task = config["task"]
            self.role, self.index = str(task["type"]), int(task["index"])
            self.addresses = {
                f"{role}-{index}": _address(entry)
                for role, entries in config["cluster"].items()
                for index, entry in (entries.items() if isinstance(entries, dict) else enumerate(entries))
            }
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise BadConfiguration(f"TF_CONFIG cannot be used ({error!r}): {text[:400]!r}") from None
        self.name = f"{self.role}-{self.index}"
        if self.name not in self.addresses:
            raise BadConfiguration(f"TF_CONFIG's cluster has no {self.name}, only {', '.join(sorted(self.addresses))}")

    def peers(self, *, parameter_servers: bool) -> "dict[str, tuple[str, int]]":
        """Return the addresses of the parameter servers, or of the other tasks, without this task."""
        return {
            name: address
            for name, address in self.addresses.items()
            if name != self.name and name.startswith("ps-") == parameter_servers
        }


def _address(entry: str) -> "tuple[str, int]":
    host, _, port = entry.rpartition(":")
    if not host:
        raise ValueError(f"{entry!r} has no port")
    return host.strip("[]"), int(port)


class Peer:
    """The connection to another task, made again whenever it breaks."""

    def __init__(self, name: str, address: "tuple[str, int]") -> None:
        self.name, self._address = name, address
        self._stream = None

    def ask(self, request: "dict[str, object]") -> "dict[str, object]":
        """Send a request and return the answer; try until there is one."""
        said = ""
        while True:
            try:
                return self.ask_once(request)
            except (OSError, ValueError) as error:
                if said != (said := str(error)):
                    say(f"{self.name} does not answer: {said}")
                time.sleep(_RETRY_SECONDS)

    def ask_once(self, request: "dict[str, object]") -> "dict[str, object]":
        """Send a request and return the answer.

        Raises:
            OSError: the peer cannot be reached, or the connection broke.
            ValueError: the answer is not the peer's.
        """
        try:
            if self._stream is None:
                self._connect()
            self._stream.write(json.dumps(request).encode() + b"\n")
            self._stream.flush()
            line = self._stream.readline()
            if not line:
                raise ConnectionError("the connection was closed")
            answer = json.loads(line)
            if answer["task"] != self.name:
                raise ValueError(f"{answer['task']} answers at its address")
        except (OSError, ValueError):
            self.close()
            raise
        return answer

    def close(self) -> None:
        if self._stream is not None:
            with contextlib.suppress(OSError):  # what is left to flush cannot be sent
                self._stream.close()
            self._stream = None

    def _connect(self) -> None:
        with socket.create_connection(self._address, timeout=_ANSWER_SECONDS) as connection:  # resolves the name
            self._stream = connection.makefile("rwb")
            host, port = connection.getpeername()[:2]
        say(f"reached {self.name} at {host}:{port}")


class Task:
    """What this task answers to others: its own name, and the steps it knows of."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._steps = {}
        self._lock = threading.Lock()

    def advance(self, name: str, step: int) -> None:
        """Note the step of a task; a lower one than before is no news."""
        with self._lock:
            self._steps[name] = max(step, self._steps.get(name, 0))

    def answer(self, request: "dict[str, object]") -> "dict[str, object]":
        self.advance(str(request["from"]), int(request["step"]))
        with self._lock:
            return {"task": self.name, "steps": dict(self._steps)}

    def listen(self, port: int) -> None:
        """Serve in threads until the process ends.

        Raises:
            OSError: another process has the port.
        """
        task = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):  # the peer is gone
                    for line in self.rfile:
                        self.wfile.write(json.dumps(task.answer(json.loads(line))).encode() + b"\n")

        server = _Listening(("", port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()


class _Listening(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class Checkpoint:
    """The last step of one worker, in a file that is whole at any time."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path, self._new = folder / f"{name}.step", folder / f"{name}.step.new"

    def read(self) -> int:
        """Return the step; 0 if there is none yet."""
        try:
            return int(self._path.read_text())
        except FileNotFoundError:
            return 0

    def write(self, step: int) -> None:
        with self._new.open("w") as file:
            file.write(str(step))
            file.flush()
            os.fsync(file.fileno())
        self._new.replace(self._path)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _greet(task: Task, peer: Peer) -> None:
    """Greet another worker for ever; it may not be there yet, or not any more."""
    while True:
        with contextlib.suppress(OSError, ValueError):
            peer.ask_once({"from": task.name, "step": 0})
        time.sleep(_GREETING_SECONDS)


def train(cluster: Cluster, task: Task, options: argparse.Namespace) -> None:
    """Do the steps that the checkpoint does not have."""
    for name, address in cluster.peers(parameter_servers=False).items():
        threading.Thread(target=_greet, args=(task, Peer(name, address)), daemon=True).start()
    checkpoint = Checkpoint(options.checkpoint, cluster.name)
    first = checkpoint.read()
    say(f"resumed at step {first}" if first else "started at step 0")
    servers = [Peer(name, address) for name, address in cluster.peers(parameter_servers=True).items()]
    for step in range(first + 1, options.steps + 1):
        for server in servers:
            server.ask({"from": cluster.name, "step": step, "gradients": "x" * options.bytes})
        checkpoint.write(step)
        task.advance(cluster.name, step)
        time.sleep(options.step_seconds)
    while options.hold is not None and options.hold.exists():
        for server in servers:  # one that was killed after its last step reaches its servers too
            server.ask({"from": cluster.name, "step": options.steps})
        time.sleep(_RETRY_SECONDS)
    say(f"complete at step {options.steps}")


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))  # as process 1 it would not end otherwise
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--checkpoint", type=Path, default=Path(), help="the folder of the checkpoint")
    parser.add_argument(
        "--hold", type=Path, help="a file: while it exists, no worker is complete, and each reports its last step"
    )
    parser.add_argument("--step-seconds", type=float, default=0.1)
    parser.add_argument(
        "--bytes", type=int, default=0, help="how many bytes a worker sends with each step to each parameter server"
    )
    parser.add_argument("arguments", nargs="*", help="those of TensorFlow's plain templates; TF_CONFIG says the same")
    options = parser.parse_args()
    try:
        cluster = Cluster(os.environ.get("TF_CONFIG", ""))
    except BadConfiguration as error:
        sys.exit(str(error))
    task = Task(cluster.name)
    task.listen(cluster.addresses[cluster.name][1])
    if cluster.role == "ps":
        say("serving")
        threading.Event().wait()
    train(cluster, task, options)


if __name__ == "__main__":
    main()
