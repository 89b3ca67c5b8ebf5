"""What Railnet publishes about pods with rails in the API server: `network-status` and events."""

import json

from tests.cluster.ground import NODE
from tests.cluster.node import ClusterNode
from tests.cluster.pods import pod
from tests.cluster.process import until_found, wait_until

ANNOTATION = "k8s.v1.cni.cncf.io/network-status"
_SECONDS = 120.0


def annotations(node: ClusterNode, name: str) -> dict[str, str]:
    found: dict[str, str] = node.kubectl.get("pod", name)["metadata"].get("annotations", {})
    return found


def test_network_status_names_the_networks_and_the_device_of_each_rail(node: ClusterNode) -> None:
    train = node.run("train", 1)
    wait_until(lambda: ANNOTATION in annotations(node, train), _SECONDS, ANNOTATION)
    eth0, net1 = json.loads(annotations(node, train)[ANNOTATION])
    (record,) = node.records(train)

    ips = {one["interface"]: one["ips"] for one in (eth0, net1)}
    assert ips == {name: [address.partition("/")[0]] for name, address in node.addresses(train).items()}
    assert (eth0["default"], net1.get("default", False)) == (True, False)
    assert net1["device-info"]["pci"]["pci-address"] == record["attachments"][0]["vf"]


def test_pod_without_a_rail_is_not_annotated(node: ClusterNode) -> None:
    plain = node.run("plain")

    assert ANNOTATION not in annotations(node, plain)


def test_refused_pod_has_an_event_that_names_the_remedy(node: ClusterNode) -> None:
    wanted = pod("strange", 1)
    wanted["metadata"]["annotations"] = {"railnet.io/network": "nowhere"}
    node.create(wanted)
    node.wait_for_event("strange", "nowhere")
    (event,) = until_found(lambda: ours(node, "strange"), _SECONDS, "an event of Railnet's")

    assert (event["type"], event["source"]["host"]) == ("Warning", NODE)
    assert (
        event["message"] == "pods of namespace 'default' may not use network 'nowhere'; 'limits' lets them use: default"
    )


def ours(node: ClusterNode, name: str) -> list[dict[str, object]]:
    return [event for event in node.kubectl.events(name) if event["source"].get("component") == "railnet"]
