"""`railnet bundle` on a simulated node: a daemon that is dead or hangs costs its part alone, and planted secrets are in no file."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

from railnet.bundle import archive
from simnode.node import Node

PLANTED = "hunter2-planted-secret"
SECONDS = 120.0


def test_bundle_of_a_node_has_its_parts_whatever_the_daemon_does(node: Node, daemon: str, tmp_path: Path) -> None:
    pod = node.run_pod("train", vfs=1) if daemon == "running" else None
    foreign = Path("/etc/cni/net.d/99-other.conflist")
    foreign.write_text(json.dumps({"name": "other", "plugins": [{"type": "x", "token": PLANTED}]}))
    file = tmp_path / "bundle.tar.gz"
    command = [sys.executable, "-m", "railnet", "bundle", str(file)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    finally:
        foreign.unlink()
        if pod is not None:
            node.remove_pod(pod)

    bundle = archive.read(file)
    names = {path.split("/", 2)[2] for path in bundle.files}
    assert {"doctor.json", "versions.json", "node.yaml.json", "rails.json", "conflists/99-other.conflist"} <= names
    assert {"conflists/00-railnet.conflist", "conflists/10-flannel.conflist"} <= names
    assert ("status.json" in names) == (daemon == "running")
    assert any(name.startswith("journal/") for name in names) == (daemon == "running")
    assert [entry.what.rpartition("/")[2] for entry in bundle.left_out] == (
        [] if daemon == "running" else ["status.json"]
    )
    assert done.returncode == (0 if daemon == "running" else 6), done.stderr
    content = gzip.decompress(file.read_bytes())
    assert PLANTED.encode() not in content
    assert b"AllocResp" not in content

    read = subprocess.run(
        [sys.executable, "-m", "railnet", "doctor", "--bundle", str(file), "--json"], capture_output=True, check=False
    )
    found = {one["name"] for one in json.loads(read.stdout)["findings"]}
    assert {"daemon-silent", "not-in-the-bundle"} & found == (
        set() if daemon == "running" else {"daemon-silent", "not-in-the-bundle"}
    )
