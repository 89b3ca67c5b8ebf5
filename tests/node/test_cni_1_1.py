"""CNI 1.1 on a node: STATUS, GC, and results that a newer runtime passes back. The stdin is as libcni 1.3 composes it."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from simnode.kubernetes.runtime import Invocation
from simnode.node import Node, Pod
from tests.node.primaries import OURS, PLUGINS, RUN, primary_of, write_stub

LEASE = Path("/run/flannel/subnet.env")
BRIDGE = {
    "type": "bridge",
    "bridge": "stub0",
    "isGateway": True,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24"}], [{"subnet": "fd00:99::/64"}]]},
}
STATUS_MS = 50.0


@pytest.fixture
def no_lease() -> Iterator[None]:
    aside = LEASE.rename(LEASE.with_suffix(".aside"))
    yield
    aside.rename(LEASE)


def invoke(node: Node, command: str, environment: dict[str, str] | None = None, **injected: object) -> Invocation:
    """Run the executable as libcni does after it has chosen 1.1.0 from `cniVersions`."""
    conflist = json.loads(OURS.read_text())
    conf = {**conflist["plugins"][0], "name": conflist["name"], "cniVersion": max(conflist["cniVersions"]), **injected}
    empty = dict.fromkeys(("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"), "")
    environment = environment or {"CNI_COMMAND": command, "CNI_PATH": str(PLUGINS), "PATH": "/usr/bin:/bin", **empty}
    return node.runtime.invoke(command, "railnet", environment, json.dumps(conf).encode())


def listed(*pods: Pod) -> dict[str, Any]:
    attachments = [{"containerID": pod.container_id, "ifname": "eth0"} for pod in pods]
    return {"cni.dev/valid-attachments": attachments, "cni.dev/attachments": attachments}


def records() -> set[str]:
    return {path.name for path in (RUN / "journal").iterdir()}


# STATUS.


def test_status_succeeds_in_time_in_every_state_of_the_daemon(
    node: Node, daemon: str, measured: Callable[[str], None]
) -> None:
    answers = [invoke(node, "STATUS") for _ in range(21)]

    took = [answer.milliseconds for answer in answers]
    measured(
        f"STATUS with the daemon {daemon}: median {median(took):.1f} ms, longest {max(took):.1f} ms of {len(took)}"
    )
    assert {(answer.status, answer.stdout, answer.stderr) for answer in answers} == {(0, b"", b"")}
    assert min(took) <= STATUS_MS


def test_status_without_a_lease_is_code_50(node: Node, daemon: str, no_lease: None) -> None:
    answer = invoke(node, "STATUS")

    error = json.loads(answer.stdout)
    assert (answer.status, error["code"], str(LEASE) in error["msg"]) == (1, 50, True), error


def test_status_without_a_primary_is_code_50(node: Node) -> None:
    primary_of({"type": "stub"})
    Path("/run/primary.conflist").unlink()

    answer = invoke(node, "STATUS")

    assert (answer.status, json.loads(answer.stdout)["code"]) == (1, 50)


def test_status_is_code_50_when_the_add_of_every_pod_would_fail(node: Node) -> None:
    folder = Path("/var/lib/kubelet/device-plugins")
    with_daemon = invoke(node, "STATUS")
    node.stop_daemon()
    aside = folder.rename(folder.with_name("aside"))
    (folder / "kubelet_internal_checkpoint").mkdir(parents=True)

    without = invoke(node, "STATUS")

    shutil.rmtree(folder)
    aside.rename(folder)
    node.start_daemon()
    assert with_daemon.status == 0
    assert (without.status, json.loads(without.stdout)["code"]) == (1, 50)
    assert "checkpoint in /var/lib/kubelet/device-plugins cannot be read" in json.loads(without.stdout)["msg"]


# GC.


def test_gc_takes_back_the_rails_of_a_dead_sandbox_and_of_no_other(node: Node) -> None:
    dead, listed_, young = (node.run_pod(name, vfs=1) for name in ("dead", "listed", "young"))
    node.destroy_netns(dead)

    answer = invoke(node, "GC", **listed(listed_))
    left = records()

    for pod in (dead, listed_, young):
        node.remove_pod(pod)
    assert (answer.status, answer.stdout, answer.stderr) == (0, b"", b"")
    assert left == {f"{pod.container_id}@eth0.json" for pod in (listed_, young)}


def test_gc_leaves_a_sandbox_alone_whose_add_is_running(node: Node) -> None:
    began, go_on = Path("/run/stub-began"), Path("/run/stub-go-on")
    wait = f"touch {began}; until [ -e {go_on} ]; do sleep 0.05; done"
    write_stub("stub", f"cat >/dev/null; [ $CNI_COMMAND = ADD ] && {{ {wait}; }}; printf '{{}}'")
    primary_of({"type": "stub"})

    with ThreadPoolExecutor(1) as kubelet:
        starting = kubelet.submit(node.run_pod, "starting", 1)
        wait_for(began)
        planned = records()
        answer = invoke(node, "GC", **listed())
        left = records()
        go_on.touch()
        pod = starting.result(20)

    node.remove_pod(pod)  # before that, PreStartContainer found its VF attached
    assert (answer.status, left) == (0, planned), answer.stdout
    assert len(planned) == 1


def wait_for(path: Path) -> None:
    give_up = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < give_up, f"{path} does not appear"
        time.sleep(0.02)


def test_gc_calls_a_primary_of_version_1_1_0_with_name_and_list_in_every_state_of_the_daemon(
    node: Node, daemon: str
) -> None:
    write_stub("stub", "cat >/run/stub-$CNI_COMMAND")
    primary_of({"type": "stub"}, version="1.1.0")

    answer = invoke(node, "GC", **{"cni.dev/valid-attachments": [{"containerID": "a", "ifname": "eth0"}]})

    assert answer.status == 0, answer.stdout
    assert json.loads(Path("/run/stub-GC").read_text()) == {
        "type": "stub",
        "name": "stubs",
        "cniVersion": "1.1.0",
        "cni.dev/valid-attachments": [{"containerID": "a", "ifname": "eth0"}],
    }


@pytest.mark.parametrize("attachments", [4_000, 20_000])
def test_gc_takes_the_list_of_a_crowded_node(node: Node, daemon: str, attachments: int) -> None:
    crowd = [{"containerID": f"{number:064x}", "ifname": "eth0"} for number in range(attachments)]

    answer = invoke(node, "GC", **{"cni.dev/valid-attachments": crowd, "cni.dev/attachments": crowd})

    assert (answer.status, answer.stdout) == (0, b"")


@pytest.mark.parametrize("odd", [{}, {"cni.dev/valid-attachments": ["c0ffee"]}], ids=["no list", "odd list"])
def test_gc_collects_nothing_if_it_does_not_understand_the_list(node: Node, daemon: str, odd: dict[str, Any]) -> None:
    answer = invoke(node, "GC", **odd)

    assert (answer.status, json.loads(answer.stdout)["code"]) == (1, 7)


# A result that the runtime passes back in the newer version.


@pytest.mark.parametrize("version", ["0.4.0", "1.0.0"])
@pytest.mark.parametrize("vfs", [0, 1])
def test_real_plugins_accept_their_result_after_a_runtime_converted_it_to_1_1_0(
    node: Node, version: str, vfs: int
) -> None:
    primary_of(BRIDGE, {"type": "tuning", "mtu": 1400}, {"type": "firewall"}, version=version)
    pod = node.run_pod("pod", vfs)
    added = json.loads(pod.result)
    ips = [{key: value for key, value in ip.items() if key != "version"} for ip in added["ips"]]
    newer = {"prevResult": {**added, "cniVersion": "1.1.0", "ips": ips}}

    answers = [
        invoke(node, command, node.runtime.environment(command, pod.sandbox), **newer) for command in ("CHECK", "DEL")
    ]

    node.remove_pod(pod)
    assert added["cniVersion"] == version
    assert [(answer.status, answer.stdout) for answer in answers] == [(0, b"")] * 2
