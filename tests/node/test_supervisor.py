"""The daemon under its supervisor, as in a container, with a kubelet whose call waits for it."""

import json
import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from simnode.kubernetes.kubelet import PodIdentity
from simnode.node import RESOURCE, Node
from simnode.preinstalled_files import CONFIGURATION
from tests.node.rail_and_plain_pods import has_net1
from tests.waiting import until

SECONDS = 60.0
# As tests/cluster/test_hung_daemon.py: the supervisor ends the daemon 3 s after its last beat, and a look counts as half a second at most. On
# a machine that stands still, more time passes than the supervisor counts.
_SILENT_SECONDS = 3.5
_ENDED = re.compile(r"is ended: its event loop has been silent for (\d+\.\d) s")


def daemon_pid(node: Node) -> int:
    return until(node.daemon.daemon_pid, SECONDS, "a daemon")


def stop(node: Node) -> tuple[int, float]:
    """Stop the daemon; return its pid and the time."""
    pid = daemon_pid(node)
    os.kill(pid, signal.SIGSTOP)
    return pid, time.monotonic()


def wait_for_next(node: Node, last: int) -> None:
    until(lambda: node.daemon.daemon_pid() not in (None, last), SECONDS, "another daemon")
    ended = f"(process {last}) is ended"
    until(lambda: ended in node.daemon.log(), SECONDS, "the words of the supervisor")
    # Before kubelet notices that the stream of the last daemon has ended, its devices still count as healthy.
    until(
        lambda: "registered with kubelet" in node.daemon.log().rpartition(ended)[2],
        SECONDS,
        "kubelet to know the next daemon",
    )
    node.kubelet.wait_for_devices(RESOURCE, node.vfs, SECONDS)


def wait_long_for_a_daemon(node: Node) -> None:
    """Start the daemon again with a configuration by which an ADD waits a minute for the next daemon.

    By default it waits 5 s (`timeouts.daemon`). A supervisor needs 3 s until it ends its daemon, and on a busy machine the next daemon may
    need more than the rest.
    """
    node.stop_daemon()
    configuration = json.loads(CONFIGURATION.read_text())
    CONFIGURATION.write_text(json.dumps({**configuration, "timeouts": {"daemon": f"{SECONDS:g}s"}}))
    node.start_daemon()


def test_allocate_that_a_stopped_daemon_holds_breaks_off_and_the_next_daemon_serves(
    supervised_node: Node, measured: Callable[[str], None]
) -> None:
    kept = supervised_node.run_pod("kept", vfs=1)
    last, stopped = stop(supervised_node)

    with pytest.raises(grpc.RpcError) as refused:
        supervised_node.kubelet.allocate(PodIdentity("train", "default", "uid-train"), RESOURCE, 1)
    held = time.monotonic() - stopped
    wait_for_next(supervised_node, last)
    measured(
        f"a daemon that stops: Allocate is held for {held:.1f} s, and all VFs are back after {time.monotonic() - stopped:.1f} s"
    )
    after = supervised_node.run_pod("after", vfs=1)

    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    silent = [float(seconds) for seconds in _ENDED.findall(supervised_node.daemon.log())]
    assert silent
    assert max(silent) <= _SILENT_SECONDS
    for pod in (kept, after):
        supervised_node.remove_pod(pod)


def test_plain_and_rail_pods_run_again_after_each_of_three_stops(supervised_node: Node) -> None:
    for number in range(3):
        last, _ = stop(supervised_node)
        plain = supervised_node.run_pod(f"plain-{number}")
        wait_for_next(supervised_node, last)
        rail = supervised_node.run_pod(f"rail-{number}", vfs=2)
        supervised_node.remove_pod(plain)
        supervised_node.remove_pod(rail)

    assert "restart 3 in this container" in supervised_node.daemon.log()


def test_add_that_the_daemon_has_begun_as_it_is_stopped_is_repeated(supervised_node: Node) -> None:
    wait_long_for_a_daemon(supervised_node)
    identity = PodIdentity("train", "default", "uid-train")
    supervised_node.kubelet.allocate(identity, RESOURCE, 1)
    sandbox = supervised_node.runtime.create_sandbox("default", "train", "uid-train")
    last, _ = stop(supervised_node)
    with ThreadPoolExecutor(1) as runtime:
        adding = runtime.submit(supervised_node.runtime.set_up, sandbox)
        wait_for_next(supervised_node, last)
        adding.result()  # no CniFailed
    supervised_node.kubelet.pre_start(identity)

    is_attached = has_net1(sandbox)
    supervised_node.kubelet.remove(identity)
    supervised_node.runtime.tear_down(sandbox)
    assert is_attached


def test_container_ends_when_its_supervisor_is_sent_sigterm(supervised_node: Node) -> None:
    pid = daemon_pid(supervised_node)

    status, is_gone = supervised_node.stop_daemon(), not Path(f"/proc/{pid}").exists()
    supervised_node.start_daemon()

    assert (status, is_gone) == (0, True)
