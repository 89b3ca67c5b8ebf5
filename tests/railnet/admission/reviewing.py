"""Ask for a review, and apply its patch, as the API server does."""

import base64
import copy
import json
from typing import Any

from railnet.admission.decision import FreePort
from railnet.admission.review import review
from railnet.admission.review_configuration import Policy

JsonObject = dict[str, Any]


def a_review(pod: Any, namespace: str = "default", **changes: Any) -> bytes:
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kubeflow:training-operator"},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        **changes,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def ask(
    pod: Any,
    policy: Policy | None = None,
    net1: bool | None = None,
    namespace: str = "default",
    free_port: FreePort | None = None,
    *,
    sticky: bool = False,
    **changes: Any,
) -> JsonObject:
    found = review(a_review(pod, namespace, **changes), policy or Policy(), net1, free_port, sticky=sticky)
    answer = json.loads(found.body)
    response: JsonObject = answer["response"]
    return response


def patch_of(response: JsonObject) -> list[JsonObject]:
    assert response["allowed"], response["status"]
    if "patch" not in response:
        return []
    assert response["patchType"] == "JSONPatch"
    operations: list[JsonObject] = json.loads(base64.b64decode(response["patch"]))
    return operations


def applied(pod: JsonObject, operations: list[JsonObject]) -> JsonObject:
    """Apply a JSON Patch (RFC 6902) strictly.

    The parent must exist. Only the value of an environment variable and a container's port may be replaced, and only the priority and a
    scheduling gate may be removed.
    """
    patched = copy.deepcopy(pod)
    for operation in operations:
        assert operation.keys() == ({"op", "path"} if operation["op"] == "remove" else {"op", "path", "value"})
        *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
        parent: Any = patched
        for part in parents:
            parent = parent[int(part)] if isinstance(parent, list) else parent[part]
        if operation["op"] == "remove":
            gate = isinstance(parent, list) and parent[int(last)] == {"name": "railnet.io/gang"}
            assert gate or operation["path"] in ("/spec/priority", "/spec/preemptionPolicy")
            del parent[int(last) if isinstance(parent, list) else last]
            continue
        value = copy.deepcopy(operation["value"])
        if operation["op"] == "replace":
            kind = operation["path"].split("/")[4]
            assert (kind, last) in (("env", "value"), ("ports", "containerPort")), operation["path"]
            assert kind != "env" or parent.keys() == {"name", "value"}
            parent[last] = value
            continue
        assert operation["op"] == "add"
        if isinstance(parent, list):
            assert last == "-"
            parent.append(value)
        else:
            # only the explanation may replace an earlier one, a gang the terms of the node affinity and a Job's podReplacementPolicy, and
            # host-network mode the policy and the port of the container's network
            changed = last == "dnsPolicy" and parent[last] == "ClusterFirst" if last in parent else False
            added_to = ("railnet.io/explain", "hostPort", "nodeSelectorTerms", "podReplacementPolicy")
            assert not parent.get(last) or changed or last in added_to, operation["path"]
            parent[last] = value
    return patched


def reviewed(
    pod: JsonObject,
    policy: Policy | None = None,
    net1: bool | None = None,
    namespace: str = "default",
    free_port: FreePort | None = None,
    *,
    sticky: bool = False,
) -> JsonObject:
    return applied(pod, patch_of(ask(pod, policy, net1, namespace, free_port, sticky=sticky)))
