"""A gang as the planner sees it: how many members it needs, and which are still to come."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from railnet.gangs.members import Members, members, needed, needs_root, planned, to_come, victims
from railnet.gangs.planning_result import Root
from railnet.gangs.pod import GangPod, GangPods
from railnet.gangs.pod_templates import PodTemplate, reduced
from railnet.jobs.gang.request import GangRequest
from railnet.jobs.reported_pod import ReportedPod
from railnet.objects.owner_reference import OwnerReference
from tests.railnet.controllers.gangs.gang_cluster import NAME, pod_of

JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "bert", "uid": "uid-of-bert", "controller": True}
ROOT = OwnerReference("batch/v1", "Job", "bert", "uid-of-bert")
ALL = GangRequest("bert")
_PODS = GangPods()


def a_pod(name: str, **fields: Any) -> GangPod:
    found = copy.deepcopy(pod_of("bert", name, **fields))
    owner = {**JOB, "uid": fields.get("uid", JOB["uid"])}
    found["metadata"] |= {"uid": f"uid-of-{name}", "resourceVersion": "1", "ownerReferences": [owner]}
    found["status"]["phase"] = fields.get("phase", "Pending")
    if fields.get("node"):
        found["spec"] |= {"nodeName": fields["node"], "schedulingGates": []}
    if "placed" in fields:
        found["metadata"]["annotations"]["railnet.io/placement"] = fields["placed"]
        found["spec"]["schedulingGates"] = []
    kept = _PODS.reduce(ReportedPod(found))
    assert kept is not None
    return kept


def a_template(role: str, count: int, gang: str = "", gpus: int = 8) -> PodTemplate:
    pod = pod_of("bert", "x", gpus=gpus)
    return reduced(role, count, {"metadata": {"labels": {NAME: gang} if gang else {}}, "spec": pod["spec"]})


def found(*pods: GangPod) -> Members:
    return members(pods, ())


def root(*templates: PodTemplate) -> Root:
    return Root(ROOT, templates)


def gpus(coming: Any) -> list[int]:
    return [dict(member.shape.requests)["nvidia.com/gpu"] for member in coming]


def test_min_available_counts_before_all_else() -> None:
    pods = found(a_pod("w-0"), a_pod("w-1"))

    assert needed(GangRequest("bert", 5), pods, root(a_template("", 8))) == 5
    assert needed(ALL, pods, root(a_template("", 8))) == 8
    assert needed(ALL, pods, root(a_template("", 1))) == 2
    assert needed(ALL, pods, None) == 2


def test_root_is_needed_where_members_are_missing_or_nothing_says_how_many() -> None:
    pods = found(a_pod("w-0"), a_pod("w-1"))

    assert [needs_root(GangRequest("bert", least), pods) for least in (None, 1, 2, 3)] == [True, False, False, True]


def test_templates_of_other_gangs_do_not_count() -> None:
    made = root(a_template("ps", 3, "other"), a_template("worker", 4, "bert"))

    assert needed(ALL, found(a_pod("w-0")), made) == 4


def test_members_to_come_are_those_of_each_role_that_are_missing() -> None:
    worker = {"jobset.sigs.k8s.io/jobset-name": "set", "jobset.sigs.k8s.io/replicatedjob-name": "worker"}
    made = root(a_template("ps", 1, gpus=1), a_template("worker", 3, gpus=8))
    coming = list(to_come(ALL, found(a_pod("w-0", labels=worker, gpus=4)), made).members())

    assert [member.role for member in coming] == ["ps", "worker", "worker"]
    assert gpus(coming) == [1, 4, 4]  # what exists of a role says more than its template


def test_member_to_come_is_not_pinned_to_the_leaf_of_the_one_that_it_is_like() -> None:
    placed = a_pod(
        "w-0",
        placed='{"domain":{"railnet.io/leaf":"a"},"attempt":1}',
        spec={"nodeSelector": {"railnet.io/leaf": "a", "disk": "fast"}},
    )
    (coming,) = to_come(ALL, found(placed), root(a_template("", 2))).members()

    assert coming.shape.selector == (("disk", "fast"),)


def test_members_to_come_have_a_limit_and_the_number_that_starts_together_has_none() -> None:
    made = root(*(a_template(f"task-{number}", 100_000) for number in range(5)))

    coming = to_come(ALL, found(a_pod("w-0")), made)

    assert len(coming.alike) == 5  # no member exists before it is planned
    assert coming.count == len(list(coming.members())) == 20_000
    assert needed(ALL, found(a_pod("w-0")), made) == 500_000


def test_template_that_cannot_be_read_makes_no_member() -> None:
    broken = reduced("ps", 2, {"spec": {"containers": "none"}})

    coming = list(to_come(ALL, found(a_pod("w-0")), root(broken, a_template("worker", 1))).members())

    assert [member.role for member in coming] == ["worker"]  # w-0 does not say its role, and counts as the first


@pytest.mark.parametrize(
    ("uid", "created", "counts"),
    [
        ("uid-of-bert", "1970-01-01T00:00:00Z", True),
        ("earlier", "1970-01-01T00:00:00Z", False),
        ("earlier", "1970-01-01T00:10:00Z", True),
    ],
)
def test_complete_member_counts_unless_it_is_of_an_earlier_run(uid: str, created: str, *, counts: bool) -> None:
    pods = found(a_pod("w-0"), a_pod("w-1", phase="Succeeded", uid=uid, created=created))

    assert len(pods.came) == 1 + counts
    assert needed(GangRequest("bert", 2), pods, None) == 2 - counts


def test_pod_that_was_placed_for_another_constraint_is_no_member() -> None:
    stray = a_pod("w-0", placed='{"domain":{"other":"a"},"attempt":1}')
    pods = found(stray, a_pod("w-1"))
    request = stray.request
    assert request is not None
    gang = planned(request, pods, {}, waiting=True, least=2)

    assert [member.name for member in gang.members] == ["w-1"]


def test_victim_has_what_its_pods_hold_and_those_that_leave_are_no_part_of_it() -> None:
    pods = found(a_pod("w-0", node="a-0", priority=3), a_pod("w-1"))
    ending = replace(a_pod("w-2", node="a-1"), leaving=True)
    (gang,) = victims("bert", pods, leaving=False)

    assert [member.name for member in gang.members] == ["w-0"]
    assert gang.priority == 3
    assert list(victims("bert", found(a_pod("w-1")), leaving=False)) == []
    gone, other = (
        victims("bert", found(ending), leaving=False),
        victims("bert", members((*pods.bound, ending), ()), leaving=False),
    )
    assert [(one.name, one.leaving) for one in gone] == [("bert", True)]
    assert [(len(one.members), one.leaving) for one in other] == [(1, False), (1, True)]
