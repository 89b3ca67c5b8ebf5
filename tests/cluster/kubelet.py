"""The real kubelet, with everything but its configuration at its usual places."""

import json
import os
from pathlib import Path
from typing import Any

from tests.cluster import runtime
from tests.cluster.control_plane import KUBELET, NODE
from tests.cluster.ground import DNS_ADDRESS, NODE_ADDRESS, RUN
from tests.cluster.kubectl import Kubectl
from tests.cluster.process import Program

_CONFIGURATION = RUN / "kubelet.yaml"
_RESOLV_CONF = RUN / "resolv.conf"  # empty: the machine's search domains are not the pods'
_START_SECONDS = 300.0
_SETTINGS: dict[str, Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "address": NODE_ADDRESS,
    # Only this node's programs can reach it.
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "clusterDNS": [DNS_ADDRESS],
    "clusterDomain": "cluster.local",
    "resolvConf": str(_RESOLV_CONF),
    "failSwapOn": False,
    "nodeStatusUpdateFrequency": "1s",  # 10 s by default: then half of the tests' time would be waits for allocatable VFs
    # 5 and 10 by default: twenty pods at once then wait for kubelet's turn to speak, not for their networks.
    "kubeAPIQPS": 50,
    "kubeAPIBurst": 100,
    "makeIPTablesUtilChains": False,  # kube-proxy makes the chains that its rules need
    "protectKernelDefaults": True,  # kubelet then ends rather than change the machine's
    "oomScoreAdj": 0,
    # The machine's disk and memory are not the node's.
    "evictionHard": {"imagefs.available": "1%", "nodefs.available": "1%", "memory.available": "10Mi"},
    "imageGCHighThresholdPercent": 100,
}


class Kubelet:
    """kubelet; pods outlive it."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl
        # Kubernetes 1.20 still asks Amazon's metadata service for credentials, and waits for an answer.
        self.program = Program(_command(), {**os.environ, "AWS_EC2_METADATA_DISABLED": "true"})

    def start(self) -> None:
        """Start it and wait until the node is ready."""
        _CONFIGURATION.write_text(json.dumps(_SETTINGS))
        _RESOLV_CONF.touch()
        self.program.start()
        self.program.wait(self._is_ready, _START_SECONDS)

    def restart(self) -> None:
        self.program.stop()
        self.start()

    def stop(self) -> None:
        self.program.stop()

    def _is_ready(self) -> bool:
        return self._kubectl.answers("wait", f"node/{NODE}", "--for=condition=Ready", "--timeout=1s")


def _command() -> list[str | Path]:
    return [
        "kubelet",
        f"--config={_CONFIGURATION}",
        f"--kubeconfig={KUBELET}",
        f"--hostname-override={NODE}",
        f"--node-ip={NODE_ADDRESS}",
        "--container-runtime=remote",
        f"--container-runtime-endpoint=unix://{runtime.SOCKET}",
        f"--cert-dir={RUN}/kubelet",
        "--v=2",
    ]
