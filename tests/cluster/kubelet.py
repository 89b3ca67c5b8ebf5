"""The real kubelet, with everything but its configuration at its usual places.

It has a mount namespace of its own, where files are bound over those settings of the kernel that it wants to be otherwise than the machine has
them (pkg/kubelet/cm/container_manager_linux.go, setupKernelTunables): it finds them as it wants them, and writes nothing. In the namespace of
the runtime nothing may be bound over /proc: the kernel then refuses a new /proc to pods with a user namespace (fs/namespace.c,
mount_too_revealing).
"""

import json
from pathlib import Path
from typing import Any

from tests.cluster import runtime
from tests.cluster.control_plane import kubelet_kubeconfig
from tests.cluster.ground import DNS_ADDRESS, KUBELET_FOLDER, NODE, NODE_ADDRESS, RUN, address_of
from tests.cluster.kubectl import Kubectl
from tests.cluster.process import Program

APART = "railnet.example.com/apart"
"""The taint of each node but the first."""

_CONFIGURATION = RUN / "kubelet.yaml"
_RESOLV_CONF = RUN / "resolv.conf"  # the machine's own search domains are not the pods'
_START_SECONDS = 300.0
# kubelet refuses to start with another policy than the one in these files.
_STATES = ("cpu_manager_state", "memory_manager_state")
_DEVICES = KUBELET_FOLDER / "device-plugins/kubelet_internal_checkpoint"
_KERNEL = RUN / "kernel"  # the files that kubelet sees in place of the machine's settings
_KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
_IN_NAMESPACE = """\
mount --make-private /proc
for name in $(cd "$0" && find . -type f); do mount --bind "$0/$name" "/proc/sys/$name"; done
exec kubelet "$@"
"""
_SETTINGS: dict[str, Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    # Only this node's programs can reach it.
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "clusterDNS": [DNS_ADDRESS],
    "clusterDomain": "cluster.local",
    "resolvConf": str(_RESOLV_CONF),
    "failSwapOn": False,
    "failCgroupV1": False,  # a machine of the tests may have version 1
    "seccompDefault": True,  # as a distribution has it
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

    def __init__(self, node: str, kubectl: Kubectl) -> None:
        """Describe the kubelet of a node; `kubectl` asks whether the node is ready."""
        self._node, self._kubectl = node, kubectl
        self._changes: dict[str, Any] = {}
        self.program = Program(_command(node), name="kubelet")

    def start(self) -> None:
        """Start it; returns at once."""
        for name, value in _KERNEL_SETTINGS.items():
            path = _KERNEL / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")
        taints = [] if self._node == NODE else [{"key": APART, "effect": "NoSchedule"}]
        own = {"address": address_of(self._node), "registerWithTaints": taints}
        _CONFIGURATION.write_text(json.dumps({**_SETTINGS, **own, **self._changes}))
        _RESOLV_CONF.write_text(f"nameserver {NODE_ADDRESS}\n")  # the site's resolver (tests/cluster/cluster_dns.py)
        self.program.start()

    def wait(self) -> None:
        """Wait until the node is ready."""
        self.program.wait(self._is_ready, _START_SECONDS)

    def restart(self) -> None:
        self.program.stop()
        self.start()
        self.wait()

    def configure(self, **changes: Any) -> None:
        """Start it anew with these settings beside the usual ones; it forgets which processors pods have of their own."""
        self.stop()
        for name in _STATES:
            (KUBELET_FOLDER / name).unlink(missing_ok=True)
        self._changes = changes
        self.start()
        self.wait()

    def has_given_devices(self) -> bool:
        """Tell whether it has noted devices of device plugins for pods, which may have ended: it forgets them when it gives some again."""
        try:
            noted = json.loads(_DEVICES.read_text())
        except FileNotFoundError:
            return False
        return bool(noted["Data"]["PodDeviceEntries"])

    def forget_devices(self) -> None:
        """Start it anew, with no note of devices that pods have."""
        self.stop()
        _DEVICES.unlink(missing_ok=True)
        self.start()
        self.wait()

    def stop(self) -> None:
        self.program.stop()

    def _is_ready(self) -> bool:
        return self._kubectl.answers("wait", f"node/{self._node}", "--for=condition=Ready", "--timeout=1s")


def _command(node: str) -> list[str | Path]:
    return [
        *("unshare", "--mount", "--propagation=unchanged", "sh", "-e", "-c", _IN_NAMESPACE, _KERNEL),
        f"--config={_CONFIGURATION}",
        f"--kubeconfig={kubelet_kubeconfig(node)}",
        f"--hostname-override={node}",
        f"--node-ip={address_of(node)}",
        f"--container-runtime-endpoint=unix://{runtime.SOCKET}",
        f"--cert-dir={RUN}/kubelet",
        "--v=2",
    ]
