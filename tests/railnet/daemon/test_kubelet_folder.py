"""Where kubelet's root folder is looked for on a host."""

import asyncio
import os
from errno import ETIMEDOUT
from pathlib import Path

import pytest

from railnet.configuration import HostConfiguration
from railnet.daemon.kubelet_folder import KubeletSearch, find, may_have_kubelet, running_kubelet
from railnet.kubelet.root_folder import KubeletFolder


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

    def listens(self, pid: int, *paths: str) -> None:
        process = self.proc / str(pid)
        for folder in ("fd", "net"):
            (process / folder).mkdir()
        lines = ["Num       RefCount Protocol Flags    Type St Inode Path"]
        for inode, path in enumerate(paths, 70001):
            (process / "fd" / str(inode)).symlink_to(f"socket:[{inode}]")
            lines.append(f"0000000004a4f188: 00000002 00000000 00010000 0001 01 {inode} {path}")
        (process / "net/unix").write_text("\n".join([*lines, ""]))

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


def test_kubelet_of_k3s_is_found_by_its_socket(host: Host) -> None:
    """K3s replaces its arguments by a title, so neither --kubelet-arg nor its file of settings is seen there."""
    host.has("/var/lib/kubelet/plugins_registry", "/data/kubelet/plugins_registry")
    host.runs(5, "/usr/local/bin/k3s server", "", "")
    host.listens(5, "/data/kubelet/pod-resources/kubelet.sock", "/run/k3s/containerd/containerd.sock")

    assert str(running_kubelet(host.root, host.proc)) == "/data/kubelet (--root-dir of kubelet, process 5)"


def test_socket_at_a_path_without_kubelets_folder_is_no_kubelets(host: Host) -> None:
    host.runs(5, "/usr/local/bin/k3s agent")
    host.listens(5, "/tmp/pod-resources/kubelet.sock")

    assert running_kubelet(host.root, host.proc) is None


def test_kubelet_of_a_node_in_a_container_makes_no_node_of_this_host(host: Host) -> None:
    host.has("/var/lib/kubelet/plugins_registry", root=host.other)
    host.runs(5, "/usr/bin/kubelet", root=host.other)

    assert not may_have_kubelet(host.root, host.proc)

    host.has("/var/lib/kubelet/plugins_registry")

    assert not may_have_kubelet(host.root, host.proc)


@pytest.mark.parametrize("words", [["kubelet", "--root-dir=/data/kubelet"], ["/usr/local/bin/k3s server"]])
def test_kubelet_that_has_no_folder_yet_may_be_this_hosts(host: Host, words: list[str]) -> None:
    host.runs(5, *words)

    assert may_have_kubelet(host.root, host.proc)


def test_kubelet_of_this_host_makes_it_a_node(host: Host) -> None:
    host.has("/data/kubelet/plugins_registry")
    host.runs(4, "vim", "kubelet")
    assert not may_have_kubelet(host.root, host.proc)

    host.runs(5, "kubelet", "--root-dir=/data/kubelet")
    assert may_have_kubelet(host.root, host.proc)


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


def test_folder_that_was_found_last_stays_while_kubelet_is_restarted(host: Host) -> None:
    host.has("/data/kubelet/plugins_registry", "/srv/kubelet/plugins_registry")

    async def main() -> list[str]:
        search = KubeletSearch(HostConfiguration(root=host.root), host.proc)
        looks = [str((await search.look()).path)]
        for pid, folder in ((5, "/data/kubelet"), (6, ""), (7, "/srv/kubelet"), (8, "")):
            if folder:
                host.runs(pid, "kubelet", f"--root-dir={folder}")
            looks.append(str((await search.look()).path))
            if folder:
                (host.proc / str(pid) / "cmdline").write_bytes(b"")
        return looks

    assert asyncio.run(main()) == ["/var/lib/kubelet", *["/data/kubelet"] * 2, *["/srv/kubelet"] * 2]


async def pod_resources(search: KubeletSearch) -> os.stat_result:
    async with search.pod_resources() as opened:
        return opened.stat()


def test_kubelet_that_starts_later_is_found_when_it_is_looked_for_again(host: Host) -> None:
    host.has("/data/kubelet/plugins_registry")
    host.has("/data/kubelet/pod-resources/kubelet.sock")
    host.runs(5, "kubelet", "--root-dir=/data/kubelet")

    async def main() -> os.stat_result:
        search = KubeletSearch(HostConfiguration(root=host.root), host.proc)
        with pytest.raises(FileNotFoundError, match="pod-resources"):
            await pod_resources(search)
        await search.look()
        return await pod_resources(search)

    assert os.path.samestat(asyncio.run(main()), (host.root / "data/kubelet/pod-resources/kubelet.sock").stat())


