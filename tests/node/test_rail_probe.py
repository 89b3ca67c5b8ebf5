"""The probe of `railnet validate` between network namespaces: a sound rail, a rail with a smaller MTU, and a cut one."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from railnet.validate.measured import parse
from railnet.validate.pair_plan import Pair
from simnode.linux import netns
from tests.node.probe_cluster import ip, probe
from tests.waiting import until

_SERVER, _CLIENT, _SWITCH = "probe-server", "probe-client", "probe-switch"
_ADDRESS, _SOURCE = "10.56.0.1", "10.56.0.2"
_MTU = 4092


def measure(seconds: float = 0.2) -> dict[str, Any]:
    command = probe(_CLIENT, "--netdev=net1", f"--source={_SOURCE}", f"--peer={_ADDRESS}", f"--seconds={seconds}")
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def rail() -> Iterator[None]:
    """Join two namespaces by a bridge in a third one, and serve in the first."""
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
            ip("-n", name, "link", "set", "net1", "up")
        with subprocess.Popen(probe(_SERVER)) as server:
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
