"""The engine of a gang: the name of its PodGroup, and which gangs a PodGroup cannot start."""

import re
from typing import Any

import pytest

from railnet.apiserver.request import ApiObject
from railnet.jobs.gang.engine import named_pod_group, pod_group_name, why_not_a_pod_group
from railnet.jobs.gang.other_placement import names_own_group, placed_by_others
from railnet.jobs.gang.request import Constraint, GangRequest
from railnet.objects.pod import parse


@pytest.mark.parametrize("gang", ["bert", "Bert_7B.v2", "a" * 253, "-", "x--y", "0"])
def test_name_of_a_pod_group_is_one_that_kubernetes_permits(gang: str) -> None:
    name = pod_group_name(gang)

    assert ApiObject("scheduling.k8s.io/v1beta1", "podgroups", name, "ml").name == name
    assert re.fullmatch(r"gang-([a-z0-9-]+-)?[0-9a-f]{8}", name)


def test_names_of_gangs_that_look_alike_differ() -> None:
    assert len({pod_group_name(gang) for gang in ("bert", "Bert", "bert.", "b-ert", "b_ert")}) == 5


@pytest.mark.parametrize(
    ("constraint", "why"),
    [
        (None, ""),
        (Constraint(required=("a",)), ""),
        (Constraint(preferred=("a", "b")), ""),
        (Constraint(required=("a", "b")), "its constraint requires several topologies, and a PodGroup has one"),
        (
            Constraint(required=("b",), preferred=("a",)),
            "its constraint requires a topology and prefers another, and a PodGroup has one",
        ),
    ],
)
def test_a_pod_group_has_one_label(constraint: Constraint | None, why: str) -> None:
    assert why_not_a_pod_group(GangRequest("bert", 2, constraint), {}) == why


def test_pod_with_eviction_responders_names_no_pod_group() -> None:
    assert "evictionResponders" in why_not_a_pod_group(GangRequest("bert"), {"evictionResponders": [{"name": "a"}]})


@pytest.mark.parametrize(
    ("claims", "by_gates"),
    [
        ([{"name": "vf", "resourceClaimTemplateName": "vfs"}], True),
        ([{"name": "vf", "resourceClaimName": "vf"}], False),
        ([], False),
        ("x", False),
        (["x"], False),
    ],
)
def test_pod_with_claims_of_a_template_names_no_pod_group(claims: Any, *, by_gates: bool) -> None:
    """Kubernetes makes such claims when the PodGroup exists, and Railnet creates the PodGroup when it knows them."""
    assert bool(why_not_a_pod_group(GangRequest("bert"), {"resourceClaims": claims})) is by_gates


@pytest.mark.parametrize(
    ("group", "named"),
    [(None, ""), ({}, ""), ({"podGroupName": "x"}, "x"), ("x", ""), ({"podGroupName": 1}, "")],
)
def test_pod_group_that_a_pod_names(group: Any, named: str) -> None:
    assert named_pod_group({"schedulingGroup": group}) == named


@pytest.mark.parametrize(
    ("gang", "group", "own"),
    [("bert", pod_group_name("bert"), True), ("bert", pod_group_name("gpt"), False), ("", pod_group_name(""), False)],
)
def test_only_the_pod_group_of_its_own_gang_is_railnets(gang: str, group: str, own: bool) -> None:
    labels = {"pod-group.scheduling.sigs.k8s.io/name": gang} if gang else {}
    document = {
        "metadata": {"name": "p", "namespace": "ml", "labels": labels},
        "spec": {"containers": [{"name": "c"}], "schedulingGroup": {"podGroupName": group}},
    }
    pod = parse(document)

    assert names_own_group(pod, document["spec"]) is own
    assert (list(placed_by_others(pod, document["spec"])) == []) is own
