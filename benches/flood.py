"""Measure both ports under floods: reviews and probes before and meanwhile, memory, descriptors and threads; fail beyond a target.

Run by `scripts/bench flood`, inside a simulated node. The floods are processes of their own, from another address than the measuring client,
and open again what is closed, as fast as their share of the processors allows (nice 19).
Server and client run before all else of the machine.
"""

import argparse
import http.client
import json
import os
import socket
import ssl
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from benches import webhook
from simnode.chaos.flood import Flood, flooding
from simnode.node import Node

ATTACKER = "127.0.0.2"
HEALTH_PORT = 9474
SECONDS = 10.0
WARM_UP = 20
PAUSE_SECONDS = 0.005
NEW = 10  # each so many reviews, one is on a new connection
TARGET_P99_MS, TARGET_MIB, TARGET_PROBE_MS, TARGET_DAEMON_MORE_MIB = 50.0, 192.0, 5000.0, 24.0
Figures = dict[str, float]


def main() -> None:
    """Measure, print, and end with 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="scripts/bench flood", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"how long each measurement is ({SECONDS:g})")
    arguments = parser.parse_args()
    floods_of = {"webhook": reviews(arguments.seconds), "daemon's port": daemon(arguments.seconds)}
    if arguments.json:
        print(json.dumps(floods_of))
    else:
        for part, floods in floods_of.items():
            for name, figures in floods.items():
                print(f"{part}: {name}")
                print("".join(f"  {figure:<22}{value:>10.1f}\n" for figure, value in figures.items()), end="")
    missed = list(misses(floods_of["webhook"], floods_of["daemon's port"]))
    sys.exit("\n".join(missed) or None)


def misses(reviews: dict[str, Figures], probes: dict[str, Figures]) -> Iterator[str]:
    """Yield each target that is missed, in words."""
    for name, figures in reviews.items():
        if figures["p99 ms"] > TARGET_P99_MS or figures["failed"]:
            yield f"{name}: p99 {figures['p99 ms']:.1f} ms, {figures['failed']:g} failed; target {TARGET_P99_MS:g} ms, none"
        if figures["peak MiB"] > TARGET_MIB:
            yield f"{name}: {figures['peak MiB']:.0f} MiB; target {TARGET_MIB:g}"
    for name, figures in probes.items():
        if figures["max ms"] > TARGET_PROBE_MS or figures["failed"]:
            yield f"{name}: a probe took {figures['max ms']:.0f} ms, {figures['failed']:g} failed; target {TARGET_PROBE_MS:g} ms, none"
        if figures["peak MiB"] - probes["before"]["peak MiB"] > TARGET_DAEMON_MORE_MIB:
            yield f"{name}: {figures['peak MiB']:.0f} MiB; target {TARGET_DAEMON_MORE_MIB:g} more than before"


def reviews(seconds: float) -> dict[str, Figures]:
    """Measure reviews on a kept connection, and every tenth on a new one."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        trusted = webhook.write_certificate(folder)
        port, health_port = webhook.free_port(), webhook.free_port()
        server = stack.enter_context(webhook.start(folder, port, health_port))
        stack.callback(server.terminate)
        webhook.wait_for(folder, health_port)
        context = ssl.create_default_context(cadata=trusted)
        ask = reviewing(context, port)
        half_body = webhook.request()[:-10]
        floods = {
            "before": [],
            "10,000 silent, 1,000 half-handshaken": [Flood(port, 10_000), Flood(port, 1000, tls="hello")],
            "500 idle after the handshake": [Flood(port, 500, tls="whole")],
            "500 in the middle of a body": [Flood(port, 500, tls="whole", send=half_body)],
            "1,000 requests of the health port": [Flood(health_port, 1000, send=b"GET /metrics HTTP/1.1\r\n\r\n")],
            "after": [],
        }
        return {name: under(each, ask, server.pid, seconds) for name, each in floods.items()}


