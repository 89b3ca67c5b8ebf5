"""Railnet is installed, upgraded and uninstalled while pods come and go and while other tools write configurations."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from simnode.kubernetes.runtime import CniFailed
from simnode.node import RESOURCE, Node, Pod
from simnode.preinstalled_files import CONFIGURATION
from tests.node.primaries import PLUGINS, RUN, node_links

NETWORKS = Path("/etc/cni/net.d")
OURS = NETWORKS / "00-railnet.conflist"
FLANNEL = NETWORKS / "10-flannel.conflist"
BUNDLES = PLUGINS / ".railnet"
CACHES = Path("/var/lib/cni")

# Runs `railnet` as another version, so that its bundle and its executable differ.
OTHER_VERSION = "import sys; from railnet import __main__; from railnet.install import python_bundle; python_bundle.VERSION = sys.argv.pop(1); __main__.main()"


@pytest.fixture
def bare() -> Iterator[Node]:
    """Provide a node with flannel and without Railnet."""
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), vfs=2) as node:
        yield node


@pytest.fixture
def node(bare: Node) -> Node:
    """Provide a node where Railnet is installed and serves."""
    bare.install()
    bare.start_daemon()
    return bare


@pytest.fixture(params=[False, True], ids=["containerd", "CRI-O"])
def runtime(request: pytest.FixtureRequest, bare: Node) -> str:
    """Choose the configuration of the runtime's DEL: the present one, or the one that ADD was made with."""
    bare.runtime.remembers = request.param
    return "CRI-O" if request.param else "containerd"


# Railnet is installed.


def test_runtime_uses_the_primary_until_the_daemon_serves(bare: Node) -> None:
    bare.install()
    pod = bare.run_pod("before")
    installed = [path.name for path in NETWORKS.iterdir()]
    bare.start_daemon()

    bare.remove_pod(pod)

    assert installed == [FLANNEL.name]
    assert plugins_of(OURS) == ["railnet"]


def test_pod_that_is_older_than_the_installation_is_taken_down(bare: Node, runtime: str) -> None:
    pod = bare.run_pod("older")
    bare.install()
    bare.start_daemon()

    bare.remove_pod(pod)

    assert left_of_pods() == []


def test_installation_that_does_not_answer_changes_nothing(node: Node) -> None:
    before = (PLUGINS / "railnet").read_bytes()
    code = "from railnet import __main__; from railnet.install import installer; installer._EXECUTABLE = '#!/usr/bin/false\\n'; __main__.main()"

    done = railnet("install", code=code)

    pod = node.run_pod("after")
    node.remove_pod(pod)
    assert done.returncode == 1
    assert "does not answer VERSION" in done.stderr
    assert (PLUGINS / "railnet").read_bytes() == before


def test_daemon_waits_for_a_missing_primary_and_reports_it(bare: Node) -> None:
    content = FLANNEL.read_bytes()
    FLANNEL.unlink()
    bare.install()
    bare.start_daemon(wait=False)
    until(lambda: "install flannel" in bare.daemon.log())
    ready = probe("/readyz")

    FLANNEL.write_bytes(content)
    bare.kubelet.wait_for_devices(RESOURCE, bare.vfs, 60)

    assert ready[0] == 503
    assert "has no CNI configuration but Railnet's" in ready[1]
    assert plugins_of(OURS) == ["railnet"]


# Railnet keeps its configuration in place.


@pytest.mark.parametrize("name", [f"{OURS.name}.cilium_bak", f"{OURS.name}.bak"])
def test_configuration_that_another_tool_moves_comes_back(node: Node, name: str) -> None:
    content = OURS.read_bytes()

    OURS.rename(NETWORKS / name)
    until(OURS.exists, 5)

    assert OURS.read_bytes() == content


def test_primary_that_another_tool_replaces_is_followed(node: Node) -> None:
    FLANNEL.rename(NETWORKS / f"{FLANNEL.name}.cilium_bak")
    (NETWORKS / "05-other.conflist").write_text(
        json.dumps({"cniVersion": "0.4.0", "name": "other", "plugins": [{"type": "bridge", "ipam": HOST_LOCAL}]})
    )
    until(lambda: json.loads(OURS.read_bytes())["name"] == "other", 5)

    pod = node.run_pod("follows", vfs=1)
    address = json.loads(pod.result)["ips"][0]["address"]
    node.remove_pod(pod)

    assert address.startswith("10.99.0.")


