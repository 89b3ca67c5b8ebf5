"""The gangs of a cluster as `railnet train top` shows them, from pods and events alone."""

import json
from typing import Any

import pytest

from railnet.jobs.gang.overview import GangUse, GangWait, MemberUse, gang_part, gang_wait, gangs
from railnet.objects import pod as pods

JsonObject = dict[str, Any]
LABELS = {"pod-group.scheduling.sigs.k8s.io/name": "ring", "pod-group.scheduling.sigs.k8s.io/min-available": "3"}
OWNER = {"kind": "Job", "name": "train", "uid": "uid-of-job", "controller": True}
PLACED = {"railnet.io/placement": '{"domain":{"railnet.io/leaf":"0x1"},"attempt":1}'}


def a_pod(name: str, *, gated: bool = False, annotations: JsonObject | None = None, **metadata: Any) -> JsonObject:
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{name}",
            "labels": LABELS,
            "annotations": annotations or {},
            "ownerReferences": [OWNER],
            **metadata,
        },
        "spec": {
            "containers": [{"name": "c"}],
            "schedulingGates": [{"name": "railnet.io/gang"}] if gated else [],
        },
    }


def a_member(pod: JsonObject, *, runs: bool = False, job: str = "") -> MemberUse:
    part = gang_part(pods.parse(pod), pod["metadata"], job)
    assert part is not None
    return MemberUse(pod["metadata"]["namespace"], runs, part)


def an_event(message: str, at: str = "2026-03-01T10:00:00Z", **about: str) -> JsonObject:
    involved = {"kind": "Job", "namespace": "ml", "name": "train", "uid": "uid-of-job", **about}
    return {"reason": "GangWaiting", "message": message, "lastTimestamp": at, "involvedObject": involved}


def waits(*events: JsonObject) -> list[GangWait]:
    return [found for one in events if (found := gang_wait(one)) is not None]


def test_gang_that_waits_has_its_pods_and_the_latest_reason() -> None:
    members = [a_member(a_pod(name, gated=True)) for name in "ab"]
    told = waits(an_event("later", "2026-03-01T10:01:00Z"), an_event("earlier"))

    assert gangs(members, told) == (
        GangUse("ml", "ring", pods=2, gated=2, running=0, least=3, places=(), why="later", level="on any nodes"),
    )


def test_gang_that_is_let_go_and_not_evicted_says_why_as_long_as_a_member_has_no_node() -> None:
    stays = "members have no nodes in railnet.io/leaf=0x1, and the gang is not evicted"
    first, second = (a_member(a_pod(name, annotations=PLACED)) for name in "ab")
    stuck = [first, second._replace(bound=False)]

    assert [found.why for found in gangs(stuck, waits(an_event(stays)))] == [stays]
    assert [found.why for found in gangs([first, second], waits(an_event(stays)))] == [""]
    assert [found.why for found in gangs(stuck, waits(an_event("before it was placed")))] == [""]


def test_gang_that_is_placed_has_its_place_and_no_reason() -> None:
    members = [a_member(a_pod(name, annotations=PLACED), runs=True) for name in "abc"]

    (found,) = gangs(members, waits(an_event("before it was placed")))

    assert (found.running, found.gated, found.why) == (3, 0, "")
    assert found.places == ((("railnet.io/leaf", "0x1"),),)


def test_gangs_of_two_namespaces_are_two() -> None:
    other = a_pod("a", namespace="other")

    assert [(one.namespace, one.pods) for one in gangs(map(a_member, [a_pod("a"), other, a_pod("b")]))] == [
        ("ml", 2),
        ("other", 1),
    ]


@pytest.mark.parametrize(
    ("about", "fits"),
    [
        ({}, True),
        ({"uid": "other", "name": "ring"}, True),
        ({"uid": "other", "name": "mnist"}, True),
        ({"uid": "uid-a", "name": "a", "kind": "Pod"}, True),
        ({"uid": "other", "name": "other"}, False),
        ({"uid": "", "name": ""}, False),
        ({"namespace": "other"}, False),
    ],
)
def test_event_is_about_a_gang_by_its_owner_its_job_or_its_name(about: JsonObject, fits: bool) -> None:
    (found,) = gangs([a_member(a_pod("a", gated=True), job="mnist")], waits(an_event("full", **about)))

    assert (found.why == "full") is fits


def test_event_of_another_reason_says_nothing() -> None:
    assert waits({**an_event("x"), "reason": "GangPlaced"}, {}, {"reason": "GangWaiting"}) == [
        GangWait("", "", "", "", "")
    ]


def test_event_that_refuses_a_gang_says_why_it_has_no_place() -> None:
    refused = {**an_event("no node has the label x"), "reason": "GangRefused"}
    (gang,) = gangs([a_member(a_pod("a", gated=True))], waits(refused))

    assert gang.why == "no node has the label x"


def test_gang_that_waits_names_the_one_before_it_by_priority_then_turn_then_age() -> None:
    def waiting(namespace: str, name: str, minute: int, priority: int = 0) -> MemberUse:
        labels = {"pod-group.scheduling.sigs.k8s.io/name": name}
        created = f"2026-03-01T10:{minute:02}:00Z"
        pod = a_pod(name, gated=True, namespace=namespace, labels=labels, creationTimestamp=created)
        part = gang_part(pods.parse(pod), pod["metadata"], "", priority)
        assert part is not None
        return MemberUse(namespace, runs=False, part=part)

    runs = a_member(a_pod("running", annotations=PLACED), runs=True)
    members = [
        *(waiting("ml", "old", 0), waiting("ml", "later", 1), waiting("ml", "high", 9, 1)),
        *(waiting("b", "first", 5), waiting("b", "second", 6)),
    ]

    assert {gang.name: gang.behind for gang in gangs([*members, runs])} == {
        "ring": "",  # it runs
        "high": "",
        "old": "ml/high",
        "first": "ml/old",
        "later": "b/first",
        "second": "ml/later",
    }
    assert gangs([waiting("ml", "old", 0)])[0].created == "2026-03-01T10:00:00Z"


def test_message_of_an_event_is_one_short_line() -> None:
    (found,) = waits(an_event("a\n" * 5000))

    assert found.said.startswith("a a a")
    assert len(found.said) == 1024


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"domain":{},"attempt":1}', ()),
        ('{"domain":{"b":"2","a":"1"}}', (("a", "1"), ("b", "2"))),
        ("", None),
        ("{", None),
        ("[]", None),
        ("{}", None),
        ('{"domain":[1]}', None),
        ("[" * 4000, None),
        (json.dumps({"domain": {"a": "x" * 5000}}), None),
    ],
)
def test_placement_is_read_as_the_controllers_write_it(text: str, place: Any) -> None:
    assert a_member(a_pod("a", annotations={"railnet.io/placement": text})).part.place == place


def test_pod_without_a_gang_or_with_a_broken_one_is_in_none() -> None:
    for labels in ({}, {**LABELS, "pod-group.scheduling.sigs.k8s.io/min-available": "x"}):
        pod = a_pod("a", labels=labels)
        assert gang_part(pods.parse(pod), pod["metadata"], "") is None
