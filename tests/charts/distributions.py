"""`host` of node.yaml for each value of the chart's `distribution`. docs/install.md has the sources."""

from pathlib import Path

HOSTS: dict[str, dict[str, str]] = {
    "kubeadm": {},
    "talos": {},
    "rke2": {"cri": "/run/k3s/containerd/containerd.sock"},
    "k0s": {"kubelet": "/var/lib/k0s/kubelet", "cri": "/run/k0s/containerd.sock"},
    "k3s": {
        "cniConf": "/var/lib/rancher/k3s/agent/etc/cni/net.d",
        "cniBin": "/var/lib/rancher/k3s/data/cni",
        "cri": "/run/k3s/containerd/containerd.sock",
    },
    "microk8s": {
        "cniConf": "/var/snap/microk8s/current/args/cni-network",
        "cniBin": "/var/snap/microk8s/current/opt/cni/bin",
        "kubelet": "/var/snap/microk8s/common/var/lib/kubelet",
        "cri": "/var/snap/microk8s/common/run/containerd.sock",
        "flannel": "/var/snap/microk8s/common/run/flannel/subnet.env",
    },
    "openshift": {"cniConf": "/etc/kubernetes/cni/net.d", "cniBin": "/var/lib/cni/bin", "cri": "/run/crio/crio.sock"},
}
FIELDS = {"cniConf": "cni_conf", "cniBin": "cni_bin", "kubelet": "kubelet", "cri": "cri", "flannel": "flannel"}
"""The attributes of `HostConfiguration` by the keys of node.yaml."""


def paths(distribution: str) -> dict[str, Path]:
    """Return the changed attributes of `HostConfiguration`."""
    return {FIELDS[key]: Path(value) for key, value in HOSTS[distribution].items()}
