"""Measure the reviews per second of one core: `railnet admission` over TLS 1.3, four kept-alive connections, a 7 KiB pod.

Run by `scripts/bench webhook`. The server has one core, the client another; each of four threads sends the same review as
soon as it has its answer, which is looked at. What the client's core was busy is printed, too: near 100 % the figure is its own.
"""

import argparse
import json
import os
import resource
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from railnet.admission.certificates import authority

NAME = "railnet-admission.railnet.svc"
CONNECTIONS = 4
WARM_UP_SECONDS = 2.0
POD_BYTES = 7 << 10
LOG = "log"
TARGET_PER_SECOND, TARGET_P99_MS = 800, 8.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench webhook", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each run is (20)")
    parser.add_argument("--runs", type=int, default=1, help="runs, of which the median is printed (1)")
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:  # noqa: PLR2004 - one for each side
        sys.exit("scripts/bench webhook: there is one core only; it needs another for the client")
    runs = [measure(cores[0], cores[-1], arguments.seconds) for _ in range(arguments.runs)]
    figures = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    if arguments.json:
        print(json.dumps({"runs": runs, "median": figures}))
        return
    for name, value in figures.items():
        print(f"{name:<28}{value:>10.2f}")
    print(f"target: at least {TARGET_PER_SECOND} reviews/s, p99 at most {TARGET_P99_MS:g} ms")


def measure(server_core: int, client_core: int, seconds: float) -> dict[str, float]:
    """Run a server and its clients once."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        trusted = write_certificate(folder)
        ports = free_port(), free_port()
        os.sched_setaffinity(0, {server_core})  # the child inherits it
        server = stack.enter_context(start(folder, *ports))
        stack.callback(server.terminate)
        os.sched_setaffinity(0, {client_core})
        context = ssl.create_default_context(cadata=trusted)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        wait_for(folder, ports[1])
        return load(context, ports[0], server.pid, seconds)


def write_certificate(folder: Path) -> str:
    """Write the server's certificate and key into a folder; return its authority's certificate, as PEM."""
    signer = authority.make(datetime.now(UTC))
    leaf = authority.sign(signer, [NAME], datetime.now(UTC))
    (folder / "tls.crt").write_bytes(leaf.chain)
    (folder / "tls.key").write_bytes(leaf.key)
    return authority.certificate_pem([signer.certificate]).decode()


def start(folder: Path, port: int, health_port: int) -> "subprocess.Popen[bytes]":
    """Start the server as its container does, with other certificates, and with a node configuration of defaults."""
    configuration = folder / "node.yaml"
    configuration.write_text("{}\n")
    options = {
        "port": port,
        "health-port": health_port,
        "certificates": folder,
        "config": configuration,
        "leave-seconds": 0,
    }
    arguments = [f"--{name}={value}" for name, value in options.items()]
    with (folder / LOG).open("wb") as log:
        return subprocess.Popen([sys.executable, "-m", "railnet", "admission", *arguments], stderr=log)


class Client(threading.Thread):
    """One connection, which sends requests until it is stopped; `milliseconds` has the time of each counted answer."""

    def __init__(self, context: ssl.SSLContext, port: int, raw: bytes) -> None:
        """Connect."""
        super().__init__(daemon=True)
        self._to = context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname=NAME)
        self._raw = raw
        self.counts, self.ends = False, False
        self.milliseconds: list[float] = []
        self.failure: Exception | None = None

    def run(self) -> None:
        """Ask until the end."""
        try:
            while not self.ends:
                began = time.perf_counter()
                exchange(self._to, self._raw)
                if self.counts:
                    self.milliseconds.append(1000 * (time.perf_counter() - began))
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits for this one
            self.failure = error
        self._to.close()


def load(context: ssl.SSLContext, port: int, pid: int, seconds: float) -> dict[str, float]:
    """Have all connections ask; give the results."""
    raw = request()
    clients = [Client(context, port, raw) for _ in range(CONNECTIONS)]
    for client in clients:
        client.start()
    time.sleep(WARM_UP_SECONDS)
    before, own_before, began = cpu_of(pid), own_cpu(), time.perf_counter()
    for client in clients:
        client.counts = True
    time.sleep(seconds)
    for client in clients:
        client.ends = True
    lasted = time.perf_counter() - began
    after, own_after = cpu_of(pid), own_cpu()
    for client in clients:
        client.join()
        if client.failure is not None:
            raise client.failure
    busy = {"server busy %": 100 * (after - before) / lasted, "client busy %": 100 * (own_after - own_before) / lasted}
    sizes = {"server MiB": resident(pid), "request bytes": float(len(raw))}
    return summary([milliseconds for client in clients for milliseconds in client.milliseconds], lasted) | busy | sizes


def summary(milliseconds: list[float], lasted: float) -> dict[str, float]:
    """Return throughput and percentiles."""
    cuts = statistics.quantiles(milliseconds, n=1000, method="inclusive")
    return {
        "reviews/s": len(milliseconds) / lasted,
        "p50 ms": cuts[499],
        "p99 ms": cuts[989],
        "p99.9 ms": cuts[998],
        "max ms": max(milliseconds),
    }


def exchange(to: ssl.SSLSocket, raw: bytes) -> None:
    """Ask once, and check that the answer has a patch."""
    to.sendall(raw)
    answer = to.recv(1 << 16)
    while not whole(answer):
        more = to.recv(1 << 16)
        if not more:
            raise ConnectionError(f"the server ended the connection after {answer[:200]!r}")
        answer += more
    if not answer.startswith(b"HTTP/1.1 200 ") or b'"patchType"' not in answer:
        raise ValueError(f"no patch: {answer[:400]!r}")


def whole(answer: bytes) -> bool:
    """Return whether an answer is complete."""
    head, separator, body = answer.partition(b"\r\n\r\n")
    if not separator:
        return False
    length = head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]
    return len(body) >= int(length)


def request() -> bytes:
    """Write a review of a PyTorchJob's worker as the API server sends it."""
    body = json.dumps(review(pod())).encode()
    head = (
        f"POST /pods?timeout=10s HTTP/1.1\r\nHost: {NAME}:443\r\nUser-Agent: kube-apiserver-admission\r\n"
        f"Content-Length: {len(body)}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + body


def review(of: dict[str, Any]) -> dict[str, Any]:
    """Wrap a pod."""
    kind, what = {"group": "", "version": "v1", "kind": "Pod"}, {"group": "", "version": "v1", "resource": "pods"}
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": kind,
            "resource": what,
            "requestKind": kind,
            "requestResource": what,
            "namespace": "ml",
            "operation": "CREATE",
            "userInfo": {
                "username": "system:serviceaccount:kubeflow:training-operator",
                "groups": ["system:authenticated"],
            },
            "object": of,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }


