"""The engine for new pods of gangs: what the API server must have for PodGroups, and what a pod gets."""

import json
from typing import Any

import pytest

from railnet.admission.explanation import MAX_WARNING
from railnet.admission.gang import gang_review
from railnet.admission.gang.engine_choice import GATES, ChosenEngine, GangEngine, Served, chosen, said, served
from railnet.jobs.gang.engine import pod_group_name
from tests.railnet.admission.gang.test_gang_review import CONSTRAINT, GATE, a_pod
from tests.railnet.admission.reviewing import a_review, applied, patch_of

JsonObject = dict[str, Any]
GROUPS = ChosenEngine(groups=True)
GROUP = {"podGroupName": pod_group_name("ring")}
KEPT = {"spec": {"schedulingConstraints": {"topology": [{"key": "kubernetes.io/hostname"}]}}}
AUTO, KUBERNETES = GangEngine.AUTO, GangEngine.KUBERNETES


def ask(pod: JsonObject, engine: ChosenEngine = GROUPS) -> JsonObject:
    response: JsonObject = json.loads(gang_review.review(a_review(pod, "ml"), engine).body)["response"]
    return response


def reviewed(pod: JsonObject, engine: ChosenEngine = GROUPS) -> JsonObject:
    return applied(pod, patch_of(ask(pod, engine)))


@pytest.mark.parametrize(
    ("answer", "has"),
    [
        (KEPT, Served.ALL),
        (None, Served.NONE),
        ({"spec": {}}, Served.NO_TOPOLOGY),
        ({"spec": {"schedulingConstraints": {}}}, Served.NO_TOPOLOGY),
    ],
)
def test_fields_that_are_left_out_are_not_served(answer: JsonObject | None, has: Served) -> None:
    assert served(answer) is has


@pytest.mark.parametrize("has", [*Served, None])
@pytest.mark.parametrize("wanted", GangEngine)
def test_pod_groups_are_used_only_where_all_of_them_is_served(wanted: GangEngine, has: Served | None) -> None:
    engine = chosen(wanted, has)

    assert engine.groups is (has is Served.ALL and wanted is not GangEngine.GATES)
    assert bool(engine.doubt) is (wanted is KUBERNETES and has is not Served.ALL)
    assert len(engine.doubt) <= MAX_WARNING


def test_log_says_what_to_enable_where_kubernetes_engine_is_wanted() -> None:
    assert "--runtime-config=scheduling.k8s.io/v1beta1=true" in said(KUBERNETES, Served.NONE)
    assert "enable" not in said(AUTO, Served.NONE)
    assert "wait for them" in said(AUTO, Served.ALL)


def test_pod_names_a_pod_group_and_gets_no_gate() -> None:
    after = reviewed(a_pod())

    assert after["spec"]["schedulingGroup"] == GROUP
    assert "schedulingGates" not in after["spec"]
    assert "affinity" in after["spec"]
    assert f"for the PodGroup {GROUP['podGroupName']}" in after["metadata"]["annotations"]["railnet.io/explain"]


@pytest.mark.parametrize("engine", [GROUPS, GATES])
def test_second_review_changes_nothing_whatever_the_engine_is_by_then(engine: ChosenEngine) -> None:
    for first in (GROUPS, GATES):
        after = reviewed(a_pod(), first)

        assert "patch" not in ask(after, engine)


def test_pod_with_the_gate_keeps_it() -> None:
    after = reviewed(a_pod(schedulingGates=[GATE]))

    assert "schedulingGroup" not in after["spec"]


def test_gang_that_a_pod_group_cannot_start_waits_behind_the_gate() -> None:
    constraint = {"required": {"topologies": [{"key": "a"}]}, "preferred": {"topologies": [{"key": "b"}]}}
    after = reviewed(a_pod(annotations={CONSTRAINT: json.dumps(constraint)}))

    assert after["spec"]["schedulingGates"] == [GATE]
    assert "schedulingGroup" not in after["spec"]


def test_group_that_the_author_names_is_left_alone() -> None:
    assert "patch" not in ask(a_pod(schedulingGroup={"podGroupName": "authors"}))


def test_creator_is_warned_where_kubernetes_engine_cannot_be_used() -> None:
    answer = ask(a_pod(), chosen(KUBERNETES, Served.NONE))

    assert any("gangs.engine is kubernetes, but" in text for text in answer["warnings"])
    assert applied(a_pod(), patch_of(answer))["spec"]["schedulingGates"] == [GATE]
