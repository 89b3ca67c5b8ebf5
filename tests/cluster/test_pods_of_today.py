"""Pods that use what Kubernetes has had for a few releases only, each with a rail: the rail is there, and nothing is left after the pod's end."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import busybox
from tests.cluster.node import ClusterNode
from tests.cluster.pods import pod

_NAMESPACE = "restricted"
_SECONDS = 240  # as a pod may take on a busy node (tests/cluster/node.py)


def with_rail(name: str, **spec: Any) -> dict[str, Any]:
    """Describe a pod with one VF and these fields of its spec."""
    described = pod(name, 1)
    described["spec"] |= spec
    return described


def container(name: str, *, vfs: int, **fields: Any) -> dict[str, Any]:
    """Describe a further container."""
    (made,) = pod(name, vfs)["spec"]["containers"]
    return {**made, "name": name, **fields}


def run(node: ClusterNode, described: dict[str, Any]) -> str:
    node.create(described)
    name: str = described["metadata"]["name"]
    node.wait_until_ready(name)
    return name


def test_pod_in_a_user_namespace_has_a_rail(node: ClusterNode) -> None:
    name = run(node, with_rail("user-namespace", hostUsers=False))
    inside, outside, _ = node.execute(name, "cat", "/proc/self/uid_map").split()

    assert set(node.addresses(name)) == {"eth0", "net1"}
    assert inside == "0"
    assert outside != "0"


@pytest.fixture
def restricted(node: ClusterNode) -> Iterator[str]:
    """A namespace that admits only pods of the Pod Security level `restricted`."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    node.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE, "labels": labels}})
    node.kubectl.run(
        "wait", "serviceaccount/default", "--for=create", f"--timeout={_SECONDS}s", f"--namespace={_NAMESPACE}"
    )
    yield _NAMESPACE
    node.kubectl.run("delete", "namespace", _NAMESPACE)


def test_pod_of_the_security_level_restricted_has_a_rail(node: ClusterNode, restricted: str) -> None:
    described = with_rail("restricted")
    described["metadata"]["namespace"] = restricted
    described["spec"]["securityContext"] = {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    (main,) = described["spec"]["containers"]
    main["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    node.create(described)
    where = f"--namespace={restricted}"
    node.kubectl.run("wait", "--for=condition=Ready", f"--timeout={_SECONDS}s", "pod/restricted", where)

    assert "net1" in node.kubectl.run("exec", "restricted", where, "--", "ip", "-o", "address")


def test_native_sidecar_shares_the_rail_of_its_pod(node: ClusterNode) -> None:
    sidecar = container("sidecar", vfs=0, restartPolicy="Always")
    name = run(node, with_rail("beside-sidecar", initContainers=[sidecar]))

    assert "net1" in node.kubectl.run("exec", name, "--container=sidecar", "--", "ip", "-o", "address")


def test_native_sidecar_with_a_request_of_its_own_has_its_own_vf(node: ClusterNode) -> None:
    sidecar = container("sidecar", vfs=1, restartPolicy="Always")
    name = run(node, with_rail("sidecar-with-rail", initContainers=[sidecar]))

    assert set(node.addresses(name)) == {"eth0", "net1", "net2"}


def test_init_container_with_the_same_request_uses_the_same_vf(node: ClusterNode) -> None:
    first = container("first", vfs=1, command=["sh", "-c", "ip -o address | grep -q net1"])
    name = run(node, with_rail("after-init", initContainers=[first]))

    assert set(node.addresses(name)) == {"eth0", "net1"}


def test_resize_in_place_keeps_the_rail(node: ClusterNode) -> None:
    described = with_rail("resized")
    (main,) = described["spec"]["containers"]
    main["resources"]["requests"] = {"cpu": "20m"}
    name = run(node, described)
    before = node.records(name)
    patch = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "40m"}}}]}}
    node.kubectl.run("patch", "pod", name, "--subresource=resize", f"--patch={json.dumps(patch)}")
    node.kubectl.run(
        "wait",
        f"pod/{name}",
        "--for=jsonpath={.status.containerStatuses[0].resources.requests.cpu}=40m",
        f"--timeout={_SECONDS}s",
    )

    assert node.status(name)["containerStatuses"][0]["restartCount"] == 0
    assert node.records(name) == before
    assert set(node.addresses(name)) == {"eth0", "net1"}


def test_ephemeral_container_sees_the_rail(node: ClusterNode) -> None:
    name = run(node, with_rail("debugged"))
    command = ("--image", busybox.NAME, "--container=look", "--", "sh", "-c", "ip -o address; sleep 1")
    node.kubectl.run("debug", name, "--quiet", "--image-pull-policy=IfNotPresent", *command)
    ended = "--for=jsonpath={.status.ephemeralContainerStatuses[0].state.terminated.exitCode}=0"
    node.kubectl.run("wait", f"pod/{name}", ended, f"--timeout={_SECONDS}s")

    assert "net1" in node.kubectl.run("logs", name, "--container=look")


def test_pod_with_resources_of_the_whole_pod_has_a_rail(node: ClusterNode) -> None:
    name = run(node, with_rail("pod-level", resources={"limits": {"cpu": "200m", "memory": "100Mi"}}))

    assert set(node.addresses(name)) == {"eth0", "net1"}


def test_pod_with_a_full_host_name_has_a_rail(node: ClusterNode) -> None:
    name = run(node, with_rail("fqdn", hostname="rank-0", subdomain="job", setHostnameAsFQDN=True))

    assert node.execute(name, "cat", "/proc/sys/kernel/hostname") == "rank-0.job.default.svc.cluster.local\n"
    assert set(node.addresses(name)) == {"eth0", "net1"}


def test_containers_that_share_their_processes_have_one_rail(node: ClusterNode) -> None:
    described = with_rail("shared-processes", shareProcessNamespace=True)
    described["spec"]["containers"].append(container("other", vfs=0))
    name = run(node, described)
    processes = node.kubectl.run("exec", name, "--container=other", "--", "ls", "/proc").split()

    assert len([process for process in processes if process.isdigit()]) > 2  # the pod's own, and both containers'
    assert "net1" in node.kubectl.run("exec", name, "--container=other", "--", "ip", "-o", "address")


@pytest.fixture
def one_numa_node(node: ClusterNode) -> Iterator[None]:
    """kubelet with the policies `static` for processors and `single-numa-node` for topology."""
    node.configure_kubelet(
        cpuManagerPolicy="static", topologyManagerPolicy="single-numa-node", systemReserved={"cpu": "100m"}
    )
    yield
    node.forget_pods()
    node.configure_kubelet()


def test_pod_with_a_whole_processor_of_its_own_has_a_rail_of_the_same_numa_node(
    node: ClusterNode, one_numa_node: None
) -> None:
    described = with_rail("pinned")
    (main,) = described["spec"]["containers"]
    main["resources"]["limits"] |= {"cpu": "1", "memory": "100Mi"}
    name = run(node, described)
    allowed = [
        line for line in node.execute(name, "cat", "/proc/self/status").splitlines() if "Cpus_allowed_list" in line
    ]

    assert set(node.addresses(name)) == {"eth0", "net1"}
    assert len(allowed) == 1
    assert allowed[0].removeprefix("Cpus_allowed_list:\t").isdecimal()  # one processor, and no range
