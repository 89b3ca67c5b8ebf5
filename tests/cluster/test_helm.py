"""Helm takes over from kubectl, upgrades through the examples, goes back and uninstalls, each by one command, under a running pod with a rail.

The tests of this module are steps of one story: each goes on where the one before has ended.
"""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from railnet import VERSION
from tests.cluster.chart import EXAMPLES, Values, copy_for_simulated_cards, render
from tests.cluster.control_plane import ADMIN
from tests.cluster.ground import NODE
from tests.cluster.helm import Helm
from tests.cluster.manifests import LABEL, NAMESPACE, ROOT, on_simulated_cards
from tests.cluster.node import PFS, VFS, ClusterNode
from tests.cluster.pods import RESOURCE, pod
from tests.cluster.process import wait_until
from tests.cluster.railnet_on_node import BUNDLES, CONFLIST, DAEMON_SET, EXECUTABLE, STATE, why_not_ready
from tests.cluster.runtime import SOCKET
from tests.cluster.worker import SYSFS

REGISTRY = "registry.example.com/hpc"  # of the examples
OF_CARD = "feature.node.kubernetes.io/pci-15b3.present"
RESERVED, TEAM = "rdma/ib_reserved", "team-a"
TRAIN, NEXT, BACK = "train-through-helm", "next-by-helm", "back-by-helm"
"""Pods with a rail; the first one runs through all steps."""

# What is different on this node: simulated cards, with fewer VFs, whose second one has another address; and the runtime's socket.
HOST, SOCKET_ELSEWHERE = {"sysfs": str(SYSFS)}, {"cri": str(SOCKET)}
PROVISION = [{"pf": str(pf.address), "vfs": VFS} for pf in PFS]
CARDS = {"node": {"nodeSelector": {LABEL: "true"}, "configuration": {"host": HOST, "provision": PROVISION}}}
RUNTIME = {"node": {"configuration": {"host": SOCKET_ELSEWHERE}}}
_POOLS = [
    {"resource": RESERVED, "select": {"pf": [str(PFS[1].address)]}},
    {"resource": RESOURCE, "select": {"linkType": ["infiniband"]}},
]
POOLS = {"node": {"configuration": {"pools": _POOLS}}}
STEPS: dict[str, tuple[Values, ...]] = {
    "1-two-rails": (*EXAMPLES[:1], CARDS, RUNTIME),
    "2-webhook": (*EXAMPLES[:2], CARDS, RUNTIME),
    "3-training-services": (*EXAMPLES[:3], CARDS, RUNTIME),
    "4-second-vf-pool": (*EXAMPLES[:4], CARDS, RUNTIME, POOLS),
    "5-rke2": (*EXAMPLES[:5], CARDS, POOLS),  # the socket is where RKE2 has it
}
TAKING_OVER = ("--take-ownership", "--server-side=false", "--force-replace")
WAITING = ("--wait", "--timeout=5m")
OWN = {
    "secret/railnet-admission-tls",
    "lease.coordination.k8s.io/railnet-controllers",
    "configmap/railnet-sticky-addresses",
}
"""What Railnet's programs make themselves: Helm does not know of it."""

_RKE2_SOCKET = Path("/run/k3s/containerd/containerd.sock")
_KINDS = (
    "daemonset,deployment,service,poddisruptionbudget,serviceaccount,configmap,secret,lease,role,rolebinding,clusterrole,clusterrolebinding,"
    "validatingadmissionpolicy,validatingadmissionpolicybinding,mutatingwebhookconfiguration,podmonitor,prometheusrule"
)
_SECONDS = 240.0


def test_examples_are_those_of_the_steps() -> None:
    assert [path.stem for path in EXAMPLES] == list(STEPS)


def definition(kind: str) -> dict[str, Any]:
    """Define a kind of the Prometheus operator; any object is one."""
    group, plural = "monitoring.coreos.com", f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


