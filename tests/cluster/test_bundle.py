"""`railnet bundle` of a real cluster, as its administrator: by exec in Railnet's pods, with a daemon that is dead on one node."""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from railnet.bundle import archive
from railnet.bundle.archive import Bundle
from tests.cluster.control_plane import ADMIN
from tests.cluster.ground import NODE
from tests.cluster.node import ClusterNode
from tests.cluster.pods import pod

_SECONDS = 240.0
PLANTED = "hunter2-planted-secret"


def made(file: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], Bundle]:
    command = [sys.executable, "-m", "railnet", "bundle", f"--kubeconfig={ADMIN}", *options, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    assert file.exists(), done.stderr
    return done, archive.read(file)


def with_secrets(node: ClusterNode) -> str:
    """Start a pod with a rail whose environment, annotation and Secret have the planted secret; return its name."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "planted"}, "stringData": {"token": PLANTED}}
    node.kubectl.apply(secret)
    train = pod("train", 1)
    train["metadata"]["annotations"] = {"example.com/token": PLANTED}
    reference = {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "planted", "key": "token"}}}
    train["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": PLANTED}, reference]
    node.create(train)
    node.wait_until_ready("train")
    return "train"


def test_bundle_of_all_nodes_has_no_secret_and_a_dead_daemon_costs_its_part_alone(
    node: ClusterNode, tmp_path: Path, measured: Callable[[str], None]
) -> None:
    train = with_secrets(node)
    done, whole = made(tmp_path / "whole.tar.gz", "--all")
    supervisor = node.railnet.freeze()
    try:
        dead, partial = made(tmp_path / "dead.tar.gz", "--node", NODE)
    finally:
        node.railnet.kill()
    node.railnet.start()
    node.delete(train)
    node.kubectl.run("delete", "secret", "planted")

    measured(
        f"railnet bundle --all: {len(whole.files)} files, {(tmp_path / 'whole.tar.gz').stat().st_size} bytes\n{done.stderr}"
    )
    for name in node.nodes():
        assert {
            f"nodes/{name}/{part}.json" for part in ("doctor", "status", "versions", "node", "events")
        } <= whole.files.keys()
        assert any(path.startswith(f"nodes/{name}/") and path.endswith(".railnet.log") for path in whole.files)
        assert json.loads(whole.files[f"nodes/{name}/doctor.json"])["findings"] is not None
    assert [path for path in whole.files if path.startswith(f"nodes/{NODE}/journal/")] != []
    assert json.loads(whole.files[f"nodes/{NODE}/kubelet/devices.json"]) != []
    assert done.returncode == 6, done.stderr
    assert [entry.what for entry in whole.left_out] == [f"nodes/{name}" for name in node.others]
    assert all("Railnet has no pod on this node" in entry.why for entry in whole.left_out)
    for file in ("whole.tar.gz", "dead.tar.gz"):
        content = gzip.decompress((tmp_path / file).read_bytes())
        assert PLANTED.encode() not in content
        assert b"AllocResp" not in content

    assert supervisor > 0
    assert dead.returncode == 6
    assert [entry.what for entry in partial.left_out] == [f"nodes/{NODE}/status.json"]
    assert "the daemon does not answer" in partial.left_out[0].why
    assert f"nodes/{NODE}/doctor.json" in partial.files
