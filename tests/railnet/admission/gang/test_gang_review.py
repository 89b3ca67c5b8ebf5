"""What a review does to a pod of a gang: the gate, the nodes, which pods are left alone, what is refused, and that a second review adds nothing."""

import copy
import json
from typing import Any

import pytest

from railnet.admission.gang import gang_decision, gang_review
from railnet.admission.gang.gang_decision import LeftAlone, Waits
from railnet.objects.pod import parse
from tests.railnet.admission.reviewing import a_review, applied, patch_of

JsonObject = dict[str, Any]
NAME, LEAST = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
CONSTRAINT = "alibabacloud.com/topology-aware-constraint"
GATE = {"name": "railnet.io/gang"}
ON_ABC = (
    '{"required":{"topologies":[{"key":"kubernetes.io/hostname"}],"nodeSelectors":[{"matchLabels":{"test":"abc"}}]}}'
)


def a_pod(annotations: JsonObject | None = None, labels: JsonObject | None = None, **spec: Any) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "ml",
            "labels": {NAME: "ring", LEAST: "2"} if labels is None else labels,
            "annotations": {CONSTRAINT: ON_ABC} if annotations is None else annotations,
        },
        "spec": {"containers": [{"name": "c"}], "schedulerName": "default-scheduler", **spec},
    }


def ask(pod: JsonObject, **changes: Any) -> JsonObject:
    response: JsonObject = json.loads(gang_review.review(a_review(pod, "ml", **changes)).body)["response"]
    return response


def decided(pod: JsonObject, *, off: bool = False) -> Any:
    return gang_decision.decide(parse(pod), pod, off=off)


def reviewed(pod: JsonObject) -> JsonObject:
    return applied(pod, patch_of(ask(pod)))


def test_pod_gets_the_gate_the_nodes_and_an_explanation() -> None:
    pod = a_pod()

    after = reviewed(pod)

    assert after["spec"]["schedulingGates"] == [GATE]
    terms = after["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms == {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "test", "operator": "In", "values": ["abc"]}]}]
    }
    assert after["metadata"]["annotations"]["railnet.io/explain"] == (
        "waits with gang ring, at least 2 pods, in one kubernetes.io/hostname, on nodes with test=abc, behind the scheduling gate railnet.io/gang"
    )
    unchanged = copy.deepcopy(after)
    del (
        unchanged["spec"]["schedulingGates"],
        unchanged["spec"]["affinity"],
        unchanged["metadata"]["annotations"]["railnet.io/explain"],
    )
    assert unchanged == pod


AFFINITIES = [
    None,
    {},
    {"podAffinity": {}},
    {"nodeAffinity": None},
    {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
            }
        }
    },
]


@pytest.mark.parametrize("gates", [None, [], [{"name": "example.com/quota"}], [GATE]])
@pytest.mark.parametrize("affinity", AFFINITIES)
@pytest.mark.parametrize(
    "annotations", [{CONSTRAINT: ON_ABC}, {CONSTRAINT: ON_ABC, "railnet.io/explain": "before"}, {}]
)
def test_second_review_adds_nothing(annotations: JsonObject, affinity: Any, gates: Any) -> None:
    once = reviewed(a_pod(annotations, affinity=affinity, schedulingGates=gates))

    assert once["spec"]["schedulingGates"].count(GATE) == 1
    assert patch_of(ask(once)) == []


def test_explanation_follows_the_one_of_the_other_review() -> None:
    after = reviewed(a_pod({"railnet.io/explain": "worker 0 of mnist: added 1 rdma/ib_vf"}))

    text = "worker 0 of mnist: added 1 rdma/ib_vf; then waits with gang ring, at least 2 pods, behind the scheduling gate railnet.io/gang"
    assert after["metadata"]["annotations"]["railnet.io/explain"] == text


