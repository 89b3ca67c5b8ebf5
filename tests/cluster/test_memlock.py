"""The limit of locked memory of containers with a rail, by the real containerd's NRI.

The limit of these tests is below the one that the runtime gives: runc may always lower a limit, and may raise one only with CAP_SYS_RESOURCE, which
the machine of the tests need not have.
"""

import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.node import ClusterNode
from tests.cluster.pods import pod, spec
from tests.cluster.process import wait_until
from tests.cluster.railnet_on_node import CONFLIST

_SECONDS = 120.0
_KIB = 3 << 10
_LIMITED = str(_KIB << 10)
_REGISTERED = "containers with a rail get RLIMIT_MEMLOCK"
_LINE = re.compile(r"^Max locked memory +(\S+) +(\S+)", re.MULTILINE)


@pytest.fixture
def limited(node: ClusterNode) -> Iterator[ClusterNode]:
    began = len(re.findall(_REGISTERED, node.railnet.log()))
    node.railnet.apply(memlock=f"{_KIB}Ki")
    node.railnet.roll_out()
    wait_until(
        lambda: len(re.findall(_REGISTERED, node.railnet.log())) > began, _SECONDS, "the plugin to be registered"
    )
    yield node
    assert CONFLIST.exists()


def locked(node: ClusterNode, name: str, container: str = "main") -> tuple[str, str]:
    """Return the soft and hard limit of a container's first process."""
    said = node.kubectl.run("exec", name, f"--container={container}", "--", "cat", "/proc/1/limits")
    (found,) = _LINE.findall(said)
    return found


def as_user(described: dict[str, Any]) -> dict[str, Any]:
    described["spec"]["securityContext"] = {"runAsUser": 1000, "runAsGroup": 1000}
    return described


def test_container_with_a_rail_has_the_limit_and_no_other_container(limited: ClusterNode) -> None:
    usual = locked(limited, limited.run("plain"))
    train = as_user(pod("train", 1))
    (beside,) = spec(0)["containers"]
    train["spec"]["containers"].append({**beside, "name": "beside"})
    privileged = pod("privileged")
    privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    limited.create(train, privileged)
    limited.wait_until_ready("train", "privileged")

    assert usual != (_LIMITED, _LIMITED)
    assert "\nUid:\t1000\t1000\t1000\t1000\n" in limited.execute("train", "cat", "/proc/1/status")
    assert locked(limited, "train") == (_LIMITED, _LIMITED)
    assert locked(limited, "train", "beside") == usual
    assert locked(limited, "privileged") == usual


def test_pod_on_the_hosts_network_has_the_limit_too(limited: ClusterNode) -> None:
    train = pod("train", 1)
    train["spec"]["hostNetwork"] = True
    limited.create(train)
    limited.wait_until_ready("train")

    assert locked(limited, "train") == (_LIMITED, _LIMITED)


def test_container_that_starts_again_has_the_limit_again(limited: ClusterNode) -> None:
    name = limited.run("train", 1)
    limited.containerd.kill_container(name)
    limited.wait_until_restarted(name)

    assert locked(limited, name) == (_LIMITED, _LIMITED)


def test_limit_is_there_again_when_the_runtime_starts_anew(limited: ClusterNode) -> None:
    before = len(re.findall(_REGISTERED, limited.railnet.log()))
    limited.containerd.restart()
    wait_until(
        lambda: len(re.findall(_REGISTERED, limited.railnet.log())) > before,
        _SECONDS,
        "the plugin to be registered again",
    )

    assert locked(limited, limited.run("train", 1)) == (_LIMITED, _LIMITED)


def test_pods_run_with_the_runtimes_limit_while_the_daemon_is_absent_or_hangs(limited: ClusterNode) -> None:
    usual = locked(limited, limited.run("plain"))
    supervisor = limited.railnet.freeze()
    try:
        assert locked(limited, limited.run("beside-a-frozen-daemon")) == usual
    finally:
        os.kill(supervisor, signal.SIGCONT)
    limited.railnet.roll_out()
    limited.railnet.stop()
    assert locked(limited, limited.run("without-a-daemon")) == usual
