"""Kubelet's root folder by its command line, as each distribution starts kubelet."""

import pytest

from railnet.kubelet.root_folder import root_folder, runs_kubelet

# canonical/microk8s, microk8s-resources/default-args/kubelet, without the lines that say nothing of paths.
MICROK8S = """\
--kubeconfig=${SNAP_DATA}/credentials/kubelet.config
--root-dir=${SNAP_COMMON}/var/lib/kubelet
--node-labels="microk8s.io/cluster=true,node.kubernetes.io/microk8s-controlplane=microk8s-controlplane"
# --root-dir=/not/this
"""
FILES = {"/var/snap/microk8s/9072/args/kubelet": MICROK8S}
SOCKETS = ("/run/k3s/containerd/containerd.sock", "/srv/k3s/kubelet/pod-resources/kubelet.sock")
ENVIRONMENT = {"SNAP_COMMON": "/var/snap/microk8s/common", "SNAP_DATA": "/var/snap/microk8s/9072"}


@pytest.mark.parametrize(
    ("command", "folder"),
    [
        (["/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml"], "/var/lib/kubelet"),
        (["/var/lib/k0s/bin/kubelet", "--root-dir=/var/lib/k0s/kubelet", "--v=1"], "/var/lib/k0s/kubelet"),
        (["kubelet", "--root-dir", "/data/kubelet", "--v", "2"], "/data/kubelet"),
        (["kubelet", "--root-dir=/a", "--root-dir=/b"], "/b"),
        (
            ["/snap/microk8s/9072/kubelite", "--kubelet-args-file=/var/snap/microk8s/9072/args/kubelet"],
            "/var/snap/microk8s/common/var/lib/kubelet",
        ),
        (["/usr/local/bin/k3s", "server"], "/var/lib/kubelet"),
        (["/usr/local/bin/k3s", "agent", "--kubelet-arg=root-dir=/data/kubelet"], "/data/kubelet"),
        (["/usr/local/bin/k3s", "agent", "--kubelet-arg", "root-dir=/data/kubelet"], "/data/kubelet"),
        (["/usr/local/bin/k3s server", "", ""], "/srv/k3s/kubelet"),
        (["/usr/local/bin/k3s agent"], "/srv/k3s/kubelet"),
        (["/usr/local/bin/k3s etcd-snapshot"], None),
        (["/usr/local/bin/k3s", "kubectl", "get", "nodes"], None),
        (["vim", "kubelet", "--root-dir=/data/kubelet"], None),
        (["containerd"], None),
        ([""], None),
        ([], None),
    ],
)
def test_root_is_what_the_command_line_says(command: list[str], folder: str | None) -> None:
    assert root_folder(command, ENVIRONMENT, FILES.__getitem__, lambda: SOCKETS) == folder
    assert runs_kubelet(command) is (folder is not None)


def test_root_is_not_known_while_the_kubelet_of_k3s_has_no_socket() -> None:
    assert root_folder(["/usr/local/bin/k3s server"], {}, FILES.__getitem__, lambda: SOCKETS[:1]) is None
    assert runs_kubelet(["/usr/local/bin/k3s server"])
