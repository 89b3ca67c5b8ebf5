"""Measure the plugin executable: a request to DONE against a stub daemon, beside its bare interpreter and the host's.

Run by `scripts/bench executable`, inside a simulated node, where the real paths are free to use. The three are
interleaved and their order alternates, so that whatever else the machine does falls on all alike.
"""

import argparse
import ctypes
import json
import os
import socket
import statistics
import tempfile
import time
from pathlib import Path

from cni.host import frames
from cni.host.daemon import SOCKET
from railnet.configuration import Configuration, HostConfiguration
from railnet.daemon.conflist.keeper import ConflistKeeper
from railnet.install import python_bundle
from railnet.install.installer import install
from simnode.linux import libc

ROUNDS = 200
WARM_UP = 10
HOSTS_INTERPRETER = "/usr/bin/python3"
PLUGIN = "/opt/cni/bin/railnet"
BUNDLES = "/opt/cni/bin/.railnet"
RESULT = b'{"cniVersion": "1.0.0", "interfaces": [], "ips": [{"address": "10.244.3.2/24"}], "routes": [], "dns": {}}\n'


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench executable", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as disk:
        conf = prepare(disk)
        daemon = start_stub_daemon()
        try:
            report(measure(conf), arguments.json)
        finally:
            os.kill(daemon, 9)
            os.waitpid(daemon, 0)


def prepare(disk: str) -> Path:
    """Install the executable on a disk, at its path on a node; return the file for its stdin.

    Programs on a tmpfs, which a simulated node has there, are mapped in smaller pieces: half a millisecond for an interpreter.
    """
    libc.mount(disk, "/opt/cni/bin", flags=libc.MS_BIND)
    folder = Path("/etc/cni/net.d")
    folder.mkdir(exist_ok=True)
    (folder / "10-primary.conf").write_text('{"cniVersion": "1.0.0", "name": "primary", "type": "bridge"}')
    configuration = Configuration(host=HostConfiguration(root=Path("/")))
    install(configuration)
    ConflistKeeper(configuration).look()
    conflist = json.loads((folder / "00-railnet.conflist").read_text())
    conf = Path("/run/bench.conf")
    conf.write_text(json.dumps({**conflist["plugins"][0], "name": "primary", "cniVersion": "1.0.0"}))
    Path("/run/empty.py").write_text("")
    return conf


def start_stub_daemon() -> int:
    """Fork a daemon that answers every request with the same result at once; return its pid."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    Path(SOCKET).parent.mkdir(mode=0o700, exist_ok=True)
    listening.bind(SOCKET)
    listening.listen(16)
    if pid := os.fork():
        listening.close()
        return pid
    while True:
        connection, _ = listening.accept()
        with connection:
            serve(connection)


def serve(connection: socket.socket) -> None:
    """Take REQUEST, say HELLO, take GO, say DONE."""
    header, descriptors, _, _ = socket.recv_fds(connection, frames.HEADER_BYTES, 1, socket.MSG_WAITALL)
    connection.recv(frames.parse_header(header)[1], socket.MSG_WAITALL)
    connection.sendall(frames.frame(frames.HELLO, frames.u32(60_000)))
    connection.recv(frames.HEADER_BYTES, socket.MSG_WAITALL)
    for descriptor in descriptors:
        os.close(descriptor)
    connection.sendall(frames.frame(frames.DONE, b"\0" + frames.blobs(RESULT)))


def measure(conf: Path) -> dict[str, list[float]]:
    """Time the pairs; return the milliseconds of each program."""
    netns = make_netns()
    environ = {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "bench",
        "CNI_NETNS": netns,
        "CNI_IFNAME": "eth0",
        "CNI_PATH": "/opt/cni/bin",
        "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=bench;K8S_POD_UID=uid",
    }
    programs = {
        "host": [HOSTS_INTERPRETER, python_bundle.FLAGS, "/run/empty.py"],
        "bundle": [python_bundle.interpreter(BUNDLES, installed().name), python_bundle.FLAGS, "/run/empty.py"],
        "railnet": [PLUGIN],
    }
    times: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(WARM_UP + ROUNDS):
        for name in sorted(programs, reverse=bool(number % 2)):
            took = timed(programs[name], environ, conf)
            if number >= WARM_UP:
                times[name].append(took)
    return times


def installed() -> Path:
    """Return the folder of the bundle on this node."""
    (version,) = Path(BUNDLES).iterdir()
    return version


def timed(argv: list[str], environ: dict[str, str], stdin: Path) -> float:
    """Run a program to its end; return milliseconds.

    Raises:
        RuntimeError: it failed, or did not print what the stub daemon answered.
    """
    read, write = os.pipe()
    actions = [(os.POSIX_SPAWN_OPEN, 0, str(stdin), os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, write, 1)]
    began = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, environ, file_actions=actions)
    _, status = os.waitpid(pid, 0)
    took = (time.perf_counter() - began) * 1000
    os.close(write)
    printed = os.read(read, 65536)
    os.close(read)
    if status or (argv[0] == PLUGIN and printed != RESULT):
        raise RuntimeError(f"{argv[0]} ended with {status} and printed {printed!r}")
    return took


def make_netns() -> str:
    """Start a process that keeps a new network namespace alive; return the path of the namespace."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        ctypes.CDLL(None).unshare(0x40000000)  # CLONE_NEWNET
        os.write(write, b"1")
        time.sleep(600)
        os._exit(0)
    os.read(read, 1)
    return f"/proc/{pid}/ns/net"


def report(times: dict[str, list[float]], as_json: bool) -> None:
    """Print medians, 99th percentiles, the median of the differences within rounds, and the bundle's size."""
    own = [railnet - bare for railnet, bare in zip(times["railnet"], times["bundle"], strict=True)]
    figures = {
        name: {
            "p50": round(statistics.median(ms), 2),
            "p99": round(statistics.quantiles(ms, n=100, method="inclusive")[98], 2),
        }
        for name, ms in {**times, "own_cost": own}.items()
    }
    files = [path.stat().st_size for path in installed().rglob("*") if path.is_file()]
    if as_json:
        print(json.dumps({"rounds": ROUNDS, "ms": figures, "bundle": {"bytes": sum(files), "files": len(files)}}))
        return
    print(f"{ROUNDS} interleaved rounds, milliseconds\n\n{'':28}{'p50':>8}{'p99':>8}")
    labels = {
        "host": "the host's interpreter, bare",
        "bundle": "the bundle's, bare",
        "railnet": "railnet, REQUEST to DONE",
        "own_cost": "its own cost, per round",
    }
    for name, label in labels.items():
        print(f"{label:28}{figures[name]['p50']:8.2f}{figures[name]['p99']:8.2f}")
    print(f"\nthe bundle: {sum(files) / 1e6:.1f} MB in {len(files)} files")


if __name__ == "__main__":
    main()