@pytest.fixture(scope="module")
def cluster(shared_node: ClusterNode) -> Iterator[ClusterNode]:
    """A cluster with what the examples expect of it: images, the nodes' label, kinds of the Prometheus operator, RKE2's socket."""
    kubectl, containerd = shared_node.kubectl, shared_node.containerd
    shared_node.railnet.start()
    containerd.load(Path(os.environ["RAILNET_ADMISSION_IMAGE"]))
    images = {
        f"railnet.io/{name}:{VERSION}": f"{REGISTRY}/{name}:{VERSION}" for name in ("railnet", "railnet-admission")
    }
    for image, other in images.items():
        containerd.tag(image, other)
    kubectl.run("label", "node", NODE, f"{OF_CARD}=true")
    kinds = [definition(kind) for kind in ("PodMonitor", "PrometheusRule")]
    kubectl.apply(*kinds, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    _RKE2_SOCKET.parent.mkdir(parents=True)
    _RKE2_SOCKET.symlink_to(os.path.relpath(SOCKET, _RKE2_SOCKET.parent))  # the daemon reaches it from another root
    yield shared_node
    with contextlib.suppress(subprocess.CalledProcessError):  # there is a release if a test failed
        Helm(ADMIN).uninstall("--no-hooks")
    kubectl.run("delete", "job/railnet-uninstall", f"--namespace={NAMESPACE}", "--ignore-not-found")
    kubectl.run("delete", f"--namespace={NAMESPACE}", *sorted(OWN), "--ignore-not-found")
    kubectl.run("delete", "namespace", TEAM)
    kubectl.delete(*kinds)
    kubectl.run("label", "node", NODE, f"{OF_CARD}-")
    _RKE2_SOCKET.unlink()
    shared_node.railnet.start()
    assert shared_node.forget_pods() == []
    shared_node.wait_for_vfs(VFS * len(PFS))
    for image in (*images.values(), f"railnet.io/railnet-admission:{VERSION}"):
        containerd.forget(image)


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    chart = tmp_path_factory.mktemp("chart") / "railnet"
    copy_for_simulated_cards(chart, SYSFS)
    return Helm(ADMIN, chart)


def kustomized(cluster: ClusterNode) -> list[dict[str, Any]]:
    """Return what `kubectl apply -k daemonset/` applies, for this node."""
    objects = on_simulated_cards(yaml.safe_load_all(cluster.kubectl.run("kustomize", f"{ROOT}/daemonset")), SYSFS)
    (configuration,) = (one for one in objects if one["kind"] == "ConfigMap")
    own = {"host": {**HOST, **SOCKET_ELSEWHERE}, "provision": PROVISION}
    configuration["data"]["node.yaml"] = json.dumps(yaml.safe_load(configuration["data"]["node.yaml"]) | own)
    return objects


def run(cluster: ClusterNode, name: str) -> None:
    """Create a pod with a rail, and wait until it runs."""
    cluster.create(pod(name, 1))
    cluster.wait_until_ready(name)


def of_pool(name: str, namespace: str, resource: str) -> dict[str, Any]:
    """Describe a pod with one VF of a pool."""
    described = pod(name)
    described["metadata"]["namespace"] = namespace
    (container,) = described["spec"]["containers"]
    container["resources"] = {"limits": {resource: 1}}
    return described


def cards(cluster: ClusterNode, name: str) -> list[str]:
    """Return the card of each VF that a pod has: its address without the device's function."""
    (record,) = cluster.records(name)
    return [card(one["vf"]) for one in record["attachments"]]


def card(address: object) -> str:
    return str(address).rpartition(":")[0]


def kept(cluster: ClusterNode, name: str) -> tuple[Any, ...]:
    """Return what must stay of a pod while Railnet is changed: addresses, sandbox, and what Railnet has written down of it."""
    return cluster.addresses(name), cluster.containerd.sandbox(name), cluster.records(name)


def names(cluster: ClusterNode) -> set[str]:
    """Return Railnet's objects by kind and name, but for Helm's own Secrets."""
    labelled = ("--all-namespaces", "--selector=app.kubernetes.io/name")
    listed = cluster.kubectl.run("get", _KINDS, *labelled, "--output=name")
    listed += cluster.kubectl.run("get", "configmap,secret,lease", f"--namespace={NAMESPACE}", "--output=name")
    return {name for name in listed.split() if "/railnet" in name}


def rendered(*values: Values) -> set[str]:
    """Return what the chart renders, by kind and name as kubectl prints them."""
    groups = ((one, one["apiVersion"].rpartition("/")[0]) for one in render(*values))
    return {f"{one['kind'].lower()}{group and f'.{group}'}/{one['metadata']['name']}" for one, group in groups}


def template(cluster: ClusterNode) -> dict[str, Any]:
    """Return what the DaemonSet makes its pods of."""
    found: dict[str, Any] = cluster.kubectl.get(DAEMON_SET, f"--namespace={NAMESPACE}")["spec"]["template"]
    return found


def waits_for_pods() -> bool:
    return "still need it" in (why_not_ready() or "")


def timed(measured: Callable[[str], None], what: str, act: Callable[[], object]) -> None:
    began = time.monotonic()
    act()
    measured(f"{what}: {time.monotonic() - began:.1f} s")


def test_helm_takes_over_from_kubectl_and_a_running_pod_keeps_its_rail(
    cluster: ClusterNode, helm: Helm, measured: Callable[[str], None]
) -> None:
    cluster.railnet.delete()
    cluster.kubectl.apply(*kustomized(cluster))
    cluster.railnet.roll_out()
    cluster.wait_for_vfs(VFS * len(PFS))
    run(cluster, TRAIN)
    before = kept(cluster, TRAIN)
    timed(measured, "taken over", lambda: helm.upgrade(CARDS, RUNTIME, more=TAKING_OVER))
    cluster.railnet.roll_out()
    left = names(cluster) - rendered(CARDS, RUNTIME)
    cluster.kubectl.run("delete", f"--namespace={NAMESPACE}", *left)
    run(cluster, NEXT)
    addresses, after = cluster.addresses(NEXT), kept(cluster, TRAIN)
    cluster.kubectl.run("delete", "pod", NEXT)

    assert "net1" in before[0]
    assert after == before
    assert "net1" in addresses
    # kubectl's, whose name ends with a hash.
    assert [name.rpartition("-")[0] for name in left] == ["configmap/railnet-node"]


@pytest.mark.parametrize("step", STEPS)
def test_release_is_upgraded_to_each_example_under_the_running_pod(
    cluster: ClusterNode, helm: Helm, measured: Callable[[str], None], step: str
) -> None:
    before = kept(cluster, TRAIN)
    timed(measured, f"upgraded to {step}", lambda: helm.upgrade(*STEPS[step], more=WAITING))
    (container,) = template(cluster)["spec"]["containers"]

    assert kept(cluster, TRAIN) == before
    assert why_not_ready() is None
    assert container["image"] == f"{REGISTRY}/railnet:{VERSION}"
    assert names(cluster) - OWN == rendered(*STEPS[step])


def test_pod_of_the_team_has_a_rail_of_the_second_pool_and_another_namespace_has_none(cluster: ClusterNode) -> None:
    where = f"--namespace={TEAM}"
    cluster.create(of_pool("reserved", TEAM, RESERVED), of_pool("other", "default", RESERVED))
    cluster.kubectl.run("wait", "--for=condition=Ready", "pod/reserved", where, f"--timeout={_SECONDS:g}s")
    shown = cluster.kubectl.run("exec", "reserved", where, "--", "ip", "-o", "link")
    reserved, running = cards(cluster, "reserved"), cards(cluster, TRAIN)
    refusal = cluster.wait_for_event("other", "may not have")
    cluster.delete("other")
    cluster.kubectl.run("delete", "pod/reserved", where)

    assert "net1" in shown
    assert reserved == [card(PFS[1].address)]
    assert running == [
        card(PFS[0].address)
    ]  # kubelet would give a VF that a pod has, and that is in another pool now, to a second pod
    assert f"pods of namespace 'default' may not have {RESERVED}" in refusal


def test_release_goes_back_by_one_command(cluster: ClusterNode, helm: Helm) -> None:
    before, annotations = kept(cluster, TRAIN), template(cluster)["metadata"]["annotations"]
    helm.rollback()
    cluster.railnet.roll_out()
    run(cluster, BACK)

    assert template(cluster)["metadata"]["annotations"] != annotations
    assert names(cluster) - OWN == rendered(*STEPS["4-second-vf-pool"])
    assert kept(cluster, TRAIN) == before
    assert "net1" in cluster.addresses(BACK)


def test_uninstall_waits_for_pods_with_rails_and_gives_the_runtime_back(
    cluster: ClusterNode, helm: Helm, measured: Callable[[str], None]
) -> None:
    with ThreadPoolExecutor(1) as threads:
        uninstalled = threads.submit(helm.uninstall, "--timeout=10m")
        wait_until(lambda: not CONFLIST.exists() or uninstalled.done(), _SECONDS, "flannel's file to be the runtime's")
        plain = cluster.run("plain")
        wait_until(lambda: waits_for_pods() or uninstalled.done(), _SECONDS, "the daemon to say what it waits for")
        waits, addresses = waits_for_pods() and not uninstalled.done(), cluster.addresses(TRAIN)
        cluster.delete(TRAIN, BACK)
        timed(measured, "the last pods with a rail deleted, then until Helm had uninstalled", uninstalled.result)

    assert waits
    assert "net1" in addresses
    assert list(cluster.addresses(plain)) == ["eth0"]
    assert [path for path in (EXECUTABLE, BUNDLES, CONFLIST, STATE) if path.exists()] == []
    assert names(cluster) <= OWN
