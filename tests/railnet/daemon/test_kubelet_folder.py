"""Where kubelet's root folder is looked for on a host."""

from pathlib import Path

import pytest

from railnet.configuration import HostConfiguration
from railnet.daemon.kubelet_folder import KubeletSearch, find, running_kubelet


class Host:
    """A host's root folder, and a /proc with processes that have this root or another one."""

    def __init__(self, folder: Path) -> None:
        self.root, self.proc, self.other = folder / "root", folder / "proc", folder / "other"
        for part in (self.root, self.proc, self.other):
            part.mkdir()

    def runs(self, pid: int, *command: str, root: Path | None = None, environ: bytes = b"") -> None:
        process = self.proc / str(pid)
        process.mkdir()
        (process / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in command))
        (process / "environ").write_bytes(environ)
        (process / "root").symlink_to(root or self.root)

    def has(self, *folders: str, root: Path | None = None) -> None:
        for folder in folders:
            ((root or self.root) / folder.lstrip("/")).mkdir(parents=True)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_running_kubelet_says_where_its_root_is(host: Host) -> None:
    host.has("/var/lib/kubelet/plugins_registry", "/var/lib/k0s/kubelet/plugins_registry")
    host.runs(1, "/sbin/init")
    host.runs(2, "")
    host.runs(812, "/var/lib/k0s/bin/kubelet", "--root-dir=/var/lib/k0s/kubelet")

    folder = find(HostConfiguration(root=host.root), host.proc)

    assert str(folder) == "/var/lib/k0s/kubelet (--root-dir of kubelet, process 812)"


def test_kubelet_of_microk8s_is_found_by_its_file_and_its_environment(host: Host) -> None:
    host.has("/var/snap/microk8s/common/var/lib/kubelet/plugins_registry", "/var/snap/microk8s/9/args")
    (host.root / "var/snap/microk8s/9/args/kubelet").write_text("--root-dir=${SNAP_COMMON}/var/lib/kubelet\n")
    host.runs(
        7,
        "/snap/microk8s/9/kubelite",
        "--kubelet-args-file=/var/snap/microk8s/9/args/kubelet",
        environ=b"SNAP_COMMON=/var/snap/microk8s/common\0",
    )

    folder = running_kubelet(host.root, host.proc)

    assert folder is not None
    assert folder.path == Path("/var/snap/microk8s/common/var/lib/kubelet")


def test_kubelet_of_a_node_in_a_container_is_not_this_hosts(host: Host) -> None:
    host.has("/data/kubelet/plugins_registry")
    host.has("/data/kubelet/plugins_registry", root=host.other)
    host.runs(5, "kubelet", "--root-dir=/data/kubelet", root=host.other)

    assert running_kubelet(host.root, host.proc) is None


def test_process_that_only_has_kubelets_name_is_passed_over(host: Host) -> None:
    host.has("/var/lib/kubelet/plugins_registry")
    host.runs(5, "kubelet", "--root-dir=/nowhere")
    host.runs(6, "kubelite", "--kubelet-args-file=/absent")
    host.runs(70, "kubelet")

    assert str(running_kubelet(host.root, host.proc)) == "/var/lib/kubelet (--root-dir of kubelet, process 70)"


def test_configured_folder_wins_over_the_running_kubelet(host: Host) -> None:
    host.has("/data/kubelet/plugins_registry")
    host.runs(5, "kubelet", "--root-dir=/data/kubelet")

    folder = find(HostConfiguration(root=host.root, kubelet=Path("/srv/kubelet")), host.proc)

    assert str(folder) == "/srv/kubelet (host.kubelet of node.yaml)"


def test_kubelet_that_starts_later_is_found_when_it_is_looked_for_again(host: Host) -> None:
    search = KubeletSearch(HostConfiguration(root=host.root), host.proc)
    host.has("/data/kubelet/plugins_registry")
    host.has("/data/kubelet/pod-resources/kubelet.sock")
    host.runs(5, "kubelet", "--root-dir=/data/kubelet")

    with pytest.raises(FileNotFoundError, match="pod-resources"), search.pod_resources():
        pass
    search.look()

    with search.pod_resources() as opened:
        assert opened.samefile(host.root / "data/kubelet/pod-resources/kubelet.sock")


def test_socket_is_found_below_a_folder_that_is_an_absolute_link(host: Host) -> None:
    host.has("/data/kubelet/pod-resources/kubelet.sock")
    (host.root / "var/lib").mkdir(parents=True, exist_ok=True)
    (host.root / "var/lib/kubelet").symlink_to("/data/kubelet")

    with KubeletSearch(HostConfiguration(root=host.root), host.proc).pod_resources() as opened:
        assert opened.samefile(host.root / "data/kubelet/pod-resources/kubelet.sock")
