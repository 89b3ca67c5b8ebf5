"""The probe of `railnet validate` between network namespaces: a sound rail, a rail with a smaller MTU, and a cut one."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from railnet.validate.pair_plan import Pair
from railnet.validate.probe.measured import MeasuredRdma, parse
from simnode.linux import netns
from tests.node.probe_cluster import ip, probe
from tests.railnet.validate.probe.perftest_tables import BANDWIDTH, LATENCY
from tests.waiting import until

_SERVER, _CLIENT, _SWITCH = "probe-server", "probe-client", "probe-switch"
_ADDRESS, _SOURCE = "10.56.0.1", "10.56.0.2"
_IPV6 = {_ADDRESS: "fd56::1", _SOURCE: "fd56::2"}
_MTU = 4092


# A tool as perftest and rdma-core have them: its server and its client greet each other by TCP at the port that both were given.
_FAKE = """#!{python} -I
import socket, sys
words = sys.argv[1:]
port = int(words[words.index("-p") + 1])
if "-a" in words:  # rping
    peer = words[words.index("-a") + 1] if "-c" in words else ""
else:
    assert words[:4] == ["-d", "mlx5_7", "-i", "1"], words
    peer = words[-1] if words[-1].count(".") == 3 else ""
if peer:
    with socket.create_connection((peer, port)) as connection:
        said = connection.recv(99)
    assert said == " ".join(words).replace(" " + peer, "").replace("-c -I {source}", "-s").encode(), (said, words)
    print({table!r})
else:
    with socket.create_server(("", port)) as listening:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(" ".join(words).replace(" {address}", "").encode())
"""
_TABLES = {"ib_write_bw": BANDWIDTH, "ib_write_lat": LATENCY, "rping": ""}


def measure(seconds: float = 0.2, *options: str, path: Path | None = None, ipv6: bool = False) -> dict[str, Any]:
    source, peer = (_IPV6[one] if ipv6 else one for one in (_SOURCE, _ADDRESS))
    ends = ("--netdev=net1", f"--source={source}", f"--peer={peer}", f"--seconds={seconds}")
    command = probe(_CLIENT, *ends, *options)
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=with_tools(path))
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def with_tools(folder: Path | None) -> dict[str, str]:
    """Return the environment of a pod whose image has the tools of a folder."""
    return dict(os.environ) if folder is None else {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.fixture
def image() -> Iterator[Path]:
    """Provide a folder for the image's tools, and `netdevs` in it, in which net1 has an RDMA device. Another user may read it."""
    with tempfile.TemporaryDirectory(dir="/run") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "netdevs/net1/device/infiniband/mlx5_7").mkdir(parents=True)
        yield folder


def install(folder: Path, tool: str, text: str) -> None:
    (folder / tool).write_text(text)
    (folder / tool).chmod(0o755)


@pytest.fixture
def rail(image: Path) -> Iterator[None]:
    """Join two namespaces by a bridge in a third one, and serve in the first, with the tools of `image`."""
    with ExitStack() as undo:
        for name in (_SERVER, _CLIENT, _SWITCH):
            netns.create(Path("/run/netns", name))
            undo.callback(netns.remove, Path("/run/netns", name))
        ip("-n", _SWITCH, "link", "add", "switch", "mtu", str(_MTU), "type", "bridge")
        ip("-n", _SWITCH, "link", "set", "switch", "up")
        for name, address in ((_SERVER, _ADDRESS), (_CLIENT, _SOURCE)):
            peer = ("type", "veth", "peer", "name", "net1", "netns", name, "mtu", str(_MTU))
            ip("-n", _SWITCH, "link", "add", name, "mtu", str(_MTU), *peer)
            ip("-n", _SWITCH, "link", "set", name, "master", "switch", "up")
            ip("-n", name, "address", "add", f"{address}/24", "dev", "net1")
            ip("-n", name, "address", "add", f"{_IPV6[address]}/64", "dev", "net1")
            ip("-n", name, "link", "set", "net1", "up")
        with subprocess.Popen(probe(_SERVER, f"--netdevs={image}/netdevs"), env=with_tools(image)) as server:
            try:
                until(lambda: measure().get("failed") is None, 30, "the probe to answer")
                yield
                server.terminate()
                assert server.wait(timeout=30) == 0
            finally:
                server.kill()


def test_sound_rail_has_all_numbers(rail: None) -> None:
    found = parse(Pair(0, "a", "b"), json.dumps(measure()))

    assert (found.mtu, found.failed) == (_MTU, "")
    assert found.round_trip_us is not None
    assert 0 < found.round_trip_us < 1e6
    assert found.gbits is not None
    assert found.gbits > 0