def test_half_written_primary_changes_nothing(node: Node) -> None:
    content, ours = FLANNEL.read_bytes(), OURS.read_bytes()
    FLANNEL.write_bytes(content[:40])
    until(lambda: "is not JSON" in probe("/readyz")[1])
    broken = OURS.read_bytes()

    with pytest.raises(CniFailed) as failure:
        node.run_pod("meanwhile")
    FLANNEL.write_bytes(content)
    until(lambda: probe("/readyz")[0] == 200)
    pod = node.run_pod("after", vfs=1)
    node.remove_pod(pod)

    assert (failure.value.code, broken) == (7, ours)


def test_vfs_are_unhealthy_at_once_when_another_configuration_sorts_first(node: Node) -> None:
    other = NETWORKS / "00-multus.conf"
    other.write_text('{"cniVersion": "0.3.1", "name": "multus", "type": "multus"}')
    node.kubelet.wait_for_devices(RESOURCE, 0, 60)
    ready = probe("/readyz")

    other.unlink()
    node.kubelet.wait_for_devices(RESOURCE, node.vfs, 60)

    assert ready[0] == 503
    assert "it takes 00-multus.conf" in ready[1]


def test_no_request_fails_during_upgrades_and_one_bundle_is_left(node: Node) -> None:
    stop, failures = threading.Event(), []
    pods = [0, 0]

    def churn(worker: int) -> None:
        while not stop.is_set():
            try:
                box = node.runtime.create_sandbox("default", f"churn-{worker}", "")
                node.runtime.add(box)
                node.runtime.tear_down(box)
                pods[worker] += 1
            except (CniFailed, OSError) as failure:
                failures.append(failure)
                return

    workers = [threading.Thread(target=churn, args=(worker,)) for worker in range(2)]
    for worker in workers:
        worker.start()
    upgrades = [railnet("install", code=OTHER_VERSION, version=f"9.0.{number}") for number in range(6)]
    stop.set()
    for worker in workers:
        worker.join()
    last = railnet("install")

    assert failures == []
    assert [done.returncode for done in (*upgrades, last)] == [0] * 7
    assert min(pods) > 3
    assert len(list(BUNDLES.iterdir())) == 1


def test_bundle_stays_for_a_request_that_runs_from_it(node: Node) -> None:
    (PLUGINS / "slow").write_text(
        "#!/bin/sh\ncat >/dev/null; [ $CNI_COMMAND = DEL ] && exit; echo >/run/slow; read x </run/go; echo '{}'\n"
    )
    (PLUGINS / "slow").chmod(0o755)
    os.mkfifo("/run/go")
    (NETWORKS / "05-slow.conflist").write_text('{"cniVersion": "0.4.0", "name": "slow", "plugins": [{"type": "slow"}]}')
    until(lambda: json.loads(OURS.read_bytes())["name"] == "slow")
    box = node.runtime.create_sandbox("default", "slow", "")
    adding = threading.Thread(target=node.runtime.add, args=(box,))
    adding.start()
    until(Path("/run/slow").exists)

    upgraded = railnet("install", code=OTHER_VERSION, version="9.9.9")
    during = len(list(BUNDLES.iterdir()))
    Path("/run/go").write_text("\n")
    adding.join()
    railnet("install", code=OTHER_VERSION, version="9.9.9")

    node.runtime.tear_down(box)
    assert "requests still run" in upgraded.stdout
    assert (during, len(list(BUNDLES.iterdir()))) == (2, 1)


