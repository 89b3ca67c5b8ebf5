"""SemiAnalysis' audit of GPU clusters (`cmax` of PyPI's clustermax) sees the VFs that a node offers by DRA, and a topology label that it knows.

It does not know `railnet.io/leaf`: another program of the site must write a label such as NVIDIA's beside it.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from railnet.kubelet.dra_driver_name import DRIVER
from tests.cluster.control_plane import ADMIN
from tests.cluster.dra_node import ALL
from tests.cluster.ground import NODE
from tests.cluster.node import ClusterNode

_SECONDS = 600
_LEAF = "network.topology.nvidia.com/leaf"
_NO_WORKER = "node-role.kubernetes.io/control-plane"
_MAIN = "import sys; from cmax.cli import main; sys.exit(main())"


@contextlib.contextmanager
def without_its_pods(node: ClusterNode) -> Iterator[None]:
    """Have no pods of the audit, whose images nothing here has: it would wait minutes for each."""
    node.kubectl.run("label", "node", NODE, *node.others, f"{_NO_WORKER}=")
    node.kubectl.run("create", "quota", "no-pods", "--hard=pods=0")
    try:
        yield
    finally:
        node.kubectl.run("delete", "quota", "no-pods")
        node.kubectl.run("label", "node", NODE, *node.others, f"{_NO_WORKER}-")


def audit(folder: Path) -> tuple[dict[str, Any], str]:
    """Return what the audit of the cluster writes of networks, and what it prints."""
    programs = os.environ["RAILNET_CLUSTERMAX"]
    path = f"{programs}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"PYTHONPATH": programs, "PATH": path, "HOME": str(folder), "KUBECONFIG": str(ADMIN)}
    environment = {**os.environ, **own, "CLUSTERMAX_K8S_GPU_DRA": "1"}  # else it reads no ResourceSlice
    command = [sys.executable, "-c", _MAIN, "audit", "k8s", "--yes", f"--kubeconfig={ADMIN}"]
    done = subprocess.run(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()[-4000:]
    (values,) = folder.rglob("audit.values.json")
    networking: dict[str, Any] = json.loads(values.read_text())["audit_data"]["networking"]
    return networking, next(folder.rglob("audit.out")).read_text()


def test_audit_sees_rdma_and_a_topology_label_that_it_knows(dra: ClusterNode, tmp_path: Path) -> None:
    dra.kubectl.run("label", "node", NODE, f"{_LEAF}=leaf-1")
    try:
        with without_its_pods(dra):
            networking, printed = audit(tmp_path)
    finally:
        dra.kubectl.run("label", "node", NODE, f"{_LEAF}-")

    assert networking["rdmaType"] == "rdma"
    assert f"DRA RDMA devices: {ALL}" in printed
    assert f"Driver(s): {DRIVER}" in printed
    assert networking["topologyAware"] is True
    assert "network-topology-labels" in networking["topologyMechanisms"]
