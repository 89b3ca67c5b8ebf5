"""Local users flood the daemon's port: the daemon lives, kubelet's probes are answered, and its devices stay."""

import http.client
from pathlib import Path

import pytest

from simnode.chaos.flood import Flood, flooding
from simnode.node import RESOURCE, Node

_PORT = 9474
_PROBE_SECONDS = 5  # daemonset/daemonset.yaml: timeoutSeconds of both probes
_PROBES, _MOST_LATE = 10, 2  # the clients of the flood, and other tests, take the processors from the daemon
_MAX_MORE_DESCRIPTORS, _MAX_MORE_MIB = 160, 24  # 128 connections and what a pod needs; measured: 1 MiB


def probe(path: str) -> int | None:
    """Return the status of the answer; None if there is none in time."""
    connection = http.client.HTTPConnection("127.0.0.1", _PORT, timeout=_PROBE_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except TimeoutError:
        return None
    finally:
        connection.close()


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def resident(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


@pytest.mark.parametrize(
    ("connections", "sent"),
    [
        (2500, b""),
        (4000, b"GET / HTTP/1.1\r\nX: " + b"x" * 65_000),
        (500, b"GET /metrics HTTP/1.1\r\n\r\n"),
    ],
    ids=["2,500 silent", "4,000 of 65 kB", "requests"],
)
def test_flood_of_the_port_ends_nothing(node: Node, connections: int, sent: bytes) -> None:
    daemon = node.daemon.process
    before = descriptors(daemon.pid), resident(daemon.pid)
    with flooding(Flood(_PORT, connections, send=sent)):
        probes = [probe(path) for path in ("/healthz", "/readyz") * (_PROBES // 2)]
        node.remove_pod(node.run_pod("train", vfs=1))
        during = descriptors(daemon.pid), resident(daemon.pid)

    assert set(probes) <= {200, None}
    assert probes.count(None) <= _MOST_LATE
    assert daemon.poll() is None
    assert during[0] - before[0] < _MAX_MORE_DESCRIPTORS
    assert during[1] - before[1] < _MAX_MORE_MIB
    node.kubelet.wait_for_devices(RESOURCE, node.vfs, 60)