def reviewing(context: ssl.SSLContext, port: int) -> Callable[[int], None]:
    """Return a function that asks for the review with a number."""
    raw = webhook.request()

    def connect() -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", port), timeout=10)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as Go does
        return context.wrap_socket(plain, server_hostname=webhook.NAME)

    kept = [connect()]

    def ask(number: int) -> None:
        if number % NEW:
            try:
                webhook.exchange(kept[0], raw)
            except OSError:
                kept[0] = connect()  # an API server does the same
                webhook.exchange(kept[0], raw)
        else:
            with connect() as new:
                webhook.exchange(new, raw)

    return ask


def daemon(seconds: float) -> dict[str, Figures]:
    """Measure probes of the daemon."""
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"])) as node:
        node.install()
        node.start_daemon()
        process = node.daemon.process
        if process is None:
            raise RuntimeError("the daemon does not run")
        head = b"GET / HTTP/1.1\r\nX: " + b"x" * 65_000
        floods = {
            "before": [],
            "2,500 silent": [Flood(HEALTH_PORT, 2500)],
            "10,000 silent": [Flood(HEALTH_PORT, 10_000)],
            "4,000 of 65 kB": [Flood(HEALTH_PORT, 4000, send=head)],
            "1,000 requests": [Flood(HEALTH_PORT, 1000, send=b"GET /metrics HTTP/1.1\r\n\r\n")],
            "after": [],
        }
        return {name: under(each, probe, process.pid, seconds) for name, each in floods.items()}


def probe(number: int) -> None:
    """Ask as kubelet does."""
    connection = http.client.HTTPConnection("127.0.0.1", HEALTH_PORT, timeout=TARGET_PROBE_MS / 1000)
    with suppress_close(connection):
        connection.request("GET", ("/healthz", "/readyz")[number % 2])
        if connection.getresponse().status != http.HTTPStatus.OK:
            raise ConnectionError("not ready")


@contextmanager
def suppress_close(connection: http.client.HTTPConnection) -> Iterator[None]:
    """Close a connection at the end of the block."""
    try:
        yield
    finally:
        connection.close()


def under(floods: list[Flood], ask: Callable[[int], None], pid: int, seconds: float) -> Figures:
    """Ask again and again while the floods last; return the times, and the most that the process held."""
    with ExitStack() as stack, watching(pid) as peak:
        for flood in floods:
            stack.enter_context(
                flooding(Flood(flood.port, flood.connections, flood.send, flood.tls, source=ATTACKER, niceness=40))
            )
        times: dict[str, list[float]] = {"": [], "new ": []}
        failed, number = 0, 0
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends or number < WARM_UP:
            number += 1
            began = time.perf_counter()
            try:
                ask(number)
            except (OSError, http.client.HTTPException):
                failed += 1
            times["" if number % NEW else "new "].append(1000 * (time.perf_counter() - began))
            time.sleep(PAUSE_SECONDS)
    figures: Figures = {}
    for kind, milliseconds in times.items():
        cuts = statistics.quantiles(milliseconds, n=100, method="inclusive")
        figures |= {f"{kind}p50 ms": cuts[49], f"{kind}p99 ms": cuts[98], f"{kind}max ms": max(milliseconds)}
    return figures | {"asked": number, "failed": failed, **peak}


@contextmanager
def watching(pid: int) -> Iterator[Figures]:
    """Keep the most memory, descriptors and threads of a process in the figures that it yields."""
    peak: Figures = {"peak MiB": 0, "descriptors": 0, "threads": 0}
    ends = threading.Event()

    def watch() -> None:
        while not ends.wait(0.1):
            with suppress(OSError):
                for name, value in held(pid).items():
                    peak[name] = max(peak[name], value)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        ends.set()
        thread.join()


def held(pid: int) -> Figures:
    """Read what a process holds."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        "peak MiB": int(status["VmRSS"].split()[0]) / 1024,
        "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "threads": int(status["Threads"]),
    }


if __name__ == "__main__":
    main()