def test_next_daemon_waits_for_the_end_of_the_one_before(node: Node) -> None:
    pod = node.run_pod("train", vfs=1)
    first = node.daemon.process
    with subprocess.Popen(command("node"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as second:
        try:
            warning = next(line for line in second.stderr if "another railnet daemon" in line)
            drain = threading.Thread(target=second.stderr.read)
            drain.start()
            alive = second.poll() is None
            answered = probe("/readyz")[0]
            first.send_signal(signal.SIGTERM)
            first.wait(60)
            until(lambda: len(node.kubelet.healthy(RESOURCE)) == node.vfs and probe("/readyz")[0] == 200)
            node.remove_pod(pod)
        finally:
            second.send_signal(signal.SIGTERM)
        drain.join()

    assert ("waits for its end" in warning, alive, answered) == (True, True, 200)
    assert second.returncode == 0
    assert left_of_pods() == []


# Railnet reports its health.


def test_health_endpoints_follow_the_daemons_state(node: Node) -> None:
    until(lambda: probe("/readyz") == (200, "ok\n"))
    node.kubelet.stop()
    until(lambda: probe("/readyz")[0] == 503)
    without_kubelet = probe("/readyz")[1], probe("/healthz")
    node.kubelet.start()
    until(lambda: probe("/readyz")[0] == 200)
    node.stop_daemon()

    reason = f"kubelet does not watch {RESOURCE}: its socket is in /var/lib/kubelet/plugins_registry; kubelet's root folder is /var/lib/kubelet "
    assert without_kubelet[0].startswith(reason)
    assert without_kubelet[1] == (200, "ok\n")
    with pytest.raises(ConnectionRefusedError):
        probe("/healthz")


# The node has no card.


@pytest.fixture
def cardless() -> Iterator[Node]:
    """Provide a node without an InfiniBand card whose node configuration is for nodes that have one."""
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), pfs=()) as node:
        document = json.loads(CONFIGURATION.read_text())
        document["provision"] = [{"pf": "0000:03:00.0", "vfs": 8}]
        CONFIGURATION.write_text(json.dumps(document))
        node.install()
        node.start_daemon()
        until(lambda: probe("/readyz")[0] == 200)
        yield node


def test_node_without_a_card_is_served_and_offers_nothing(cardless: Node) -> None:
    with_railnet = cardless.run_pod("plain")
    cardless.remove_pod(with_railnet)

    assert cardless.kubelet.healthy(RESOURCE) == []
    assert json.loads(with_railnet.result)["ips"][0]["address"].startswith("10.244.3.")
    assert left_of_pods() == []


# Railnet is uninstalled.


def test_stopped_daemon_leaves_the_runtime_as_it_is(node: Node) -> None:
    before = files(NETWORKS, PLUGINS)
    node.stop_daemon()

    pod = node.run_pod("plain")
    node.remove_pod(pod)

    assert files(NETWORKS, PLUGINS) == before


def test_uninstall_leaves_nothing(bare: Node) -> None:
    before = files(NETWORKS, PLUGINS)
    bare.install()
    bare.start_daemon()
    bare.remove_pod(bare.run_pod("train", vfs=1))
    bare.stop_daemon()

    done = railnet("uninstall")

    assert (done.returncode, done.stderr.count("is removed")) == (0, 2)
    assert files(NETWORKS, PLUGINS) == before
    assert not RUN.exists()
    assert files(Path("/var/lib/railnet")) == {}
    assert left_of_pods() == []


def test_running_pods_keep_their_networks_and_are_taken_down_after_the_uninstall(
    bare: Node, runtime: str, uninstalling: Callable[[], "Uninstall"]
) -> None:
    older = bare.run_pod("older")
    bare.install()
    bare.start_daemon()
    plain, train = bare.run_pod("plain"), bare.run_pod("train", vfs=1)
    bare.stop_daemon()

    uninstall = uninstalling()
    until(lambda: "1 still need it" in probe("/readyz")[1])
    waits_for = probe("/readyz")[1]
    kept = links_of(train)
    younger = bare.run_pod("younger")
    made_by = {plugin for invocation in younger.added.invocations for plugin in [invocation.plugin]}
    for pod in (plain, younger, older):
        bare.remove_pod(pod)
    bare.hca.settle()
    still_there = (PLUGINS / "railnet").exists()
    bare.remove_pod(train)

    assert uninstall.wait(60) == 0
    assert "1 still need it (pod default/train has a rail)" in waits_for
    assert {"eth0", "net1"} <= kept
    assert made_by == {"flannel", "portmap"}
    assert still_there
    assert not (PLUGINS / "railnet").exists()
    bare.hca.settle()
    assert left_of_pods() == []
    assert {"ibs5v0", "ibs5v1"} <= set(node_links())


def test_uninstall_does_not_wait_for_plain_pods_which_are_taken_down_without_the_executable(
    bare: Node, runtime: str, uninstalling: Callable[[], "Uninstall"]
) -> None:
    bare.install()
    bare.start_daemon()
    plain, mapped = bare.run_pod("plain"), bare.run_pod("mapped", capability_args=MAPPINGS)
    bare.stop_daemon()

    ended = uninstalling().wait(60)
    installed = (PLUGINS / "railnet").exists()
    kept = links_of(plain)
    for pod in (plain, mapped):
        bare.remove_pod(pod)

    assert ended == 0
    assert not installed
    assert "eth0" in kept
    assert left_of_pods() == []