def test_socket_is_found_below_a_folder_that_is_an_absolute_link(host: Host) -> None:
    host.has("/data/kubelet/pod-resources/kubelet.sock")
    (host.root / "var/lib").mkdir(parents=True, exist_ok=True)
    (host.root / "var/lib/kubelet").symlink_to("/data/kubelet")

    opened = asyncio.run(pod_resources(KubeletSearch(HostConfiguration(root=host.root), host.proc)))

    assert os.path.samestat(opened, (host.root / "data/kubelet/pod-resources/kubelet.sock").stat())


def hang(host: Host, pid: int) -> Path:
    """Make a process whose command line is not to be read: a pipe waits for its other end."""
    host.runs(pid, "stuck")
    file = host.proc / str(pid) / "cmdline"
    file.unlink()
    os.mkfifo(file)
    return file


def test_process_that_hangs_costs_one_look_and_the_next_one_finds_kubelet(host: Host) -> None:
    hung = hang(host, 5)
    host.has("/data/kubelet/plugins_registry")
    host.runs(812, "kubelet", "--root-dir=/data/kubelet")

    async def main() -> None:
        search = KubeletSearch(HostConfiguration(root=host.root), host.proc, 0.05)
        with pytest.raises(TimeoutError, match="not known which process is kubelet") as raised:
            await search.look()
        assert (raised.value.errno, raised.value.filename) == (ETIMEDOUT, "/proc/5")
        assert str(await search.look()) == "/data/kubelet (--root-dir of kubelet, process 812)"
        hung.write_bytes(b"")

    asyncio.run(main())


def test_process_that_hangs_costs_the_registrations_of_many_pools_one_look(host: Host) -> None:
    hung = hang(host, 5)
    host.has("/data/kubelet/plugins_registry")
    host.runs(812, "kubelet", "--root-dir=/data/kubelet")

    async def main() -> None:
        search = KubeletSearch(HostConfiguration(root=host.root), host.proc, 0.05)
        answers = await asyncio.gather(*(search.look() for _ in range(6)), return_exceptions=True)
        hung.write_bytes(b"")
        assert [type(answer) for answer in answers] == [TimeoutError, *[KubeletFolder] * 5]

    asyncio.run(main())


def test_default_is_not_taken_while_the_process_that_hangs_may_be_kubelet(host: Host) -> None:
    host.has("/data/kubelet/plugins_registry")
    hung = hang(host, 5)

    async def main() -> None:
        search = KubeletSearch(HostConfiguration(root=host.root), host.proc, 0.05)
        for _ in range(3):
            with pytest.raises(TimeoutError, match=r"set host\.kubelet"):
                await search.look()
        hung.write_bytes(b"kubelet\0--root-dir=/data/kubelet\0")
        found = ""
        while not found.startswith("/data/kubelet"):
            try:
                found = str(await search.look())
            except TimeoutError:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_processes_that_hang_take_four_threads_at_most(host: Host) -> None:
    pipes = [hang(host, pid) for pid in (3, 4, 5, 6, 7)]

    async def main() -> None:
        search = KubeletSearch(HostConfiguration(root=host.root), host.proc, 0.05)
        named = list[str]()
        for _ in range(6):
            with pytest.raises(TimeoutError) as raised:
                await search.look()
            named.append(raised.value.filename)
        assert named == ["/proc/3", "/proc/4", "/proc/5", "/proc/6", *["/proc/3, /proc/4, /proc/5, /proc/6"] * 2]

    try:
        asyncio.run(main())
    finally:
        for pipe in pipes[:4]:
            pipe.write_bytes(b"")


def test_state_of_claims_is_opened_in_the_folder_of_the_last_look(host: Host) -> None:
    host.has("/data/kubelet/plugins_registry")
    (host.root / "data/kubelet/dra_manager_state").write_text("{}")
    host.runs(5, "kubelet", "--root-dir=/data/kubelet")
    search = KubeletSearch(HostConfiguration(root=host.root), host.proc)

    with pytest.raises(OSError, match="not known yet"):
        search.open_dra_manager_state()
    asyncio.run(search.look())

    assert opened(search) == b"{}"


def test_state_of_claims_is_opened_in_the_configured_folder_without_a_look(tmp_path: Path) -> None:
    (tmp_path / "dra_manager_state").write_text("{}")

    assert opened(KubeletSearch(HostConfiguration(root=Path("/"), kubelet=tmp_path))) == b"{}"


def opened(search: KubeletSearch) -> bytes:
    fd = search.open_dra_manager_state()
    try:
        return os.read(fd, 100)
    finally:
        os.close(fd)
