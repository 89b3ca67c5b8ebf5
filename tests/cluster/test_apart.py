"""What scripts/with-cluster gives a command is its own, and goes with it."""

import subprocess
import sys
from pathlib import Path

from tests.cluster.node import ClusterNode

CGROUPS = Path("/sys/fs/cgroup")


def test_control_groups_and_all_below_go_with_their_command() -> None:
    script = (
        "for own in /sys/fs/cgroup/*/; do mkdir -p $own/pods/one; done; sleep 300 & ls -d /sys/fs/cgroup/*/pods/one"
    )
    before = set(CGROUPS.glob("*/simnode-*"))
    done = subprocess.run(
        [sys.executable, "-m", "simnode", "exec", "--cgroups", "--", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=True,
    )

    assert len(done.stdout.splitlines()) == len(list(CGROUPS.iterdir()))
    assert set(CGROUPS.glob("*/simnode-*")) == before  # those of the other nodes


def test_command_sees_only_its_own_control_groups() -> None:
    assert {line.split(":")[2] for line in Path("/proc/self/cgroup").read_text().splitlines()} == {"/"}


def test_kubelet_changes_no_setting_of_the_machines_kernel(node: ClusterNode) -> None:
    process = node.kubelet.program.process

    assert process is not None
    assert " /proc/sys/kernel/panic " in Path(f"/proc/{process.pid}/mountinfo").read_text()
    assert " /proc/sys/" not in Path("/proc/self/mountinfo").read_text()
    assert "Updating kernel flag" not in node.kubelet.program.log()