def test_container_of_a_running_pod_may_start_again_while_railnet_leaves(
    node: Node, uninstalling: Callable[[], "Uninstall"]
) -> None:
    train = node.run_pod("train", vfs=1)
    node.stop_daemon()
    uninstalling()
    until(lambda: "1 still need it" in probe("/readyz")[1] and "does not watch" not in probe("/readyz")[1])

    node.kubelet.pre_start(train.identity)

    assert node.kubelet.healthy(RESOURCE) == []
    node.remove_pod(train)


def test_pods_are_taken_down_with_no_daemon_when_the_uninstall_was_cut_short(
    node: Node, runtime: str, uninstalling: Callable[[], "Uninstall"]
) -> None:
    plain, train = node.run_pod("plain"), node.run_pod("train", vfs=1)
    node.stop_daemon()
    uninstall = uninstalling()
    until(lambda: "1 still need it" in probe("/readyz")[1])
    uninstall.terminate()
    status = uninstall.wait(60)

    for pod in (plain, train):
        node.remove_pod(pod)
    node.hca.settle()
    records = [path.name for path in (RUN / "journal").iterdir()]
    done = railnet("uninstall")

    assert status == 1
    assert records == [f"{train.container_id}@eth0.json"]
    assert done.returncode == 0
    assert left_of_pods() == []
    assert {"ibs5v0", "ibs5v1"} <= set(node_links())


def test_uninstall_waits_for_the_daemons_end(node: Node, uninstalling: Callable[[], "Uninstall"]) -> None:
    uninstall = uninstalling()
    time.sleep(1.5)
    during = OURS.exists()
    node.stop_daemon()

    assert uninstall.wait(60) == 0
    assert during
    assert not OURS.exists()


def test_uninstall_of_a_daemonset_stays_and_is_ready_when_all_is_done(
    node: Node, uninstalling: Callable[..., "Uninstall"]
) -> None:
    node.stop_daemon()
    uninstall = uninstalling("--stay")
    until(lambda: probe("/readyz") == (200, "ok\n"))
    there = (PLUGINS / "railnet").exists(), RUN.exists()
    uninstall.terminate()

    assert uninstall.wait(60) == 0
    assert there == (False, False)


def test_railnet_can_be_installed_again_after_an_uninstall(node: Node) -> None:
    node.stop_daemon()
    railnet("uninstall")

    node.install()
    node.start_daemon()
    pod = node.run_pod("train", vfs=1)
    node.remove_pod(pod)

    assert left_of_pods() == []


Uninstall = subprocess.Popen
MAPPINGS = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}
HOST_LOCAL = {"type": "host-local", "subnet": "10.99.0.0/24"}


@pytest.fixture
def uninstalling() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Return a function that starts `railnet uninstall`. The process is ended after the test."""
    begun: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        with Path("/run/uninstall.log").open("ab") as log:
            begun.append(subprocess.Popen([*command("uninstall"), *arguments], stderr=log))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.wait()


def command(name: str, code: str | None = None, version: str | None = None) -> list[str]:
    program = ["-m", "railnet"] if code is None else ["-c", code, *([version] if version else [])]
    return [sys.executable, *program, name, "--config", str(CONFIGURATION)]


def railnet(name: str, code: str | None = None, version: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(name, code, version), capture_output=True, text=True, timeout=60, check=False)


def probe(path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", 9474, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def files(*folders: Path) -> Mapping[str, bytes]:
    return {str(path): path.read_bytes() for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()}


def plugins_of(conflist: Path) -> list[str]:
    return [plugin["type"] for plugin in json.loads(conflist.read_bytes())["plugins"]]


def links_of(pod: Pod) -> set[str]:
    shown = subprocess.run(
        ["nsenter", f"--net={pod.netns}", "cat", "/proc/net/dev"], capture_output=True, text=True, check=True
    )
    return {line.split(":")[0].strip() for line in shown.stdout.splitlines()[2:]}


def left_of_pods() -> list[str]:
    """Return what pods left behind, according to the disk and the kernel."""
    left = [*CACHES.glob("networks/*/*.*.*.*"), *CACHES.glob("flannel/*"), *CACHES.glob("results/*")]
    left += [*RUN.glob("journal/*"), *(path for path in RUN.glob("lock/*"))]
    return [str(path) for path in left] + [name for name in node_links() if name.startswith("veth")]


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    give_up = time.monotonic() + seconds
    while not _holds(condition):
        assert time.monotonic() < give_up, "the condition did not come true in time"
        time.sleep(0.02)


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except (ConnectionError, ValueError, FileNotFoundError):  # no process listens yet, or the file is half written
        return False
