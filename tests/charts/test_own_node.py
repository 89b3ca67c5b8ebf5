"""The admission policies of the chart's ownNode, with their expressions evaluated: only requests of the node's daemon pass.

Another implementation of the expression language evaluates them here; tests/control_plane uses an API server.
"""

import copy
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import celpy
import pytest
import yaml

from railnet.apiserver.event import Series
from railnet.apiserver.network_status import NetworkStatus
from railnet.objects.network_status import ANNOTATION
from railnet.vf.record import SandboxPod

ROOT = Path(__file__).resolve().parents[2]
PODS, EVENTS, NETWORK_STATUS, *BINDINGS = yaml.safe_load_all(
    (ROOT / "daemonset/pods-and-events-policy.yaml").read_text()
)
SLICES, BINDING_OF_SLICES = yaml.safe_load_all((ROOT / "daemonset/slices-policy.yaml").read_text())
BINDINGS.append(BINDING_OF_SLICES)
POLICIES = {"pods": PODS, "events": EVENTS, "slices": SLICES}
ACCOUNT = "system:serviceaccount:railnet:railnet"
NODE_NAME = "authentication.kubernetes.io/node-name"
USER = {"username": ACCOUNT, "groups": [], "extra": {NODE_NAME: ["node-a"]}}
POD = {
    "metadata": {"name": "train-0", "uid": "uid-1", "labels": {"app": "train"}, "annotations": {"a": "b"}},
    "spec": {"nodeName": "node-a", "containers": [{"image": "train:1"}]},
    "status": {"phase": "Pending"},
}


def evaluate(expression: str, facts: dict[str, Any]) -> Any:
    environment = celpy.Environment()
    program = environment.program(environment.compile(expression))
    return program.evaluate({name: celpy.json_to_cel(value) for name, value in facts.items()})


def refusals(
    resource: str, new: dict[str, Any] | None, old: dict[str, Any] | None, user: dict[str, Any] = USER
) -> Iterator[str]:
    """Yield the messages of validations that fail; an expression that cannot be evaluated fails, because of failurePolicy."""
    facts: dict[str, Any] = {
        "request": {
            "operation": "CREATE" if old is None else "UPDATE",
            "resource": {"group": "", "version": "v1", "resource": resource},
            "userInfo": user,
        },
        "object": new,
        "oldObject": old,
    }
    facts["variables"] = {}
    policy = POLICIES[resource]["spec"]
    for variable in policy["variables"]:
        with suppress(celpy.CELEvalError):  # the API server evaluates a variable only when it is used
            value = evaluate(variable["expression"], facts)
            facts["variables"][variable["name"]] = json.loads(json.dumps(value, cls=celpy.CELJSONEncoder))
    for validation in policy["validations"]:
        try:
            holds = bool(evaluate(validation["expression"], facts))
        except celpy.CELEvalError:
            holds = False
        if not holds:
            yield validation["message"]


def changed(pod: dict[str, Any] = POD, **parts: Any) -> dict[str, Any]:
    """Return a pod with changed parts; `metadata__labels` names the labels, and None removes a part."""
    found = copy.deepcopy(pod)
    for path, value in parts.items():
        *parents, last = path.split("__")
        parent = found
        for name in parents:
            parent = parent[name]
        parent.update({last: value}) if value is not None else parent.pop(last)
    return found


def an_event(node: str = "node-a") -> dict[str, Any]:
    (make,) = Series(node).warning(SandboxPod("ml", "train-0", "uid-1"), "R", "words", datetime.now(UTC)).requests()
    event: Any = make.body
    return event


def annotated(pod: dict[str, Any] = POD) -> dict[str, Any]:
    """Return the pod after the daemon's own patch."""
    (request,) = NetworkStatus(SandboxPod("ml", "train-0", "uid-1"), static=False, elements=list).requests()
    annotations = request.body["metadata"]["annotations"]
    return changed(pod, metadata__annotations={**pod["metadata"].get("annotations", {}), **annotations})


def test_daemons_own_patch_of_a_pod_of_its_node_passes() -> None:
    assert list(refusals("pods", annotated(), POD)) == []
    assert list(refusals("pods", annotated(), annotated())) == []


def test_pod_without_annotations_and_labels_may_be_annotated() -> None:
    bare = changed(metadata__annotations=None, metadata__labels=None)

    assert list(refusals("pods", annotated(bare), bare)) == []


