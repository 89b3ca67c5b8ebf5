"""Gangs are placed whole: who gets which domain, with which requests, and what is said."""

import copy

import pytest

from railnet.gangs import planning
from railnet.gangs.life_cycle import LIFE_CYCLE, GangEvent, GangState
from tests.railnet.controllers.gangs.eviction_rounds import take
from tests.railnet.controllers.gangs.gang_cluster import CONSTRAINT, GATE, IN_ONE_LEAF, LEAST, GangCluster, Leader, path
from tests.railnet.controllers.gangs.late_scheduler import bind, seat_of, unbound

ON_ONE_NODE = '{"name":"test","required":{"topologies":[{"key":"kubernetes.io/hostname"}],"nodeSelectors":[{"matchLabels":{"test":"abc"}}]}}'


@pytest.fixture
def cluster() -> GangCluster:
    """Two leaves of four nodes with eight GPUs."""
    made = GangCluster()
    for leaf in ("a", "b"):
        for number in range(4):
            made.add_node(f"{leaf}-{number}", leaf)
    return made


def reasons(cluster: GangCluster) -> list[str]:
    return [reason for reason, _, _ in cluster.events]


def said(cluster: GangCluster, reason: str) -> list[str]:
    return [text for found, _, text in cluster.events if found == reason]


def test_gang_gets_one_domain_with_one_patch_for_each_pod(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 3)
    Leader(cluster).settle()

    assert cluster.gated() == []
    assert set(cluster.leaves().values()) == {"a"}
    assert cluster.requests["patch pods"] == 3
    assert cluster.events == [("GangPlaced", "Job/bert", "3 members placed in railnet.io/leaf=a")]
    assert cluster.requests["get jobs"] == 1  # the root, for the event


def test_patch_has_selector_and_placement_and_leaves_the_rest(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 1, spec={"nodeSelector": {"disk": "fast"}}, gates=[{"name": "others.io/quota"}])
    for number in range(4):
        cluster.add_node(f"b-{number}", "b", disk="fast")
    Leader(cluster).settle()
    pod = cluster.pods()["bert-0"]

    assert pod["spec"]["nodeSelector"] == {"disk": "fast", "railnet.io/leaf": "b"}
    assert (
        pod["metadata"]["annotations"]["railnet.io/placement"]
        == '{"domain":{"railnet.io/leaf":"b"},"attempt":1,"node":"b-0"}'
    )
    assert pod["metadata"]["annotations"]["railnet.io/explain"] == "…"
    assert pod["spec"]["schedulingGates"] == [{"name": "others.io/quota"}]


PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
OTHER = {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}


