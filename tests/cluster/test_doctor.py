"""`railnet doctor --pod` and `--cluster`, as the cluster's administrator: why a pod waits, and what is wrong, by what the cluster really says."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from railnet.fabric.rails_condition import TAINT
from railnet.objects.network_status import ANNOTATION
from tests.cluster.control_plane import ADMIN
from tests.cluster.ground import NODE
from tests.cluster.node import PFS, VFS, ClusterNode
from tests.cluster.pods import pod
from tests.cluster.process import until_found, wait_until

_SECONDS = 240.0  # a busy kubelet may report a pod's end late
_IPOIB = "00:00:10:29:fe:80:00:00:00:00:00:00:ba:59:9f:03:01:f9:8f:11"
Found = list[dict[str, str]]
Change = Callable[[dict[str, Any]], object]


def doctor(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "railnet", "doctor", f"--pod={name}", f"--kubeconfig={ADMIN}", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)


def findings(name: str) -> Found:
    found: Found = json.loads(doctor(name, "--json").stdout)["findings"]
    return found


def wait_for(name: str, kind: str) -> dict[str, str]:
    """Wait until a pod has a finding of a kind, and no other; return the finding."""

    def look() -> Found:
        found = findings(name)
        return found if [one["name"] for one in found] == [kind] else []

    (found,) = until_found(look, _SECONDS, f"{kind} of pod {name}")
    return found


def nowhere(made: dict[str, Any]) -> None:
    made["metadata"]["annotations"] = {"railnet.io/network": "nowhere"}


def on_another_node(made: dict[str, Any]) -> None:
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "another"}


def with_an_absent_image(made: dict[str, Any]) -> None:
    made["spec"]["containers"][0] |= {"image": "docker.io/local/absent:1", "imagePullPolicy": "Never"}


@pytest.mark.parametrize(
    ("vfs", "change", "kind", "seen"),
    [
        (
            99,
            lambda _: None,
            "no-node-with-rails",
            f"99 requested; the most that a node has is {VFS * len(PFS)} ({NODE})",
        ),
        (1, nowhere, "sandbox-refused", "pods of namespace 'default' may not use network 'nowhere'"),
        (1, on_another_node, "pod-unschedulable", "nodes are available: "),
        (1, with_an_absent_image, "container-waits", "ErrImageNeverPull"),
        (0, lambda _: None, "pod-without-request", "match no training operator"),
    ],
    ids=["more than any node has", "an unknown network", "another node", "an absent image", "no request"],
)
def test_pod_that_waits_is_explained(node: ClusterNode, vfs: int, change: Change, kind: str, seen: str) -> None:
    made = pod("waits", vfs)
    change(made)
    node.create(made)

    found = wait_for("waits", kind)
    assert seen in found["seen"]
    assert found["where"] == "default/waits"


def test_pod_that_waits_for_the_rails_of_others_and_then_for_a_rail_that_is_lost(
    node: ClusterNode, measured: Callable[[str], None]
) -> None:
    wide = node.run("wide", VFS * len(PFS))
    late = node.bring("late", 1)
    in_use = wait_for(late, "rails-in-use")
    measured(f"railnet doctor --pod of a pod that waits:\n{doctor(late).stdout}")
    node.kubectl.run("taint", "node", NODE, f"{TAINT}=:NoSchedule")
    try:
        node.delete(wide)
        lost = wait_for(late, "node-with-rail-taint")
    finally:
        node.kubectl.run("taint", "node", NODE, f"{TAINT}-")
    node.wait_until_ready(late)

    assert "Insufficient rdma/ib_vf" in in_use["seen"]
    assert (lost["where"], lost["severity"]) == (NODE, "warning")


def test_pod_that_runs_has_its_address_in_the_report(node: ClusterNode) -> None:
    train = node.run("train", 1)
    found = wait_for(train, "pod-has-net1")
    done = doctor(train)

    address = node.addresses(train)["net1"].partition("/")[0]
    assert found["seen"].startswith(f"net1 {address} on 0000:")
    assert (done.returncode, done.stderr) == (0, "")


def of_cluster() -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "railnet", "doctor", "--cluster", f"--kubeconfig={ADMIN}", "--json"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)


def of_sound_cluster() -> subprocess.CompletedProcess[str] | None:
    done = of_cluster()
    return done if json.loads(done.stdout)["findings"] == [] else None


def test_sound_cluster_has_no_finding_and_two_pods_that_tell_one_guid_have_one(node: ClusterNode) -> None:
    def networks(name: str) -> str:
        told: str = node.kubectl.get("pod", name)["metadata"].get("annotations", {}).get(ANNOTATION, "")
        return told

    def tell(name: str, mac: str) -> None:
        """Have a pod tell a hardware address: a simulated netdev has none."""
        told = [{**rail, "mac": mac} if rail["interface"] == "net1" else rail for rail in json.loads(networks(name))]
        node.kubectl.run("annotate", "--overwrite", "pod", name, f"{ANNOTATION}={json.dumps(told)}")

    one, other = node.run("one", 1), node.run("other", 1)
    wait_until(lambda: all("net1" in networks(name) for name in (one, other)), _SECONDS, "both pods' network-status")
    tell(one, _IPOIB)
    # The node may be ready a moment before the API server knows that the daemon's pod is.
    sound = until_found(of_sound_cluster, _SECONDS, "a cluster without a finding")
    tell(other, _IPOIB)
    broken = of_cluster()

    assert (sound.returncode, sound.stderr) == (0, "")
    (found,) = (each for each in json.loads(broken.stdout)["findings"] if each["name"] == "guid-of-two-pods")
    assert (broken.returncode, broken.stderr) == (1, "")
    assert found["where"] == f"default/{one}, default/{other}"
    assert f"net1 of default/{other} on {NODE}" in found["seen"]


def test_pod_that_does_not_exist_is_named(node: ClusterNode) -> None:
    done = doctor("absent")

    assert (done.returncode, done.stdout) == (6, "")
    assert 'pods "absent" not found' in done.stderr