@pytest.mark.parametrize("old", [changed(spec__nodeName="node-b"), changed(spec__nodeName=None)], ids=["other", "none"])
def test_pod_of_another_node_is_refused(old: dict[str, Any]) -> None:
    assert list(refusals("pods", annotated(old), old)) == ["the pod is not on the node of this token"]


@pytest.mark.parametrize("annotations", [{}, {"a": "c"}, {"a": "b", "new": ""}], ids=["removed", "changed", "added"])
def test_another_annotation_is_refused(annotations: dict[str, str]) -> None:
    new = changed(metadata__annotations={**annotations, ANNOTATION: "[]"})

    assert list(refusals("pods", new, POD)) == [f"only the annotation {ANNOTATION} may be changed"]


@pytest.mark.parametrize(
    "parts",
    [
        {"metadata__labels": {"app": "other"}},
        {"metadata__labels": None},
        {"metadata__finalizers": ["x/y"]},
        {"status": {"phase": "Failed"}},
        {"spec__containers": [{"image": "evil:1"}]},
    ],
    ids=str,
)
def test_anything_else_of_the_pod_is_refused(parts: dict[str, Any]) -> None:
    assert list(refusals("pods", changed(**parts), POD)) == ["neither labels nor finalizers nor status may be changed"]


@pytest.mark.parametrize("extra", [None, {}, {NODE_NAME: [""]}], ids=["none", "empty", "nameless"])
def test_token_without_a_node_is_refused(extra: dict[str, Any] | None) -> None:
    user = {"username": ACCOUNT} if extra is None else {"username": ACCOUNT, "extra": extra}

    assert "the token does not say which node it is of" in list(refusals("pods", annotated(), POD, user))
    assert "the token does not say which node it is of" in list(refusals("events", an_event(), None, user))


def test_daemons_own_events_pass() -> None:
    assert list(refusals("events", an_event(), None)) == []
    assert list(refusals("events", {**an_event(), "count": 2}, an_event())) == []


def test_daemons_event_about_its_own_node_passes() -> None:
    about = {**an_event(), "involvedObject": {"kind": "Node", "name": "node-a", "uid": "node-a"}}

    assert list(refusals("events", about, None)) == []


FORGED = {
    "another node's": an_event("node-b"),
    "another component's": {**an_event(), "source": {"component": "kubelet", "host": "node-a"}},
    "without a source": {**an_event(), "source": {}},
    "about another node": {**an_event(), "involvedObject": {"kind": "Node", "name": "node-b"}},
    "about a node without a name": {**an_event(), "involvedObject": {"kind": "Node"}},
    "about no object": {**an_event(), "involvedObject": {}},
}


@pytest.mark.parametrize("new", FORGED.values(), ids=FORGED.keys())
def test_other_events_are_refused(new: dict[str, Any]) -> None:
    (refusal,) = refusals("events", new, None)

    assert refusal.startswith("events must be Railnet's")


TAKEN = {
    "another component's": (an_event(), {**an_event(), "source": {"component": "kubelet", "host": "node-a"}}),
    "another node's": (an_event(), an_event("node-b")),
    "without a source": (an_event(), {**an_event(), "source": {}}),
    "of another pod": ({**an_event(), "involvedObject": {"kind": "Pod", "name": "other"}}, an_event()),
}


@pytest.mark.parametrize(("new", "old"), TAKEN.values(), ids=TAKEN.keys())
def test_other_events_cannot_be_taken_over(new: dict[str, Any], old: dict[str, Any]) -> None:
    (refusal,) = refusals("events", new, old)

    assert refusal.startswith("only Railnet's own events")


def test_events_of_the_other_group_are_refused() -> None:
    """The type of an event is not known before it is evaluated, so a field that it does not have is an error, which refuses it."""
    other = {"regarding": {"kind": "Pod"}, "deprecatedSource": {"component": "railnet", "host": "node-a"}}

    assert any(refusal.startswith("events must be Railnet's") for refusal in refusals("events", other, None))


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_fields_that_one_kind_of_event_lacks_are_not_type_checked(policy: dict[str, Any]) -> None:
    expressions = " ".join(validation["expression"] for validation in policy["spec"]["validations"])

    assert re.findall(r"\b(?:object|oldObject)\.(?:involvedObject|source)\b", expressions) == []


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_policy_applies_to_the_daemons_account(policy: dict[str, Any]) -> None:
    account = yaml.safe_load((ROOT / "daemonset/serviceaccount.yaml").read_text())["metadata"]
    name = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    (condition,) = policy["spec"]["matchConditions"]

    assert evaluate(condition["expression"], {"request": {"userInfo": {"username": name}}})
    assert not evaluate(condition["expression"], {"request": {"userInfo": {"username": "kubernetes-admin"}}})
    assert policy["spec"]["failurePolicy"] == "Fail"


