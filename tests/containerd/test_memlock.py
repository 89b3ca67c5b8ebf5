"""Locked memory under the real containerd and runc: a program of an ordinary user locks a gigabyte in a container with a rail.

runc may raise a limit only with CAP_SYS_RESOURCE. Where the machine does not give it, it creates no container whose limit is raised. Both are
tried: this file runs also in the guest of the tier vm, which gives every capability.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from simnode.preinstalled_files import CONFIGURATION
from tests.cluster.process import wait_until
from tests.containerd.conftest import ContainerdNode
from tests.containerd.runtime import Sandbox

_CAP_SYS_RESOURCE = 24  # include/uapi/linux/capability.h
_USER, _BYTES = 1000, 1 << 30
# 9 is mmap(2) and 149 is mlock(2) on x86-64 (arch/x86/entry/syscalls/syscall_64.tbl): private anonymous memory, which takes a page when it is locked.
_PROGRAM = (
    f"$> == {_USER} or exit 3; exit(syscall(149, syscall(9, 0, {_BYTES}, 3, 0x22, -1, 0), {_BYTES}) == 0 ? 0 : 1)"
)
_LOCKS = ["/usr/bin/perl", "-e", _PROGRAM]
_LOCKED, _REFUSED = 0, 1
_SECONDS = 120.0


def may_raise_limits() -> bool:
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("CapEff:"))
    return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)


def locks(node: ContainerdNode, sandbox: Sandbox, devices: list[str]) -> int:
    return node.containerd.exit_code(sandbox, _LOCKS, devices, _USER, ("/usr", "/lib", "/lib64"))


def verbs_devices(node: ContainerdNode, sandbox: Sandbox) -> list[str]:
    return [device.host_path for one in node.node.kubelet.allocations(sandbox.pod) for device in one.response.devices]


@pytest.fixture
def limited(node: ContainerdNode) -> Iterator[ContainerdNode]:
    """A node whose runtime gives 8 MiB, as many do, and whose node.yaml has `memlock: unlimited`."""
    node.containerd.limit_locked_memory(8 << 20)
    before = CONFIGURATION.read_bytes()
    node.node.stop_daemon()
    CONFIGURATION.write_text(json.dumps(json.loads(before) | {"memlock": "unlimited"}))
    node.node.start_daemon()
    wait_until(lambda: "by NRI" in node.node.daemon.log(), _SECONDS, "the plugin to be registered")
    yield node
    node.remove_all()
    node.node.stop_daemon()
    CONFIGURATION.write_bytes(before)
    node.node.start_daemon()
    node.containerd.restart()


def test_user_1000_locks_a_gigabyte_in_a_container_with_a_rail_alone(limited: ContainerdNode) -> None:
    plain, train = limited.run(limited.admit("plain")), limited.run(limited.admit("train", vfs=1))
    devices = verbs_devices(limited, train)

    assert devices
    assert locks(limited, plain, []) == _REFUSED
    assert locks(limited, train, []) == _REFUSED
    if may_raise_limits():
        assert locks(limited, train, devices) == _LOCKED
    else:
        with pytest.raises(grpc.RpcError, match="error setting rlimit"):
            locks(limited, train, devices)
