"""Services under the real kube-proxy: a port that is named by the pod, whatever number the pod gives it."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import kube_proxy
from tests.cluster.node import ClusterNode
from tests.cluster.pods import pod
from tests.cluster.process import wait_until

_PORT, _NAME = 2222, "tfjob-port"
_SECONDS = 90.0


@pytest.fixture
def addresses(node: ClusterNode) -> Iterator[dict[str, str]]:
    """The ClusterIPs of two Services: each forwards port 2222 to the pod of its name, to the pod's port `tfjob-port`."""
    for name in ("server", "host-server"):
        spec = {"selector": {"app": name}, "ports": [{"port": _PORT, "targetPort": _NAME}]}
        node.kubectl.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
    found = node.kubectl.get("services", "server", "host-server")
    yield {one["metadata"]["name"]: one["spec"]["clusterIP"] for one in found}
    node.kubectl.run("delete", "service", "server", "host-server")


def server(name: str, port: int) -> dict[str, Any]:
    """Describe the pod of a Service, which answers with the number of its port."""
    described = on_host(name) if name == "host-server" else pod(name)
    described["metadata"]["labels"] = {"app": name}
    (container,) = described["spec"]["containers"]
    serve = f"while true; do nc -l -p {port} -e sh -c 'echo {port}'; done"
    container["command"] = ["sh", "-c", f"trap 'exit 0' TERM; ({serve}) & wait"]
    container["ports"] = [{"name": _NAME, "containerPort": port}]
    return described


def on_host(name: str) -> dict[str, Any]:
    described = pod(name)
    described["spec"]["hostNetwork"] = True
    return described


def answer(node: ClusterNode, client: str, address: str) -> str:
    """Return what the Service answers to a pod; empty if there is no answer."""
    return node.execute(client, "sh", "-c", f"nc -w 2 {address} {_PORT} < /dev/null || true").strip()


def wait_for_answers(node: ClusterNode, addresses: dict[str, str], ports: dict[str, int]) -> None:
    """Wait until each Service answers each client with the port of its pod."""
    for name, port in ports.items():
        for client in ("client", "host-client"):
            what = f"{name} to answer {client} from port {port}"
            wait_until(lambda c=client, n=name, p=port: answer(node, c, addresses[n]) == str(p), _SECONDS, what)


def test_service_follows_a_named_port_to_another_number_when_its_pod_is_made_again(
    node: ClusterNode, addresses: dict[str, str]
) -> None:
    first, second = {"server": 20001, "host-server": 20002}, {"server": 20003, "host-server": 20004}
    node.create(pod("client"), on_host("host-client"), *(server(name, port) for name, port in first.items()))
    node.wait_until_ready("client", "host-client", *first)
    wait_for_answers(node, addresses, first)
    node.kubectl.run("delete", "pod", "--force", "--grace-period=0", *first)
    node.create(*(server(name, port) for name, port in second.items()))
    node.wait_until_ready(*second)

    wait_for_answers(node, addresses, second)


def test_pods_reach_the_api_server_by_the_service_kubernetes(node: ClusterNode) -> None:
    name = node.run("client")
    found = node.kubectl.get("service", "kubernetes")["spec"]["clusterIP"]

    assert node.execute(name, "sh", "-c", f"nc -w 60 {found} 443 < /dev/null && echo connected") == "connected\n"


def test_kube_proxy_removes_its_rules_at_its_end(node: ClusterNode) -> None:
    before = kube_proxy.services()
    node.kube_proxy.stop()
    left = kube_proxy.rules()
    node.kube_proxy.start()

    assert before >= {"default/kubernetes", "kube-system/kube-dns"}
    assert left == []
    wait_until(lambda: kube_proxy.services() == before, _SECONDS, "kube-proxy to write its rules again")
