"""The chart and DRA: rights, policies and DeviceClasses come together, and the policies refuse what is another node's."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import celpy
import pytest

from railnet.configuration import parse
from railnet.dra.resource_slices import writes
from railnet.kubelet.dra_driver_name import DRIVER
from tests.charts import features
from tests.charts.rendered import by_name, node_yaml, rendered, rights, template
from tests.charts.test_own_node import NODE_NAME, USER, evaluate
from tests.railnet.dra.slice_store import NODE, a_device

GROUP = "resource.k8s.io"
POLICY = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
SLICES, CLAIMS = (f"railnet-own-node-{resource}" for resource in ("resourceslices", "resourceclaims"))
OF_A_NODE = {**USER, "extra": {NODE_NAME: [NODE.name]}}
OTHER_NODE = {**USER, "extra": {NODE_NAME: ["gpu-8"]}}
RESULT = {"driver": DRIVER, "pool": NODE.name, "device": "pci-0000-03-00-1", "request": "vf"}
DEVICE = {"driver": DRIVER, "pool": NODE.name, "device": "pci-0000-03-00-1"}
FOREIGN = {"driver": "gpu.example.com", "pool": NODE.name, "device": "gpu-0"}
CLAIM = {
    "metadata": {"name": "train", "uid": "uid"},
    "spec": {},
    "status": {"allocation": {"devices": {"results": [RESULT]}}, "devices": [FOREIGN], "reservedFor": [{"uid": "p"}]},
}


def refusals(policy: str, operation: str, new: Any, old: Any, user: Any = OF_A_NODE, below: str = "") -> Iterator[str]:
    """Yield the messages of the validations of a policy that a request fails."""
    spec = by_name(rendered(**features.DRA))["ValidatingAdmissionPolicy", policy]["spec"]
    request = {"operation": operation, "userInfo": user, "subResource": below}
    facts: dict[str, Any] = {"request": request, "object": new, "oldObject": old, "variables": {}}
    for variable in spec["variables"]:
        with suppress(celpy.CELEvalError):
            value = evaluate(variable["expression"].replace("dyn(", "("), facts)
            facts["variables"][variable["name"]] = json.loads(json.dumps(value, cls=celpy.CELJSONEncoder))
    for validation in spec["validations"]:
        try:
            holds = bool(evaluate(validation["expression"], facts))
        except celpy.CELEvalError:
            holds = False
        if not holds:
            yield validation["message"]


def a_slice(**spec: Any) -> dict[str, Any]:
    (request,) = writes([], [a_device(0)], NODE)
    body: Any = request.body
    return {**body, "spec": {**body["spec"], **spec}}


def a_claim(**status: Any) -> dict[str, Any]:
    return {**CLAIM, "status": {**CLAIM["status"], **status}}  # type: ignore[dict-item]


@pytest.mark.slow
def test_value_adds_rights_policies_classes_and_the_key() -> None:
    without, with_it = rendered(), rendered(**features.DRA)

    assert rights(with_it, "railnet") - rights(without, "railnet") == {
        *((GROUP, "resourceslices", verb) for verb in ("get", "create", "update")),
        (GROUP, "resourceclaims", "get"),
        *((GROUP, "resourceclaims/status", verb) for verb in ("patch", "update")),
        *((GROUP, "resourceclaims/driver", f"associated-node:{verb}") for verb in ("patch", "update")),
        ("", "nodes", "get"),
    }
    assert by_name(with_it).keys() - by_name(without).keys() == {
        *((kind, CLAIMS) for kind in POLICY),
        ("DeviceClass", "rdma.railnet.io"),
        ("DeviceClass", "rdma-ib-vf"),
    }
    assert parse(node_yaml(with_it), "node.yaml").offer == "dra"
    assert parse(node_yaml(without), "node.yaml").offer == "device-plugin"


@pytest.mark.slow
def test_node_without_the_value_may_remove_its_slices() -> None:
    documents = rendered()

    assert {(GROUP, "resourceslices", verb) for verb in ("list", "delete")} <= rights(documents, "railnet")
    assert {(kind, SLICES) for kind in POLICY} <= by_name(documents).keys()


@pytest.mark.slow
@pytest.mark.parametrize("offer", ["device-plugin", "dra"])
def test_rights_to_slices_never_come_without_the_policy(offer: str) -> None:
    documents = rendered(**{"ownNode.enabled": False, "offer": offer})
    of_slices = {right for right in rights(documents, "railnet") if right[1] == "resourceslices"}

    assert bool(of_slices) == (offer == "dra")
    assert {kind for kind, name in by_name(documents) if name == SLICES} == (set(POLICY) if of_slices else set())


@pytest.mark.slow
def test_one_group_of_nodes_with_the_key_has_what_it_needs() -> None:
    group = {
        "name": "new",
        "nodeSelector": {"example.com/dra": "true"},
        "configuration": {"offer": "dra", "pools": [{"resource": "example.com/hca"}]},
    }
    documents = by_name(rendered(**{"node.groups": [group]}))

    assert ("DeviceClass", "example-com-hca") in documents
    assert ("DeviceClass", "rdma-ib-vf") not in documents
    assert ("ValidatingAdmissionPolicy", SLICES) in documents


@pytest.mark.slow
def test_group_may_stay_with_the_device_plugin() -> None:
    group = {"name": "old", "nodeSelector": {"a": "b"}, "configuration": {"offer": "device-plugin"}}
    documents = by_name(rendered(**{"offer": "dra", "node.groups": [group]}))

    assert "offer: device-plugin" in documents["ConfigMap", "railnet-node-old"]["data"]["node.yaml"]
    assert "offer: dra" in documents["ConfigMap", "railnet-node"]["data"]["node.yaml"]


@pytest.mark.slow
def test_key_of_all_nodes_is_the_value() -> None:
    done = template(**{"node.configuration": {"offer": "dra"}})

    assert done.returncode
    assert "set the value offer instead" in done.stderr


@pytest.mark.slow
def test_class_of_a_resource_serves_pods_that_ask_for_it() -> None:
    spec = by_name(rendered(**features.DRA))["DeviceClass", "rdma-ib-vf"]["spec"]
    (selector,) = spec["selectors"]
    attributes = {DRIVER: {"resource": "rdma/ib_vf"}}

    assert spec["extendedResourceName"] == "rdma/ib_vf"
    assert evaluate(selector["cel"]["expression"], {"device": {"driver": DRIVER, "attributes": attributes}})
    for attributes in ({DRIVER: {"resource": "rdma/other"}}, {DRIVER: {"rail": 0}}):
        assert not evaluate(selector["cel"]["expression"], {"device": {"driver": DRIVER, "attributes": attributes}})


@pytest.mark.slow
def test_daemon_may_write_and_delete_the_slices_of_its_node() -> None:
    assert list(refusals(SLICES, "CREATE", a_slice(), None)) == []
    assert list(refusals(SLICES, "UPDATE", a_slice(), a_slice())) == []
    assert list(refusals(SLICES, "DELETE", None, a_slice())) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operation", "new", "old", "user"),
    [
        ("CREATE", a_slice(), None, OTHER_NODE),
        ("CREATE", a_slice(), None, {**USER, "extra": {}}),
        ("CREATE", a_slice(driver="gpu.example.com"), None, OF_A_NODE),
        ("CREATE", a_slice(pool={"name": "gpu-8"}), None, OF_A_NODE),
        (
            "CREATE",
            {**a_slice(), "metadata": {"ownerReferences": [{"kind": "Pod", "name": NODE.name}]}},
            None,
            OF_A_NODE,
        ),
        ("UPDATE", a_slice(), a_slice(driver="gpu.example.com"), OF_A_NODE),
        ("UPDATE", a_slice(), a_slice(nodeName="gpu-8"), OF_A_NODE),
        ("DELETE", None, a_slice(), OTHER_NODE),
        ("DELETE", None, a_slice(driver="gpu.example.com"), OF_A_NODE),
    ],
)
def test_daemon_may_write_no_other_slice(operation: str, new: Any, old: Any, user: Any) -> None:
    assert list(refusals(SLICES, operation, new, old, user))


@pytest.mark.slow
def test_daemon_may_say_what_the_devices_of_its_node_are() -> None:
    assert list(refusals(CLAIMS, "UPDATE", a_claim(devices=[FOREIGN, DEVICE]), CLAIM, below="status")) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("new", "user", "below"),
    [
        (a_claim(devices=[FOREIGN, DEVICE]), OTHER_NODE, "status"),
        (a_claim(devices=[DEVICE]), OF_A_NODE, "status"),
        (a_claim(devices=[FOREIGN, DEVICE]), OF_A_NODE, ""),
        (a_claim(devices=[FOREIGN, {**DEVICE, "pool": "gpu-8"}]), OF_A_NODE, "status"),
        (a_claim(reservedFor=[]), OF_A_NODE, "status"),
        (a_claim(allocation={"devices": {"results": []}}), OF_A_NODE, "status"),
        ({**CLAIM, "metadata": {"name": "train", "labels": {"a": "b"}}}, OF_A_NODE, "status"),
    ],
)
def test_daemon_may_change_nothing_else_of_a_claim(new: Any, user: Any, below: str) -> None:
    assert list(refusals(CLAIMS, "UPDATE", new, CLAIM, user, below))