def test_sound_rail_has_all_numbers_by_ipv6_and_rdma_is_not_tried(rail: None, image: Path) -> None:
    install(image, "ib_write_bw", fake("ib_write_bw"))
    until(lambda: measure(ipv6=True).get("failed") is None, 30, "the addresses to be more than tentative")
    options = (f"--netdevs={image}/netdevs", "--tool=ib_write_bw")
    found = parse(Pair(0, "a", "b"), json.dumps(measure(0.2, *options, path=image, ipv6=True)))

    assert (found.mtu, found.failed, found.rdma) == (
        _MTU,
        "",
        MeasuredRdma(untried=(("ib_write_bw", "not over IPv6"),)),
    )
    assert found.gbits is not None
    assert found.gbits > 0
    ip("-n", _SWITCH, "link", "set", _SERVER, "mtu", "2044")
    assert measure(ipv6=True)["mtu"] == 2044


def test_link_between_that_takes_smaller_packets_is_seen(rail: None) -> None:
    ip("-n", _SWITCH, "link", "set", _SERVER, "mtu", "2044")

    assert measure()["mtu"] == 2044


def test_netdev_with_a_smaller_mtu_is_seen(rail: None) -> None:
    ip("-n", _CLIENT, "link", "set", "net1", "mtu", "1500")

    assert measure()["mtu"] == 1500


def test_cut_rail_has_a_reason_and_no_numbers(rail: None) -> None:
    ip("-n", _SWITCH, "link", "set", _CLIENT, "nomaster")
    found = measure()

    assert list(found) == ["failed"]
    assert found["failed"]["measurement"] == "round_trip_seconds"
    assert found["failed"]["why"]


def test_rail_whose_server_is_gone_has_a_reason(rail: None) -> None:
    ip("-n", _SERVER, "address", "flush", "dev", "net1")

    assert measure()["failed"]["measurement"] == "round_trip_seconds"


def with_rdma(image: Path, *tools: str) -> MeasuredRdma:
    """Measure with these tools, with those of the image alone, and return what they found."""
    options = [f"--tool={tool}" for tool in tools]
    found = measure(0.2, f"--netdevs={image}/netdevs", *options, path=image)
    assert found.get("failed") is None
    return parse(Pair(0, "a", "b"), json.dumps(found)).rdma


def fake(tool: str) -> str:
    return _FAKE.format(python=f"{sys.base_prefix}/bin/python3", table=_TABLES[tool], address=_ADDRESS, source=_SOURCE)


def test_each_tool_of_the_image_meets_its_server_at_the_port_of_this_rail(rail: None, image: Path) -> None:
    for tool in _TABLES:
        install(image, tool, fake(tool))

    assert with_rdma(image, *_TABLES) == MeasuredRdma(0.14, 31.4, connected=True)


def test_tool_that_the_image_lacks_and_rail_without_an_rdma_device_are_not_tried(rail: None, image: Path) -> None:
    install(image, "ib_write_bw", fake("ib_write_bw"))
    lacking = with_rdma(image, "ib_write_bw", "rping")
    (image / "netdevs/net1/device/infiniband/mlx5_7").rmdir()

    assert lacking == MeasuredRdma(0.14, untried=(("rping", "not in the image"),))
    assert with_rdma(image, "ib_write_bw").untried == (("ib_write_bw", "net1 has no RDMA device in the pod"),)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (
            "echo no device attributes >&2; exit 3",
            "its server has ended with status 3: no device attributes",
        ),
        (
            "case $* in *10.56.0.1) echo Completion with error >&2; exit 1;; esac; exec sleep 60",
            "status 1: Completion with error",
        ),
    ],
    ids=["server", "client"],
)
def test_tool_that_fails_says_why_and_ends_the_others(rail: None, image: Path, script: str, why: str) -> None:
    install(image, "ib_write_bw", f"#!/bin/sh\n{script}\n")
    install(image, "ib_write_lat", fake("ib_write_lat"))

    assert with_rdma(image, "ib_write_bw", "ib_write_lat") == MeasuredRdma(failed=f"ib_write_bw: {why}")


def test_tool_that_hangs_is_ended(rail: None, image: Path) -> None:
    install(image, "ib_write_bw", "#!/bin/sh\nexec sleep 600\n")

    assert with_rdma(image, "ib_write_bw").failed == "ib_write_bw: it has not ended after 16 s"
    until(lambda: not processes(b"600"), 60, "the end of the tool's server")


def processes(word: bytes) -> list[str]:
    """Return the processes that run `sleep` with a word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [path.parent.name] * (path.read_bytes().split(b"\0")[:2] == [b"sleep", word])
    return found
