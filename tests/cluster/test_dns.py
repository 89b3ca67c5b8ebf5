"""What pods resolve: names of Services by the cluster's DNS, with the search path that kubelet gives them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.node import ClusterNode
from tests.cluster.pods import pod
from tests.cluster.process import wait_until
from tests.cluster.railnet_on_node import IMAGE

_SECONDS = 90.0
# The addresses of each name, or the resolver's error, and the seconds of the slowest. A question is asked once, and its answer waited for longer
# than any machine takes (resolv.conf(5)): so a machine that is slow is not taken for an answer that is lost.
_WAIT_SECONDS = 30
_RESOLVE = f"""\
import json, os, socket, sys, time

os.environ["RES_OPTIONS"] = "attempts:1 timeout:{_WAIT_SECONDS}"
found, slowest = {{}}, 0.0
for name in sys.argv[1:]:
    began = time.monotonic()
    try:
        found[name] = sorted({{one[4][0] for one in socket.getaddrinfo(name, 1, type=socket.SOCK_STREAM)}})
    except socket.gaierror as error:
        found[name] = [error.errno == socket.EAI_NONAME and "no such name" or str(error)]
    slowest = max(slowest, time.monotonic() - began)
print(json.dumps([found, slowest]))
"""


def python_pod(name: str, *, host_network: bool = False) -> dict[str, Any]:
    """Describe a pod with Python and glibc, in the image that is on the node anyway."""
    described = pod(name)
    if host_network:
        described["spec"] |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    (container,) = described["spec"]["containers"]
    container |= {"image": IMAGE, "command": ["python", "-c", "import signal; signal.sigwait([signal.SIGTERM])"]}
    return described


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def net1_slice(name: str, addresses: dict[str, str]) -> dict[str, Any]:
    """Describe an EndpointSlice that no controller of Kubernetes writes: the address of each hostname."""
    endpoints = [
        {"addresses": [ip], "hostname": hostname, "conditions": {"ready": True}} for hostname, ip in addresses.items()
    ]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{name}-0", "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": endpoints,
    }


def resolved(node: ClusterNode, name: str, *names: str) -> tuple[dict[str, list[str]], float]:
    """Return what a pod's resolver says to each name, and the seconds that the slowest answer took."""
    found, slowest = json.loads(node.execute(name, "python", "-c", _RESOLVE, *names))
    return found, slowest


@pytest.fixture
def services(node: ClusterNode) -> Iterator[dict[str, str]]:
    """Services with and without an address, and without a selector; yields the addresses of those that have one."""
    made = [
        service("api", ports=[{"port": 80}]),
        service("members", clusterIP="None", selector={"app": "member"}),
        service("net1", clusterIP="None"),
        net1_slice("net1", {"mnist-ps-0": "10.56.3.17", "mnist-worker-0": "10.56.3.18"}),
    ]
    node.kubectl.apply(*made)
    yield {"api": node.kubectl.get("service", "api")["spec"]["clusterIP"]}
    node.kubectl.run("delete", "service", "api", "members", "net1")
    node.kubectl.run("delete", "endpointslice", "net1-0", "--ignore-not-found")


def test_pods_of_both_networks_resolve_services_and_their_members(node: ClusterNode, services: dict[str, str]) -> None:
    member = pod("member")
    member["metadata"]["labels"] = {"app": "member"}
    node.create(member, python_pod("client"), python_pod("host-client", host_network=True))
    node.wait_until_ready("member", "client", "host-client")
    address = node.status("member")["podIP"]
    dashed = f"{address.replace('.', '-')}.members"

    def members() -> list[str]:
        return resolved(node, "client", "members")[0]["members"]

    wait_until(lambda: members() == [address], _SECONDS, "the pod to be a member of its Service")
    expected = {
        "api": [services["api"]],
        "api.default.svc": [services["api"]],
        "api.default.svc.cluster.local": [services["api"]],
        dashed: [address],
        "net1": ["10.56.3.17", "10.56.3.18"],
        "mnist-ps-0.net1.default.svc": ["10.56.3.17"],
        "mnist-worker-0.net1": ["10.56.3.18"],
        "mnist-worker-1.net1": ["no such name"],
        "example.com": ["no such name"],
    }

    for client in ("client", "host-client"):
        found, slowest = resolved(node, client, *expected)
        assert found == expected
        assert slowest < _WAIT_SECONDS  # what an answer costs that does not come


def test_name_follows_a_change_of_its_slice(node: ClusterNode, services: dict[str, str]) -> None:
    node.create(python_pod("client"))
    node.wait_until_ready("client")
    node.kubectl.apply(net1_slice("net1", {"mnist-ps-0": "10.56.3.99"}))

    def address() -> list[str]:
        return resolved(node, "client", "mnist-ps-0.net1")[0]["mnist-ps-0.net1"]

    wait_until(lambda: address() == ["10.56.3.99"], _SECONDS, "the new address")
    node.kubectl.run("delete", "endpointslice", "net1-0")
    wait_until(lambda: address() == ["no such name"], _SECONDS, "the name to be gone")
