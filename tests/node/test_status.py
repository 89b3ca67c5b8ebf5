"""`railnet status` shows the pods that a real daemon serves, and reports a missing daemon."""

import json
import subprocess
import sys

from simnode.node import Node


def status(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "railnet", "status", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_status_shows_the_pods_that_have_rails(node: Node) -> None:
    plain, pod = node.run_pod("plain"), node.run_pod("train", vfs=1)
    table, as_json = status(), status("--json")
    node.remove_pod(pod)
    node.remove_pod(plain)

    rows = [line.split() for line in table.stdout.splitlines()]
    (vf,) = pod.device_ids
    (row,) = (row for row in rows if row[:1] == ["default/train"])
    assert row[1:5] == ["net1", vf, "0", "10.56.3.1/16"]
    assert row[6] == "attached"
    report = json.loads(as_json.stdout)
    assert [sandbox["id"] for sandbox in report["sandboxes"]] == [pod.container_id]
    states = [one["state"] for one in report["vfs"]]
    assert (len(states), states.count("attached")) == (node.vfs, 1)
    assert table.returncode == as_json.returncode == (1 if report["reasons"] else 0)


def test_status_reports_that_no_daemon_answers(node: Node) -> None:
    node.stop_daemon()
    done = status()
    node.start_daemon()

    assert (done.returncode, done.stdout) == (5, "")
    assert (
        "railnet: the daemon does not answer on /run/railnet/cni.sock: No such file or directory; look at"
        in done.stderr
    )