@pytest.mark.parametrize(
    "affinity",
    [
        None,
        {},
        {"podAntiAffinity": {}},
        {"nodeAffinity": {}},
        {"nodeAffinity": {PREFERRED: []}},
        {"nodeAffinity": {PREFERRED: [OTHER]}},
    ],
    ids=str,
)
def test_patch_prefers_the_node_on_which_room_is_kept(
    cluster: GangCluster, affinity: dict[str, dict[str, object]] | None
) -> None:
    """Inside its domain the scheduler would else spread the pods over the emptiest nodes."""
    cluster.add_gang("bert", 2, gpus=4, spec={} if affinity is None else {"affinity": affinity})
    Leader(cluster).settle()
    found = [pod["spec"]["affinity"] for pod in cluster.of("pods")]
    terms = [one["nodeAffinity"][PREFERRED] for one in found]
    hosts = [one[-1]["preference"]["matchExpressions"][0] for one in terms]

    assert hosts == [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a-0"]}] * 2
    assert {one[-1]["weight"] for one in terms} == {100}
    for one, term in zip(found, terms, strict=True):
        assert {key: value for key, value in one.items() if key != "nodeAffinity"} == {
            key: value for key, value in (affinity or {}).items() if key != "nodeAffinity"
        }
        assert term[:-1] == ((affinity or {}).get("nodeAffinity") or {}).get(PREFERRED, [])


def test_pods_of_the_articles_example_end_on_one_node(cluster: GangCluster) -> None:
    """aliyun ACK: the first pod's node does not decide; only nodes with test=abc count."""
    cluster.add_node("c-0", "c", gpus=4, test="abc")
    cluster.add_node("c-1", "c", gpus=5, test="abc")
    cluster.add_gang("test", 5, least=5, gpus=1, constraint=ON_ONE_NODE)
    Leader(cluster).settle()
    cluster.schedule()

    assert set(cluster.nodes().values()) == {"c-1"}


def test_gang_without_topology_gets_no_selector(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 6, constraint=None)
    Leader(cluster).settle()

    assert cluster.gated() == []
    assert set(cluster.leaves().values()) == {None}
    assert "6 members placed on any nodes" in said(cluster, "GangPlaced")


def test_address_that_stays_with_the_rank_is_in_the_same_patch(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 2)
    Leader(cluster, {"bert-1": "10.58.0.2/24"}).settle()
    annotations = {
        name: pod["metadata"]["annotations"].get("railnet.io/net1-ip") for name, pod in cluster.pods().items()
    }

    assert annotations == {"bert-0": None, "bert-1": "10.58.0.2/24"}
    assert cluster.requests["patch pods"] == 2


def test_nothing_is_asked_at_rest(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 3)
    cluster.add_gang("large", 5)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    cluster.requests.clear()
    for _ in range(3):
        cluster.now += 20
        leader.settle()

    assert not cluster.requests


def test_gang_that_does_not_fit_waits_whole_and_says_why(cluster: GangCluster) -> None:
    cluster.add_gang("first", 3)
    cluster.add_gang("second", 3)
    cluster.add_gang("third", 3)
    leader = Leader(cluster)
    leader.settle()

    assert cluster.gated() == ["third-0", "third-1", "third-2"]
    (text,) = said(cluster, "GangWaiting")
    assert "3/3 members seen, need 3x{nvidia.com/gpu: 8} in one railnet.io/leaf" in text
    assert "2 domains tried" in text
    assert "has room for 1" in text
    assert "short: nvidia.com/gpu 16" in text

    cluster.remove(path("first-0"))
    cluster.remove(path("first-1"))
    cluster.remove(path("first-2"))
    leader.settle()
    assert cluster.gated() == []


def test_two_gangs_never_share_room_while_pods_are_not_bound(cluster: GangCluster) -> None:
    cluster.add_gang("first", 4)
    leader = Leader(cluster)
    leader.settle()
    cluster.add_gang("second", 4)
    leader.settle()
    cluster.add_gang("third", 1)
    leader.settle()

    assert {pod: leaf for pod, leaf in cluster.leaves().items() if leaf} == {
        **{f"first-{rank}": "a" for rank in range(4)},
        **{f"second-{rank}": "b" for rank in range(4)},
    }
    assert cluster.gated() == ["third-0"]


def test_gangs_of_one_name_in_two_namespaces_are_two_gangs(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 4)
    for name, pod in cluster.pods().items():
        other = copy.deepcopy(pod)
        other["metadata"] = {**pod["metadata"], "namespace": "other", "uid": f"other-{name}"}
        cluster.put(f"/api/v1/namespaces/other/pods/{name}", other)
    leader = Leader(cluster)
    leader.settle()
    cluster.now += 1.1  # the pods of the other namespace have no Job that says how many they are
    leader.settle()
    domains = {
        (pod["metadata"]["namespace"], pod["spec"]["nodeSelector"]["railnet.io/leaf"]) for pod in cluster.of("pods")
    }

    assert len(domains) == 2


def test_gang_whose_namespace_was_served_goes_behind_those_of_others(cluster: GangCluster) -> None:
    """A namespace with many old gangs does not have all room."""

    def in_namespace_other(pod: str) -> None:
        gang_pod = cluster.objects[path(pod)]
        cluster.remove(path(pod))
        metadata = {**gang_pod["metadata"], "namespace": "other", "uid": f"other-{pod}"}
        cluster.put(f"/api/v1/namespaces/other/pods/{pod}", {**gang_pod, "metadata": metadata})

    cluster.add_gang("block", 4)
    leader = Leader(cluster)
    leader.settle()
    for number in range(3):
        cluster.add_gang(f"many-{number}", 4, least=4, created=f"1970-01-01T00:11:0{number}Z")
    cluster.add_gang("other", 4, least=4, created="1970-01-01T00:12:00Z")
    for rank in range(4):
        in_namespace_other(f"other-{rank}")
    leader.settle()
    assert {name[:6] for name in cluster.gated()} == {"many-1", "many-2", "other-"}
    for rank in range(4):
        cluster.remove(path(f"block-{rank}"))
    leader.settle()

    assert {name[:6] for name in cluster.gated()} == {"many-1", "many-2"}


def test_late_member_follows_the_others(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 2, least=2)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    cluster.add_gang("filler", 1)  # the other leaf would be the better fit for one more
    leader.settle()
    cluster.add_pod("bert-late", "bert", least=2)
    leader.settle()

    assert cluster.leaves()["bert-late"] == cluster.leaves()["bert-0"]


def test_pod_of_a_dead_node_waits_for_its_own_domain(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 4)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    dead = cluster.nodes()["bert-0"]
    cluster.remove(f"/api/v1/nodes/{dead}")
    cluster.remove(path("bert-0"))
    cluster.make_again("bert", 4)
    leader.settle()

    assert len(cluster.gated()) == 1
    assert "best a has room for 0" in said(cluster, "GangWaiting")[0]
    assert cluster.requests["create pods"] == 0

    cluster.add_node(dead, "a")
    leader.settle()
    assert cluster.gated() == []
    assert set(cluster.leaves().values()) == {"a"}


def test_members_that_have_ended_are_none(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 4)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    for name in ("bert-0", "bert-1"):
        cluster.change(name, lambda pod: pod["status"].update(phase="Succeeded"))
    cluster.add_gang("next", 2)
    leader.settle()

    assert cluster.gated() == []
    assert set(cluster.leaves().values()) == {"a"}


def test_room_is_kept_for_members_that_do_not_exist_yet(cluster: GangCluster) -> None:
    """A pod is made when the one before it is ready, so nothing may wait for all pods."""
    owner = cluster.add_stateful_set("dag", 4)
    cluster.add_pod("dag-0", "dag", owner=owner)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    cluster.add_gang("other", 3)
    leader.settle()

    assert cluster.leaves() == {"dag-0": "a", "other-0": "b", "other-1": "b", "other-2": "b"}
    cluster.add_gang("more", 2)
    leader.settle()
    assert cluster.gated() == ["more-0", "more-1"]
    for rank in range(1, 4):
        cluster.add_pod(f"dag-{rank}", "dag", owner=owner)
        leader.settle()
        cluster.schedule()
    assert cluster.gated() == ["more-0", "more-1"]
    assert {name[0] for pod, name in cluster.nodes().items() if pod.startswith("dag")} == {"a"}
    assert len(cluster.nodes()) == 7


def test_gang_of_unknown_size_is_placed_when_no_more_members_come(cluster: GangCluster) -> None:
    cluster.add_pod("bare-0", "bare")
    leader = Leader(cluster)
    again = leader.settle()
    assert cluster.gated() == ["bare-0"]
    assert again is not None
    assert again <= 1.0
    cluster.now += 0.6
    cluster.add_pod("bare-1", "bare")
    leader.settle()
    cluster.now += 0.6
    leader.settle()
    assert len(cluster.gated()) == 2
    cluster.now += 0.6
    leader.settle()

    assert cluster.gated() == []
    assert ("GangPlaced", "Pod/bare-0", "2 members placed in railnet.io/leaf=a") in cluster.events


def test_gang_that_is_made_smaller_while_it_waits_is_placed(cluster: GangCluster) -> None:
    owner = cluster.add_job("bert", 9)
    for rank in range(3):
        cluster.add_pod(f"bert-{rank}", "bert", owner=owner)
    leader = Leader(cluster)
    leader.settle()
    assert len(cluster.gated()) == 3
    cluster.add_job("bert", 3)
    cluster.now += 61
    leader.settle()

    assert cluster.gated() == []


def test_gang_that_grows_gets_its_new_members_into_its_domain(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 2)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    cluster.make_again("bert", 4)
    leader.settle()

    assert cluster.gated() == []
    assert len(cluster.leaves()) == 4
    assert set(cluster.leaves().values()) == {"a"}


def test_elastic_gang_starts_with_the_least_and_grows_later(cluster: GangCluster) -> None:
    cluster.add_gang("block", 3)
    cluster.add_gang("blocks", 2)
    leader = Leader(cluster)
    leader.settle()
    cluster.add_gang("bert", 4, least=2)
    leader.settle()

    assert len([name for name in cluster.gated() if name.startswith("bert")]) == 2
    for rank in range(2):
        cluster.remove(path(f"blocks-{rank}"))
    leader.settle()
    assert cluster.gated() == []
    assert {leaf for name, leaf in cluster.leaves().items() if name.startswith("bert")} == {"b"}


def test_members_that_contradict_each_other_wait_and_an_event_says_so(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 2, least=2)
    cluster.add_pod("bert-2", "bert", least=3)
    leader = Leader(cluster)
    leader.settle()

    assert len(cluster.gated()) == 3
    assert "contradict each other" in said(cluster, "GangRefused")[0]
    cluster.change("bert-2", lambda pod: pod["metadata"]["labels"].update({LEAST: "2"}))
    leader.settle()
    assert cluster.gated() == []


def test_pod_whose_gang_labels_were_removed_is_let_go(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 5)
    leader = Leader(cluster)
    leader.settle()
    cluster.change("bert-0", lambda pod: pod["metadata"].update(labels={}))
    leader.settle()

    assert "bert-0" not in cluster.gated()
    assert cluster.leaves()["bert-0"] is None
    assert "railnet.io/placement" not in cluster.pods()["bert-0"]["metadata"]["annotations"]


def test_pod_whose_gang_cannot_be_read_waits_and_an_event_says_so(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 2)
    cluster.change("bert-0", lambda pod: pod["metadata"]["annotations"].update({CONSTRAINT: "{"}))
    leader = Leader(cluster)
    leader.settle()

    assert "bert-0" in cluster.gated()
    assert CONSTRAINT in said(cluster, "GangRefused")[0]
    cluster.change("bert-0", lambda pod: pod["metadata"]["annotations"].update({CONSTRAINT: IN_ONE_LEAF}))
    leader.settle()
    assert cluster.gated() == []


def test_gated_pods_are_let_go_when_their_namespace_is_switched_off(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 5)
    leader = Leader(cluster)
    leader.settle()
    assert len(cluster.gated()) == 5
    cluster.put("/api/v1/namespaces/ml", {"metadata": {"name": "ml", "labels": {GATE: "off"}}})
    leader.settle()

    assert cluster.gated() == []
    assert set(cluster.leaves().values()) == {None}
    cluster.remove("/api/v1/namespaces/ml")
    cluster.add_gang("next", 2)
    leader.settle()
    assert set(cluster.leaves().values()) == {None, "a"}


@pytest.mark.parametrize("status", [409, 422, 429, 500, 503, 403])
def test_patch_that_is_refused_once_is_done_later(cluster: GangCluster, status: int) -> None:
    cluster.add_gang("bert", 3)
    leader = Leader(cluster)
    left = [status]
    cluster.refuse("patch", left)
    leader.settle()
    cluster.now += 1
    leader.settle()

    assert left == []
    assert cluster.gated() == []
    assert set(cluster.leaves().values()) == {"a"}


def test_patch_that_a_policy_refuses_is_reported_and_tried_again_more_and_more_rarely(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 1)
    leader = Leader(cluster)
    cluster.refuse("patch", [422] * 100)
    for _ in range(100):
        cluster.now += 1
        leader.settle()

    assert 5 < cluster.requests["patch pods"] + cluster.requests["patch pods/status"] < 20
    assert "the API server refuses the patch that admits it" in said(cluster, "GangRefused")[0]


def test_patch_from_an_older_state_of_the_pod_is_refused(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 2)
    leader = Leader(cluster)
    leader.learn()
    cluster.change("bert-0", lambda pod: pod["spec"].update(nodeSelector={"railnet.io/leaf": "b"}))
    leader.look()
    assert cluster.gated() == ["bert-0"]
    cluster.now += 1
    leader.settle()

    # bert-1 was placed in a already; what another client wrote contradicts it, and is not overwritten.
    assert cluster.gated() == ["bert-0"]
    assert cluster.leaves() == {"bert-0": "b", "bert-1": "a"}


def test_pod_that_is_deleted_while_its_patch_waits_is_forgotten(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 3)
    leader = Leader(cluster)
    cluster.refuse("patch", [503])
    leader.learn()
    leader.look()
    (left,) = cluster.gated()
    cluster.remove(path(left))
    leader.settle()

    assert cluster.gated() == []
    assert len(cluster.pods()) == 2


def test_topology_that_no_node_has_is_said_at_once_and_never_ignored(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 2, constraint='{"required":{"topologies":[{"key":"acme.com/pod"}]}}')
    leader = Leader(cluster)
    leader.settle()

    assert len(cluster.gated()) == 2
    assert (
        "no node has the label acme.com/pod; label the nodes, or correct the constraint"
        in said(cluster, "GangRefused")[0]
    )


def test_preferred_topology_that_no_node_has_is_left_out_and_the_event_says_so(cluster: GangCluster) -> None:
    preferred = (
        '{"preferred":{"topologies":[{"key":"acme.com/pod"},{"key":"railnet.io/leaf"}]},"relaxAfterSeconds":300}'
    )
    cluster.add_gang("bert", 3, constraint=preferred)
    Leader(cluster).settle()

    assert set(cluster.leaves().values()) == {"a"}
    assert said(cluster, "GangPlaced") == [
        "3 members placed in railnet.io/leaf=a; no node has the preferred label acme.com/pod, which was left out"
    ]


def test_gang_that_waits_does_not_ask_for_a_preferred_topology_that_no_node_has(cluster: GangCluster) -> None:
    cluster.add_gang("large", 40, constraint='{"preferred":{"topologies":[{"key":"acme.com/pod"}]}}')
    Leader(cluster).settle()

    assert "acme.com/pod" not in said(cluster, "GangRefused")[0]


def test_nodes_without_a_preferred_topology_are_used_and_kept_through_late_members_and_a_new_leader(
    cluster: GangCluster,
) -> None:
    """The gang is larger than a leaf, so it need not wait."""
    for number in range(4):
        cluster.add_node(f"plain-{number}")
    preferred = '{"preferred":{"topologies":[{"key":"railnet.io/leaf"}]},"relaxAfterSeconds":300}'
    owner = cluster.add_stateful_set("bert", 10, constraint=preferred)
    for rank in range(8):
        cluster.add_pod(f"bert-{rank}", "bert", owner=owner, constraint=preferred)
    cluster.add_gang("other", 2, constraint=None)
    Leader(cluster).settle()
    seats = {name: seat_of(pod) for name, pod in cluster.pods().items()}
    assert cluster.gated() == []
    assert len(set(seats.values())) == 10
    for name in ("bert-0", "bert-7"):
        assert bind(cluster, name)
    for rank in (8, 9):
        cluster.add_pod(f"bert-{rank}", "bert", owner=owner, constraint=preferred)
    Leader(cluster).settle()

    assert {name: seat_of(pod) for name, pod in cluster.pods().items() if name in seats} == seats
    assert len({seat_of(pod) for pod in cluster.pods().values()}) == 12
    for name in (*unbound(cluster, "bert"), *unbound(cluster, "other")):
        assert bind(cluster, name)


def test_event_of_a_waiting_gang_comes_once_a_minute_at_most(cluster: GangCluster) -> None:
    cluster.add_gang("large", 5)
    leader = Leader(cluster)
    leader.settle()
    for number in range(30):
        cluster.now += 2
        cluster.add_pod(f"other-{number}", f"other-{number}", least=1)
        leader.settle()

    assert len([1 for reason, about, _ in cluster.events if about == "Job/large"]) <= 2


def test_event_has_no_more_than_a_kilobyte_for_a_large_gang(cluster: GangCluster) -> None:
    long = "x" * 60
    key = ",".join(f'{{"key":"{long}.com/{long}-{number}"}}' for number in range(6))
    cluster.add_gang("large", 300, constraint=f'{{"required":{{"topologies":[{key}]}}}}', least=300)
    for number in range(200):
        cluster.change(
            f"large-{number}",
            lambda pod, number=number: pod["spec"]["containers"][0].update(
                resources={"requests": {f"{long}.com/{number}": "1"}}
            ),
        )
    Leader(cluster).settle()

    assert reasons(cluster)


def test_gang_of_too_many_different_pods_is_refused_and_another_one_gets_its_place(cluster: GangCluster) -> None:
    """For each different pod the room of all nodes was counted, several times in each pass: 3,000 made it take ten seconds."""
    cluster.add_gang("many", 257, least=257)
    for number in range(257):
        amounts = {"requests": {"memory": str(1000 + number)}}
        cluster.change(
            f"many-{number}", lambda pod, amounts=amounts: pod["spec"]["containers"][0].update(resources=amounts)
        )
    cluster.add_gang("other", 2)
    Leader(cluster).settle()

    (text,) = {text for reason, _, text in cluster.events if reason == "GangRefused"}
    assert "ask for more than 256 different sets of resources, selectors" in text
    assert "give the pods of one role the same ones" in text
    assert [name for name in cluster.gated() if not name.startswith("many-")] == []


def test_leader_that_was_gone_for_an_hour_finds_every_gated_pod(cluster: GangCluster) -> None:
    Leader(cluster).settle()
    for number in range(4):
        cluster.add_gang(f"gang-{number}", 2)
    cluster.now += 3600
    Leader(cluster).settle()

    assert cluster.gated() == []


def test_pods_of_no_gang_are_never_written(cluster: GangCluster) -> None:
    for number in range(3):
        cluster.add_pod(f"plain-{number}", "bert")
        cluster.change(
            f"plain-{number}", lambda pod: (pod["metadata"].update(labels={}), pod["spec"].pop("schedulingGates"))
        )
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()

    assert sorted(cluster.requests) == []
    assert len(cluster.nodes()) == 3
    cluster.add_gang("bert", 4)  # what plain pods hold counts
    leader.settle()
    assert set(cluster.leaves().values()) == {None, "b"}


def test_pod_of_a_gang_without_a_gate_is_left_alone(cluster: GangCluster) -> None:
    """It was created while the webhook was off: it is bound anywhere, and fixes the domain of those that are gated."""
    cluster.add_gang("bert", 3, least=3)
    cluster.change("bert-0", lambda pod: pod["spec"].pop("schedulingGates"))
    cluster.bind("bert-0", "b-2")
    Leader(cluster).settle()

    assert cluster.leaves() == {"bert-0": None, "bert-1": "b", "bert-2": "b"}


def test_others_follow_a_member_without_a_gate_that_is_about_to_be_bound(cluster: GangCluster) -> None:
    cluster.now = 605.0
    cluster.add_gang("bert", 3, least=3)
    cluster.change("bert-0", lambda pod: pod["spec"].pop("schedulingGates"))
    leader = Leader(cluster)
    again = leader.settle()
    assert cluster.gated() == ["bert-1", "bert-2"]
    assert again == pytest.approx(5.0)
    cluster.bind("bert-0", "b-2")
    leader.settle()

    assert cluster.leaves() == {"bert-0": None, "bert-1": "b", "bert-2": "b"}


def test_gang_does_not_wait_for_ever_for_a_member_without_a_gate(cluster: GangCluster) -> None:
    cluster.now = 605.0
    cluster.add_gang("bert", 3, least=3)
    cluster.change("bert-0", lambda pod: pod["spec"].update(schedulingGates=[{"name": "others.io/quota"}]))
    leader = Leader(cluster)
    leader.settle()
    cluster.now += 6
    leader.settle()

    assert cluster.gated() == []


def test_pass_that_fails_is_made_again(cluster: GangCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it had decided before it failed was never asked of the API server."""
    cluster.add_gang("bert", 2)
    cluster.add_pod("stray", "stray")
    cluster.change("stray", lambda pod: pod["metadata"].update(labels={}))
    leader = Leader(cluster)
    leader.learn()

    def fail(*_: object) -> None:
        raise RuntimeError("in the middle of a pass")

    with monkeypatch.context() as patched:
        patched.setattr(planning, "schedule", fail)
        with pytest.raises(RuntimeError):
            leader.look()
    leader.settle()

    assert cluster.gated() == []


def test_what_cannot_happen_to_a_gang_is_logged_once_and_stops_no_other_gang(
    cluster: GangCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pair = GangState.WAITING, GangEvent.CONTRADICTORY
    monkeypatch.delitem(LIFE_CYCLE, pair)
    for name in ("ant", "bee"):
        cluster.add_gang(name, 2, least=2)
        cluster.add_pod(f"{name}-2", name, least=3)
    cluster.add_gang("cat", 2)
    leader = Leader(cluster)
    leader.impossible.add(pair)
    for _ in range(2):
        leader.settle()
        cluster.now += 31

    assert cluster.gated() == ["ant-0", "ant-1", "ant-2", "bee-0", "bee-1", "bee-2"]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "gang ml/ant: the event CONTRADICTORY is impossible in the state WAITING, so the gang stays as it is; report this error"
    ]


def test_gang_to_which_something_impossible_happens_keeps_its_places(
    cluster: GangCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler may bind its placed members at any moment, and it does not give way either."""
    pair = GangState.PLACED, GangEvent.CONTRADICTORY
    monkeypatch.delitem(LIFE_CYCLE, pair)
    cluster.add_gang("bert", 4, priority=1, least=4)
    leader = Leader(cluster)
    leader.impossible.add(pair)
    leader.settle()
    (leaf,) = set(cluster.leaves().values())
    cluster.add_pod("bert-4", "bert", priority=1, least=5)
    for number in range(4):
        for other in {"a", "b"} - {leaf}:
            take(cluster, f"{other}-{number}")
    cluster.add_gang("high", 4, priority=10)
    leader.settle()
    placed = [seat.node for seat in leader.gangs._planning.observed.cluster.seats(("ml", "bert"))]

    assert sorted(placed) == [f"{leaf}-{number}" for number in range(4)]
    assert cluster.gated() == ["bert-4", "high-0", "high-1", "high-2", "high-3"]
    assert cluster.requests["create pods"] == 0
    monkeypatch.undo()
    leader.settle()
    assert cluster.requests["create pods"] == 4


def test_clock_that_is_behind_that_of_the_api_server_delays_no_gang(cluster: GangCluster) -> None:
    """A member that was created without the gate is waited for while it is young; it seems to be created an hour from now."""
    cluster.add_gang("bert", 4, created="1970-01-01T01:16:40Z")
    cluster.change("bert-0", lambda pod: pod["spec"].pop("schedulingGates"))
    cluster.now = 1000.0
    leader = Leader(cluster)
    for _ in range(3):
        leader.settle()
        cluster.now += 31

    assert cluster.gated() == []
