"""What pods ask for by ResourceClaims, and what of it a gang's pods take of a node."""

from dataclasses import replace
from typing import Any

import pytest

from railnet.gangs.device_claims import ClaimingPods, amounts, class_of, device_claim
from railnet.gangs.pod import GangPod, GangPods
from railnet.gangs.slice_devices import BY_CLAIM
from railnet.jobs.reported_pod import ReportedPod
from tests.railnet.controllers.gangs.gang_cluster import pod_of
from tests.railnet.gangs.slices_and_claims import VF, a_claim

JsonObject = dict[str, Any]
RESOURCES = frozenset({VF})
TEMPLATE = [{"name": "vf", "resourceClaimTemplateName": "vfs"}]


def a_pod(name: str = "bert-0", claims: list[JsonObject] = TEMPLATE, statuses: JsonObject | None = None) -> GangPod:
    """Return a pod of a gang, behind the gate; `statuses` are the claims that were made of its templates."""
    document = pod_of("bert", name, spec={"resourceClaims": claims})
    document["metadata"]["uid"] = f"uid-of-{name}"
    if statuses is not None:
        document["status"]["resourceClaimStatuses"] = [
            {"name": entry, **({} if claim is None else {"resourceClaimName": claim})}
            for entry, claim in statuses.items()
        ]
    pod = GangPods().reduce(ReportedPod(document))
    assert pod is not None
    return pod


def asks(pod: GangPod | None) -> dict[str, int]:
    assert pod is not None
    return {resource: amount for resource, amount in pod.shape.requests if resource in (VF, BY_CLAIM)}


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (a_claim("c", 2), {VF: 2, BY_CLAIM: 2}),
        (a_claim("c", 2, "rdma-ib-vf"), {VF: 2, BY_CLAIM: 2}),
        (a_claim("c", 2, "gpu.example.com"), {}),
        (a_claim("c", 2, adminAccess=True), {}),
        (a_claim("c", 1, allocationMode="All"), {VF: 1, BY_CLAIM: 1}),
    ],
    ids=["any VF", "by resource", "other driver", "for an administrator", "all of a node"],
)
def test_claim_asks_for_devices_by_its_class(claim: JsonObject, expected: dict[str, int]) -> None:
    assert amounts(device_claim(claim), RESOURCES) == expected


def test_requests_of_one_claim_are_added_and_of_alternatives_the_first_counts() -> None:
    claim = a_claim("c")
    alternatives = [{"name": "four", "deviceClassName": "rdma-ib-vf", "count": 4}, {"deviceClassName": "rdma-ib-vf"}]
    claim["spec"]["devices"]["requests"] += [{"name": "more", "firstAvailable": alternatives}]

    assert amounts(device_claim(claim), RESOURCES) == {VF: 5, BY_CLAIM: 5}


def test_claim_of_any_device_is_of_no_resource_where_nodes_offer_several() -> None:
    assert amounts(device_claim(a_claim("c", 2)), {VF, "rdma/roce_vf"}) == {BY_CLAIM: 2}
    assert amounts(device_claim(a_claim("c", 2)), frozenset()) == {BY_CLAIM: 2}