def test_other_webhooks_may_change_the_pod_between_two_reviews() -> None:
    once = reviewed(a_pod())
    once["spec"]["schedulingGates"].insert(0, {"name": "example.com/quota"})
    once["spec"]["tolerations"] = [{"operator": "Exists"}]
    terms = once["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    terms[0]["matchExpressions"].append({"key": "zone", "operator": "Exists"})

    assert patch_of(ask(once)) == []


OTHERS: dict[str, tuple[JsonObject, str]] = {
    "another scheduler": (a_pod(schedulerName="volcano"), "the scheduler volcano places it"),
    "a gate of Kueue": (
        a_pod(schedulingGates=[{"name": "kueue.x-k8s.io/topology"}]),
        "Kueue places it: it has the gate kueue.x-k8s.io/topology",
    ),
    "a queue of Kueue": (
        a_pod(labels={NAME: "ring", "kueue.x-k8s.io/queue-name": "q"}),
        "Kueue places it: it has the label kueue.x-k8s.io/queue-name",
    ),
    "a native gang": (
        a_pod(schedulingGroup={"podGroupName": "ring"}),
        "Kubernetes' own gang scheduling places it: it has spec.schedulingGroup",
    ),
    "a chosen node": (a_pod(nodeName="a"), "its author chose its node (spec.nodeName)"),
    "a mirror": (a_pod({"kubernetes.io/config.mirror": "x"}), "it mirrors a static pod"),
}
OTHERS["a DaemonSet"] = a_pod(), "a DaemonSet makes it for one node"
OTHERS["a DaemonSet"][0]["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "d", "controller": True}]


@pytest.mark.parametrize(("pod", "reason"), OTHERS.values(), ids=OTHERS.keys())
def test_pod_that_another_places_is_left_alone_even_if_its_constraint_is_broken(pod: JsonObject, reason: str) -> None:
    broken = copy.deepcopy(pod)
    broken["metadata"]["annotations"][CONSTRAINT] = "{"

    for one in (pod, broken):
        assert decided(one).reason.startswith(reason)
        assert ask(one) == {"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "allowed": True}


@pytest.mark.parametrize(("pod", "reason"), [*OTHERS.values(), (a_pod(labels={}), "")], ids=[*OTHERS.keys(), "no gang"])
def test_gate_that_the_author_wrote_is_removed_where_it_would_hold_the_pod_for_ever(
    pod: JsonObject, reason: str
) -> None:
    others = pod["spec"].get("schedulingGates") or [{"name": "a"}]
    gated = copy.deepcopy(pod)
    gated["spec"]["schedulingGates"] = [*others, GATE, {"name": "z"}]

    answer = ask(gated)

    assert applied(gated, patch_of(answer))["spec"]["schedulingGates"] == [*others, {"name": "z"}]
    assert answer["warnings"][0].startswith(
        f"the scheduling gate railnet.io/gang is removed, because nothing else would: {reason}"[:256]
    )


def test_namespace_that_is_off_is_left_alone() -> None:
    assert decided(a_pod(), off=True) == LeftAlone('the label railnet.io/gang of its namespace is "off"')


def test_annotation_without_labels_is_no_gang_and_the_reason_says_what_is_missing() -> None:
    assert decided(a_pod(labels={})) == LeftAlone(
        f"it has {CONSTRAINT}, but no label names its gang; add {NAME} and {LEAST}"
    )
    assert decided(a_pod({}, {})) == LeftAlone("no label or annotation names a gang")


def test_gang_without_topology_gets_the_gate_alone() -> None:
    steps = patch_of(ask(a_pod({})))

    assert [step["path"] for step in steps] == ["/spec/schedulingGates", "/metadata/annotations"]


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (a_pod({CONSTRAINT: '{"required":'}), f"{CONSTRAINT} is not JSON: Expecting value at line 1 column 13"),
        (a_pod(labels={NAME: "ring", LEAST: "0"}), f"{LEAST} is '0'; it should be how many"),
        (a_pod({"railnet.io/size": "1"}), f"{LEAST} is 2, but railnet.io/size says that the job has 1 pods"),
        (a_pod({"railnet.io/placement": "{}"}), "railnet.io/placement is written by Railnet"),
        (a_pod(affinity={"nodeAffinity": []}), "spec.affinity.nodeAffinity is not a mapping"),
        (a_pod(schedulingGates=[{}]), "spec.schedulingGates[0].name is None; it should be a string"),
    ],
)
def test_malformed_gang_is_refused_with_the_reason(pod: JsonObject, words: str) -> None:
    answer = ask(pod)

    assert not answer["allowed"]
    assert answer["status"]["code"] == 400
    assert answer["status"]["message"].startswith(words)


def test_annotations_of_other_schedulers_without_effect_are_warned_of() -> None:
    more = {f"gang.scheduling.koordinator.sh/x{number}": "" for number in range(20)}
    answer = ask(
        a_pod({"gang.scheduling.koordinator.sh/groups": "[]", "gang.scheduling.koordinator.sh/name": "ring", **more})
    )

    assert answer["warnings"][0] == "gang.scheduling.koordinator.sh/groups has no effect: Railnet does not read it"
    assert answer["warnings"][-1] == "13 more annotations about gangs have no effect"


@pytest.mark.parametrize(
    "changes", [{"operation": "UPDATE"}, {"subResource": "binding"}, {"kind": {"kind": "Service"}}]
)
def test_request_that_makes_no_pod_is_let_through(changes: JsonObject) -> None:
    assert ask(a_pod(), **changes) == {"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "allowed": True}


def test_waiting_pod_carries_its_gang() -> None:
    decision = decided(a_pod({}))

    assert isinstance(decision, Waits)
    assert (decision.request.name, decision.request.min_available, decision.request.constraint) == ("ring", 2, None)


TF_CONFIG = '{"cluster":{"ps":["a:1"],"worker":["b:1","c:1"]},"task":{"type":"worker","index":1}}'
OF_KUBEDL = {"group-name": "training.kubedl.io", "job-name": "mnist", "replica-type": "worker"}
OF_LWS = {"leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/size": "2"}


@pytest.mark.parametrize(
    ("operator", "least", "warns"),
    [(OF_KUBEDL, "4", True), (OF_KUBEDL, "3", False), (OF_LWS, "4", False), ({}, "4", False)],
    ids=["more than all", "all", "several groups", "no operator"],
)
def test_number_larger_than_what_the_operator_counts_is_warned_of_and_not_refused(
    operator: JsonObject, least: str, warns: bool
) -> None:
    container = {"name": "tensorflow", "env": [{"name": "TF_CONFIG", "value": TF_CONFIG}]}
    answer = ask(a_pod({}, {NAME: "ring", LEAST: least, **operator}, containers=[container]))

    words = "4 members must start together, and KubeDL says that mnist has 3 pods: if these are all, the gang waits for ever"
    assert answer.get("warnings", []) == ([words] if warns else [])
    assert "patch" in answer


def test_pod_whose_annotations_about_its_job_are_malformed_waits_all_the_same() -> None:
    assert "warnings" not in ask(a_pod({"railnet.io/container": "missing"}, {NAME: "ring", LEAST: "4", **OF_KUBEDL}))