def test_policies_cover_all_resources_of_the_role() -> None:
    role = next(yaml.safe_load_all((ROOT / "daemonset/role.yaml").read_text()))
    matched = {
        resource
        for policy in POLICIES.values()
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
    }

    assert {resource for rule in role["rules"] for resource in rule["resources"]} <= matched


def test_bindings_make_the_policies_deny() -> None:
    policies = (PODS, EVENTS, NETWORK_STATUS, SLICES)
    bound = [{"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]} for policy in policies]

    assert [binding["spec"] for binding in BINDINGS] == bound


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_variables_are_declared_before_they_are_used(policy: dict[str, Any]) -> None:
    declared: set[str] = set()
    for variable in policy["spec"]["variables"]:
        assert set(re.findall(r"variables\.(\w+)", variable["expression"])) <= declared
        declared.add(variable["name"])
    for validation in policy["spec"]["validations"]:
        assert set(re.findall(r"variables\.(\w+)", validation["expression"])) <= declared


# Who may write rails into network-status.

USER_OF_THE_POD = {"username": "alice", "groups": ["system:authenticated"]}
OF_RAILNET = '[{"name": "railnet/default", "interface": "net1", "ips": ["10.56.0.9"]}]'
OF_OTHERS = '[{"name": "cbr0", "interface": "eth0", "ips": ["10.244.0.9"]}]'
ESCAPED = OF_RAILNET.replace("railnet/", r"\u0072ailnet/")


def may_write(text: str | None, before: str | None, user: dict[str, Any], *, new: bool = False) -> bool:
    """Return whether the policy lets a user give a pod this annotation, which had another one before, or none; or make such a `new` pod."""
    pods = [changed(metadata__annotations={} if value is None else {ANNOTATION: value}) for value in (text, before)]
    facts = {
        "request": {"userInfo": user, "operation": "CREATE" if new else "UPDATE"},
        "object": pods[0],
        "oldObject": None if new else pods[1],
    }
    spec = NETWORK_STATUS["spec"]
    if not all(evaluate(condition["expression"], facts) for condition in spec["matchConditions"]):
        return True
    return all(evaluate(validation["expression"], facts) for validation in spec["validations"])


@pytest.mark.parametrize(
    "text",
    [
        OF_RAILNET,
        ESCAPED,
        OF_RAILNET.replace("/", r"\/"),
        OF_RAILNET.replace("i", r"\u0069"),
        OF_RAILNET.replace("a", r"\u003c\u0061"),
    ],
    ids=["plain", "u", "slash", "i", "after"],
)
@pytest.mark.parametrize("before", [None, OF_OTHERS, OF_RAILNET.replace("9", "8")], ids=["none", "others", "own"])
@pytest.mark.parametrize("new", [False, True], ids=["changed", "new"])
def test_no_user_writes_rails_into_network_status(text: str, before: str | None, new: bool) -> None:
    assert not may_write(text, before, USER_OF_THE_POD, new=new)
    assert may_write(text, before, USER, new=new)
    assert may_write(text, before, {"username": "admin", "groups": ["system:masters"]}, new=new)


# Multus' status has `<nil>` as the gateway of a default route without one, as Go writes it, and the names of networks after their namespace.
OF_MULTUS = r'[{"name": "team-railnet/macvlan", "interface": "net1", "gateway": ["\u003cnil\u003e"], "dns": {"search": ["a\u0026b"]}}]'


@pytest.mark.parametrize(
    ("text", "before"), [(None, OF_RAILNET), (OF_RAILNET, OF_RAILNET), (OF_OTHERS, None), (OF_MULTUS, None)]
)
def test_user_may_leave_network_status_as_it_is_or_remove_it_and_other_programs_write_theirs(
    text: str | None, before: str | None
) -> None:
    assert may_write(text, before, USER_OF_THE_POD)


def test_user_without_groups_is_none_of_the_administrators() -> None:
    assert not may_write(OF_RAILNET, None, {"username": "alice"})