def test_claim_that_the_scheduler_made_for_a_resource_counts_by_the_pods_request_alone() -> None:
    claim = a_claim("c", held=("pci-0000-00-00-0",))
    claim["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    found = device_claim(claim)

    assert amounts(found, RESOURCES) == {}
    assert found.held == (("a-0", "pci-0000-00-00-0"),)


def test_class_has_the_name_that_the_chart_gives_it() -> None:
    assert class_of("rdma/ib_vf") == "rdma-ib-vf"
    assert class_of("rdma.Example.com/IB_") == "rdma-example-com-ib"


def test_pod_that_waits_is_held_back_until_its_claims_are_known() -> None:
    pods = ClaimingPods()
    pods.is_watched = True
    first, made = a_pod(), a_pod(statuses={"vf": "bert-0-vf"})

    assert pods.replace(None, first, RESOURCES)[1] is None
    assert pods.replace(first, made, RESOURCES)[:2] == (None, None)
    assert list(pods.change_claim(None, device_claim(a_claim("bert-0-vf", 2)))) == [made.name]
    before, after = pods.joined_again(made.name, RESOURCES)
    assert before is None
    assert asks(after) == {VF: 2, BY_CLAIM: 2}
    assert pods.replace(made, None, RESOURCES) == (after, None, set())
    assert list(pods.names()) == []


def test_pod_whose_template_needs_no_claim_waits_for_none() -> None:
    pods = ClaimingPods()
    pods.is_watched = True

    assert asks(pods.replace(None, a_pod(statuses={"vf": None}), RESOURCES)[1]) == {}


def test_pod_whose_template_turned_out_to_need_no_claim_is_forgotten() -> None:
    pods = ClaimingPods()
    pods.is_watched = True
    waiting, ready = a_pod(), a_pod(statuses={"vf": None})

    assert pods.replace(None, waiting, RESOURCES)[1] is None
    assert pods.replace(waiting, ready, RESOURCES) == (None, ready, set())
    assert list(pods.names()) == []
    assert pods.replace(ready, None, RESOURCES) == (ready, None, set())


def test_pod_that_shares_a_claim_and_whose_template_needs_none_is_forgotten_when_it_is_gone() -> None:
    pods, named = ClaimingPods(), [{"name": "shared", "resourceClaimName": "c"}, *TEMPLATE]
    pods.is_watched = True
    pods.change_claim(None, device_claim(a_claim("c", 2)))
    waiting, ready = a_pod(claims=named), a_pod(claims=named, statuses={"vf": None})

    assert pods.replace(None, waiting, RESOURCES)[1] is None
    assert asks(pods.replace(waiting, ready, RESOURCES)[1]) == {VF: 2, BY_CLAIM: 2}
    assert list(pods.names()) == [ready.name]
    pods.replace(ready, None, RESOURCES)
    assert list(pods.names()) == []
    assert list(pods.change_claim(device_claim(a_claim("c", 2)), None)) == []


def test_without_devices_in_the_cluster_claims_hold_no_pod_back() -> None:
    pod = a_pod()

    assert ClaimingPods().replace(None, pod, frozenset())[1] == pod


def test_bound_pod_counts_before_its_claim_is_known_and_with_it() -> None:
    pods, bound = ClaimingPods(), replace(a_pod(statuses={"vf": "c"}), node="a-0", gated=None)
    pods.is_watched = True

    assert asks(pods.replace(None, bound, RESOURCES)[1]) == {}
    pods.change_claim(None, device_claim(a_claim("c", 3)))
    assert asks(pods.joined_again(bound.name, RESOURCES)[1]) == {VF: 3, BY_CLAIM: 3}


def test_claim_that_pods_share_counts_once_also_after_the_first_of_them_is_gone() -> None:
    pods, named = ClaimingPods(), [{"name": "vf", "resourceClaimName": "c"}]
    pods.is_watched = True
    pods.change_claim(None, device_claim(a_claim("c", 2)))
    first, second = a_pod("bert-0", named), a_pod("bert-1", named)

    assert asks(pods.replace(None, first, RESOURCES)[1])[VF] == 2
    assert asks(pods.replace(None, second, RESOURCES)[1]) == {}
    newer = replace(first, unschedulable=True)
    assert pods.replace(first, newer, RESOURCES)[2] == set()
    assert pods.replace(newer, None, RESOURCES)[2] == {second.name}
    assert asks(pods.joined_again(second.name, RESOURCES)[1])[VF] == 2


def test_two_claims_of_one_pod_and_its_own_request_are_added() -> None:
    pods, entries = ClaimingPods(), [{"name": name, "resourceClaimName": name} for name in "ab"]
    pods.is_watched = True
    for name, count in (("a", 1), ("b", 2)):
        pods.change_claim(None, device_claim(a_claim(name, count)))
    pod = a_pod(claims=entries)
    joined = pods.replace(None, pod, RESOURCES)[1]

    assert asks(joined) == {VF: 3, BY_CLAIM: 3}
    assert joined is not None
    assert dict(joined.shape.requests)["nvidia.com/gpu"] == 8