def pod() -> dict[str, Any]:
    """Return a worker pod with GPUs and so many environment variables that it has 7 KiB."""
    labels = {
        "job-name": "llm",
        "operator-name": "pytorchjob-controller",
        "replica-index": "1",
        "replica-type": "worker",
    }
    environment = [
        {"name": name, "value": value}
        for name, value in (("WORLD_SIZE", "16"), ("RANK", "2"), ("MASTER_PORT", "23456"))
    ]
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "llm-worker-1",
            "namespace": "ml",
            "labels": {f"training.kubeflow.org/{key}": value for key, value in labels.items()},
        },
        "spec": {
            "containers": [
                {
                    "name": "pytorch",
                    "image": "registry.example/train:1",
                    "command": ["torchrun", "train.py"],
                    "env": environment,
                    "resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}},
                }
            ],
            "restartPolicy": "Never",
        },
    }
    for number in count():
        if len(json.dumps(pod)) >= POD_BYTES:
            return pod
        environment.append(
            {"name": f"TRAIN_OPTION_{number}", "value": f"a value of some length, as there are in jobs: {number}"}
        )
    raise AssertionError


def wait_for(folder: Path, health_port: int) -> None:
    """Wait until the server that was started in this folder is ready.

    Raises:
        TimeoutError: it is not ready after 20 s; with the end of its log.
    """
    for _ in range(200):
        with suppress(OSError), socket.create_connection(("127.0.0.1", health_port), 1) as connection:
            connection.sendall(b"GET /readyz HTTP/1.1\r\n\r\n")
            if b" 200 " in connection.recv(4096):
                return
        time.sleep(0.1)
    raise TimeoutError(f"the server does not become ready: {(folder / LOG).read_text()[-2000:]}")


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cpu_of(pid: int) -> float:
    """Read a process's processor time in seconds (proc(5), stat: utime and stime)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_cpu() -> float:
    """Read the processor time of this process in seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident(pid: int) -> float:
    """Read a process's VmRSS in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


if __name__ == "__main__":
    main()
