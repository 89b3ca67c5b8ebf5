"""The controller of addresses that stay with a rank: the table, the pods' annotations, leaders that change, and what is said."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_network
from random import Random
from typing import Any

import pytest

from railnet.apiserver.client import Conflict, RequestFailed, TooLarge
from railnet.apiserver.request import Request
from railnet.controllers import sticky_table
from railnet.objects.pod_name import PodName
from railnet.vf.permitted_networks import Limit, Network, Networks, StickyIpam
from tests.railnet.controllers.sticky_cluster import TABLE, Cluster, Leader, job, table


def networks(range_: str = "10.58.0.0/24", rails: int = 1) -> Networks:
    staying = Network("staying", ipam=StickyIpam(ip_network(range_), rails))
    return Networks({"default": Network(), "staying": staying}, {"*": Limit(("default", "staying"))})


def a_leader(cluster: Cluster, range_: str = "10.58.0.0/24", rails: int = 1) -> Leader:
    return Leader(cluster, networks(range_, rails))


def test_each_rank_gets_an_address_and_the_table_is_written_before_the_pods() -> None:
    cluster = Cluster()
    root = cluster.make_job("mnist")
    for rank in range(3):
        cluster.make_pod(f"mnist-{rank}", rank, root)
    order: list[str] = []
    cluster.interfere = lambda request: order.append(f"{request.verb.right} {request.about.resource}")  # type: ignore[func-returns-value]
    leader = a_leader(cluster)

    assert leader.work() is None
    assert cluster.net1() == {f"mnist-{rank}": f"10.58.0.{rank + 1}/24" for rank in range(3)}
    assert order[-4:] == ["create configmaps", *["patch pods"] * 3]
    assert table(cluster) == {"mnist": {"worker-0": 1, "worker-1": 2, "worker-2": 3}}


def test_nothing_is_asked_at_rest() -> None:
    cluster = Cluster()
    cluster.make_pod("mnist-0", 0, cluster.make_job("mnist"))
    leader = a_leader(cluster)
    leader.work()
    cluster.requests.clear()

    assert [leader.work() for _ in range(3)] == [None] * 3
    assert not cluster.requests


def test_pod_that_is_made_again_has_the_same_address_under_another_leader() -> None:
    cluster = Cluster()
    root = cluster.make_job("mnist")
    for rank in range(3):
        cluster.make_pod(f"mnist-{rank}", rank, root)
    a_leader(cluster).work()
    for rank in range(3):
        del cluster.objects[f"/api/v1/namespaces/ml/pods/mnist-{rank}"]
    other = cluster.make_job("other")
    cluster.make_pod("other-0", 0, other, job="other")
    cluster.make_pod("again-1", 1, root)
    a_leader(cluster).work()

    assert cluster.net1() == {"again-1": "10.58.0.2/24", "other-0": "10.58.0.4/24"}


def test_owner_that_is_too_large_to_be_read_costs_no_other_job_its_addresses() -> None:
    """The look at all jobs failed, and was tried again without end."""
    cluster = Cluster()
    cluster.make_pod("mnist-0", 0, cluster.make_job("mnist"))
    hostile = cluster.make_job("huge", namespace="hostile")
    cluster.make_pod("huge-0", 0, hostile, namespace="hostile", job="huge")

    def interfere(request: Request) -> None:
        if str(request) == "get jobs/huge in namespace hostile":
            raise TooLarge("the answer has more than 20971520 bytes")

    cluster.interfere = interfere
    a_leader(cluster).work()

    assert cluster.net1()["mnist-0"] is not None


def test_each_vf_of_a_pod_gets_an_address_in_its_part_of_the_range() -> None:
    cluster = Cluster()
    cluster.make_pod("mnist-0", 0, cluster.make_job("mnist"), vfs=2)
    a_leader(cluster, "10.58.0.0/16", 2).work()

    assert cluster.net1() == {"mnist-0": "10.58.0.1/17,10.58.128.1/17"}


def test_numbers_are_released_when_the_root_is_gone() -> None:
    cluster = Cluster()
    cluster.make_pod("mnist-0", 0, cluster.make_job("mnist"))
    leader = a_leader(cluster)
    leader.work()
    del cluster.objects["/api/v1/namespaces/ml/pods/mnist-0"]
    leader.work()
    kept = table(cluster)
    cluster.objects["/apis/batch/v1/namespaces/ml/jobs/mnist"]["metadata"]["deletionTimestamp"] = "now"
    second = a_leader(cluster)
    again = second.work()
    del cluster.objects["/apis/batch/v1/namespaces/ml/jobs/mnist"]
    second.work()

    assert kept == {"mnist": {"worker-0": 1}}
    assert again == 2.0
    assert table(cluster) == {}


def test_root_of_the_same_name_and_another_uid_begins_anew() -> None:
    cluster = Cluster()
    cluster.make_pod("mnist-0", 0, cluster.make_job("mnist"))
    a_leader(cluster).work()
    cluster.make_pod("mnist-0", 0, cluster.make_job("mnist", "another"), uid="another-pod")
    leader = a_leader(cluster)
    leader.work()

    assert json.loads(cluster.objects[TABLE]["data"]["staying"])["root"]["uid"] == "another"


def test_pods_without_a_root_keep_their_numbers_while_one_of_them_is_there() -> None:
    cluster = Cluster()
    for rank in range(2):
        cluster.make_pod(f"mnist-{rank}", rank, None)
    leader = a_leader(cluster)
    leader.work()
    del cluster.objects["/api/v1/namespaces/ml/pods/mnist-1"]
    leader.work()
    one_there = table(cluster)
    del cluster.objects["/api/v1/namespaces/ml/pods/mnist-0"]
    leader.work()

    assert one_there == {"mnist": {"worker-0": 1, "worker-1": 2}}
    assert table(cluster) == {}


def test_exhausted_range_is_said_on_the_root_and_ends_when_a_deleted_job_leaves_its_numbers() -> None:
    cluster = Cluster()
    finished = cluster.make_job("finished")
    for rank in range(5):
        cluster.make_pod(f"finished-{rank}", rank, finished, job="finished")
    leader = a_leader(cluster, "10.58.0.0/29")
    leader.work()
    for rank in range(5):
        del cluster.objects[f"/api/v1/namespaces/ml/pods/finished-{rank}"]
    leader.work()  # the root is there, and is not asked about again
    root = cluster.make_job("mnist")
    for rank in range(2):
        cluster.make_pod(f"mnist-{rank}", rank, root)
    again = leader.work()
    short = dict(cluster.net1())
    del cluster.objects["/apis/batch/v1/namespaces/ml/jobs/finished"]
    leader.now = 61.0
    leader.work()

    assert again == 60.0
    assert short == {"mnist-0": "10.58.0.6/29", "mnist-1": None}
    assert leader.events == [
        (
            "StickyAddressesExhausted",
            "Job/mnist",
            (
                "all 6 addresses of network 'staying' are assigned, so pods of this job wait; delete jobs that have ended, or have the "
                "administrator enlarge networks.staying.ipam.range"
            ),
        )
    ]
    assert cluster.net1() == {"mnist-0": "10.58.0.6/29", "mnist-1": "10.58.0.1/29"}


def hostile(cluster: Cluster, leader: Leader, ranks: int, namespace: str = "attacker") -> None:
    """Have a tenant with a quota of one pod make a pod for each rank of a job, one after another; the job stays."""
    root = cluster.make_job("hoard", f"uid-of-hoard-in-{namespace}", namespace)
    for rank in range(ranks):
        cluster.make_pod("only", rank, root, job="hoard", namespace=namespace, uid=f"uid-{rank}")
        leader.work()
        del cluster.objects[f"/api/v1/namespaces/{namespace}/pods/only"]
    leader.work()


def test_tenant_with_a_quota_of_one_pod_takes_no_address_that_another_tenant_needs() -> None:
    cluster = Cluster()
    leader = a_leader(cluster, "10.58.0.0/28")
    hostile(cluster, leader, 20)
    held = sum(map(len, table(cluster).values()))
    root = cluster.make_job("mnist")
    for rank in range(10):
        cluster.make_pod(f"mnist-{rank}", rank, root)
    leader.work()

    assert held == 14
    assert len(set(cluster.net1().values())) == 10
    assert None not in cluster.net1().values()
    assert "Job/mnist" not in [about for _, about, _ in leader.events]


def test_job_that_is_made_again_keeps_its_addresses_beside_a_tenant_that_takes_all() -> None:
    cluster = Cluster()
    leader = a_leader(cluster, "10.58.0.0/28")
    root = cluster.make_job("mnist")
    for rank in range(3):
        cluster.make_pod(f"mnist-{rank}", rank, root)
    leader.work()
    before = dict(cluster.net1())
    for rank in range(3):
        del cluster.objects[f"/api/v1/namespaces/ml/pods/mnist-{rank}"]
    hostile(cluster, leader, 30)
    leader.now = 500.0
    hostile(cluster, leader, 60)
    for rank in range(3):
        cluster.make_pod(f"mnist-{rank}", rank, root)
    leader.work()

    assert dict(cluster.net1()) == before


def test_ranks_without_a_pod_for_long_give_their_addresses_back_when_addresses_are_short() -> None:
    cluster = Cluster()
    leader = a_leader(cluster, "10.58.0.0/28")
    old, waits = cluster.make_job("old"), cluster.make_job("mnist")
    for rank in range(14):
        cluster.make_pod(f"old-{rank}", rank, old, job="old")
    leader.work()
    for rank in range(2, 14):
        del cluster.objects[f"/api/v1/namespaces/ml/pods/old-{rank}"]
    leader.work()
    for rank in range(3):
        cluster.make_pod(f"mnist-{rank}", rank, waits)
    leader.now = 599.0
    leader.work()
    short = dict(cluster.net1())
    leader.now = 601.0
    leader.work()

    assert short["mnist-0"] is None
    assert {name: address for name, address in cluster.net1().items() if name.startswith("old")} == {
        "old-0": "10.58.0.1/28",
        "old-1": "10.58.0.2/28",
    }
    assert len({cluster.net1()[f"mnist-{rank}"] for rank in range(3)} - {None}) == 3
    assert len(table(cluster)["old"]) == 11  # no more than are needed


def test_ranks_without_a_pod_keep_their_addresses_while_others_are_free() -> None:
    cluster = Cluster()
    leader = a_leader(cluster, "10.58.0.0/24")
    hostile(cluster, leader, 100)
    leader.now = 1_000_000.0
    cluster.make_pod("mnist-0", 0, cluster.make_job("mnist"))
    leader.work()

    assert len(table(cluster)["hoard"]) == 100


def test_address_of_a_running_pod_that_is_sticky_no_longer_is_given_to_no_other_pod() -> None:
    cluster = Cluster()
    leader = a_leader(cluster, "10.58.0.0/30")
    root = cluster.make_job("hoard", namespace="attacker")
    for rank in range(2):
        cluster.make_pod(f"hoard-{rank}", rank, root, job="hoard", namespace="attacker")
    leader.work()
    for path in [path for path in cluster.objects if "/pods/hoard" in path]:
        del cluster.objects[path]["metadata"]["annotations"]["railnet.io/sticky"]
    leader.learn()
    leader.now = 10_000.0
    cluster.make_pod("mnist-0", 0, cluster.make_job("mnist"))
    leader.work()

    assert cluster.net1()["mnist-0"] is None


def test_table_that_is_full_of_ranks_without_a_pod_has_room_for_another_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sticky_table, "MOST_BYTES", 4000)
    cluster = Cluster()
    leader = a_leader(cluster, "10.58.0.0/16")
    for number in range(40):
        name = f"a-very-long-name-of-a-job-{number}"
        root = cluster.make_job(name, namespace="attacker")
        cluster.make_pod("only", 0, root, job=name, namespace="attacker", uid=f"uid-{number}")
        leader.work()
        del cluster.objects["/api/v1/namespaces/attacker/pods/only"]
    leader.work()
    root = cluster.make_job("mnist")
    for rank in range(20):
        cluster.make_pod(f"mnist-{rank}", rank, root)
    leader.work()

    assert None not in cluster.net1().values()
    assert sum(map(len, cluster.objects[TABLE]["data"].values())) <= 4000


def test_owner_reference_that_no_object_has_is_refused_and_is_not_in_the_table() -> None:
    cluster = Cluster()
    leader = a_leader(cluster)
    forged = {"apiVersion": "example.com/v1", "kind": "Job", "name": "x" * 900_000, "uid": "1", "controller": True}
    cluster.make_pod("hostile", 0, forged, job="hostile")
    cluster.make_pod("mnist-0", 0, cluster.make_job("mnist"))
    leader.work()

    assert cluster.net1() == {"hostile": None, "mnist-0": "10.58.0.1/24"}
    assert [event[:2] for event in leader.events] == [("StickyAddressRefused", "Pod/hostile")]


def test_tenant_with_many_jobs_without_pods_has_few_of_them_asked_for_in_one_look() -> None:
    cluster = Cluster()
    leader = a_leader(cluster, "10.58.0.0/16")
    roots = [cluster.make_job(f"job-{number}", namespace="attacker") for number in range(500)]
    for root in roots:
        cluster.make_pod(root["name"], 0, root, job=root["name"], namespace="attacker")
    leader.work()
    for path in [path for path in cluster.objects if "/attacker/pods/" in path]:
        del cluster.objects[path]
    cluster.requests.clear()
    asked = []
    for _ in range(4):
        again = leader.work()
        asked.append((cluster.requests["get jobs"], again))

    assert asked == [(200, 2.0), (400, 2.0), (500, None), (500, None)]


def test_job_that_has_just_been_deleted_leaves_its_numbers_to_the_pods_that_need_them_at_once() -> None:
    cluster = Cluster()
    finished = cluster.make_job("finished")
    for rank in range(6):
        cluster.make_pod(f"finished-{rank}", rank, finished, job="finished")
    leader = a_leader(cluster, "10.58.0.0/29")
    leader.work()
    for rank in range(6):
        del cluster.objects[f"/api/v1/namespaces/ml/pods/finished-{rank}"]
    leader.work()
    del cluster.objects["/apis/batch/v1/namespaces/ml/jobs/finished"]
    cluster.make_pod("mnist-0", 0, cluster.make_job("mnist"))

    assert leader.work() is None
    assert cluster.net1() == {"mnist-0": "10.58.0.1/29"}


def test_second_pod_of_a_rank_waits_until_the_first_is_gone() -> None:
    cluster = Cluster()
    root = cluster.make_job("mnist")
    cluster.make_pod("mnist-a", 0, root)
    leader = a_leader(cluster)
    leader.work()
    cluster.objects["/api/v1/namespaces/ml/pods/mnist-a"]["metadata"]["deletionTimestamp"] = "now"
    cluster.make_pod("mnist-b", 0, root)
    leader.work()
    both = dict(cluster.net1())
    del cluster.objects["/api/v1/namespaces/ml/pods/mnist-a"]
    leader.work()

    assert both == {"mnist-a": "10.58.0.1/24", "mnist-b": None}
    assert leader.events == [
        (
            "StickyAddressInUse",
            "Job/mnist",
            (
                "pod mnist-b waits, because pod mnist-a has the address of worker-0: it is being deleted; if its node node-a is gone for "
                "good, delete the pod with --force"
            ),
        )
    ]
    assert cluster.net1() == {"mnist-b": "10.58.0.1/24"}


def test_pod_that_has_ended_leaves_the_address_to_its_successor() -> None:
    cluster = Cluster()
    root = cluster.make_job("mnist")
    cluster.make_pod("mnist-a", 0, root)
    leader = a_leader(cluster)
    leader.work()
    cluster.objects["/api/v1/namespaces/ml/pods/mnist-a"]["status"]["phase"] = "Failed"
    cluster.make_pod("mnist-b", 0, root)
    leader.work()

    assert cluster.net1()["mnist-b"] == "10.58.0.1/24"
    assert not leader.events


@pytest.mark.parametrize(
    ("rank", "fields", "words"),
    [
        (None, {}, "the pod has no rank that an address could stay with"),
        (0, {"vfs": 2}, "the pod has 2 VFs, and network 'staying' has addresses for 1"),
        (0, {"annotations": {"railnet.io/sticky": "yes"}}, "railnet.io/sticky is 'yes'"),
        (0, {"annotations": {"railnet.io/network": "default"}}, "network 'default' has no addresses that stay"),
    ],
)
def test_pod_that_can_have_no_such_address_is_told_why(rank: int | None, fields: dict[str, Any], words: str) -> None:
    cluster = Cluster()
    cluster.make_pod("mnist-0", rank, cluster.make_job("mnist"), **fields)
    leader = a_leader(cluster)
    leader.work()

    ((reason, about, text),) = leader.events
    assert (reason, about) == ("StickyAddressRefused", "Pod/mnist-0")
    assert words in text
    assert cluster.net1() == {"mnist-0": None}


def test_annotation_that_was_changed_is_corrected_and_a_pod_that_started_with_it_is_named() -> None:
    cluster = Cluster()
    root = cluster.make_job("mnist")
    cluster.make_pod("mnist-0", 0, root)
    leader = a_leader(cluster)
    leader.work()
    leader.work()
    status = [{"name": "railnet/staying", "interface": "net1", "ips": ["10.58.0.9"]}]
    found = cluster.objects["/api/v1/namespaces/ml/pods/mnist-0"]["metadata"]["annotations"]
    found |= {"railnet.io/net1-ip": "10.58.0.9/24", "k8s.v1.cni.cncf.io/network-status": json.dumps(status)}
    cluster.make_pod("mnist-1", 1, root)
    leader.work()

    assert cluster.net1() == {"mnist-0": "10.58.0.1/24", "mnist-1": "10.58.0.2/24"}
    assert leader.reasons() == ["StickyAddressDiffers"]


def test_pod_that_became_another_one_of_the_same_name_is_not_annotated_with_the_first_ones_address() -> None:
    cluster = Cluster()
    cluster.make_pod("mnist-0", 3, cluster.make_job("mnist"))
    leader = a_leader(cluster)
    leader.learn()
    leader.look()
    cluster.make_pod("mnist-0", 0, None, uid="another")
    leader.annotate()

    assert cluster.net1() == {"mnist-0": None}


def test_table_that_was_changed_by_hand_stops_nothing_else_and_says_what_to_do() -> None:
    cluster = Cluster()
    cluster.put(TABLE, {"metadata": {"name": "railnet-sticky-addresses"}, "data": {"staying": "{\n"}})
    leader = a_leader(cluster)

    assert leader.work() == 60.0
    assert "line 1 of staying" in leader.sticky.trouble
    assert "delete the ConfigMap" in leader.sticky.trouble


def test_deleted_table_comes_back_from_the_pods() -> None:
    cluster = Cluster()
    root = cluster.make_job("mnist")
    for rank in range(3):
        cluster.make_pod(f"mnist-{rank}", rank, root)
    a_leader(cluster).work()
    del cluster.objects[TABLE]
    del cluster.objects["/api/v1/namespaces/ml/pods/mnist-0"]
    a_leader(cluster).work()

    assert table(cluster) == {"mnist": {"worker-1": 2, "worker-2": 3}}


def test_table_beyond_the_size_of_an_object_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.make_pod("mnist-0", 0, cluster.make_job("mnist"))
    monkeypatch.setattr("railnet.controllers.sticky_table.MOST_BYTES", 100)
    leader = a_leader(cluster)
    leader.work()

    assert leader.reasons() == ["StickyAddressesExhausted"]
    assert "create configmaps" not in cluster.requests
    assert cluster.net1() == {"mnist-0": None}


class Disorder:
    """Two leaders at once, jobs that come and go, writes that are refused, and answers that are lost."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - the same order in every run
        self.cluster = Cluster()
        self.cluster.interfere = self.interfere
        self.leaders = [self.a_leader() for _ in range(2)]
        self.step = 0
        self.of_rank: dict[tuple[str, str], str] = {}

    def a_leader(self) -> Leader:
        return a_leader(self.cluster, "10.58.0.0/28")

    def interfere(self, request: Request) -> None:
        chance = self.random.random()
        if request.verb.right == "get" or chance > 0.4:
            return
        if chance < 0.2:
            self.cluster.interfere = lambda request: None
            try:
                self.cluster.send(request)
            finally:
                self.cluster.interfere = self.interfere
        raise RequestFailed("no answer")

    def act(self) -> None:
        self.step += 1
        actions = [self.come, self.come, self.go, self.end, self.learn, self.look, self.look, self.annotate]
        self.random.choice(actions)()
        self.check()

    def come(self) -> None:
        name = self.random.choice("abc")
        path = f"/apis/batch/v1/namespaces/ml/jobs/{name}"
        if path not in self.cluster.objects:
            self.cluster.make_job(name, f"{name}{self.step}")
        root = job(name, self.cluster.objects[path]["metadata"]["uid"])
        self.cluster.make_pod(f"{name}-{self.step}", self.random.randrange(4), root, job=name)

    def go(self) -> None:
        pods = [path for path in self.cluster.objects if "/pods/" in path]
        if pods:
            del self.cluster.objects[self.random.choice(pods)]

    def end(self) -> None:
        name = self.random.choice("abc")
        if self.random.random() < 0.3:
            for path in list(self.cluster.objects):
                if f"/pods/{name}-" in path or path.endswith(f"/jobs/{name}"):
                    del self.cluster.objects[path]

    def learn(self) -> None:
        self.random.choice(self.leaders).learn()

    def look(self) -> None:
        with suppress(RequestFailed):
            self.random.choice(self.leaders).look()

    def annotate(self) -> None:
        number = self.random.randrange(2)
        try:
            self.leaders[number].annotate()
        except RequestFailed:
            self.leaders[number] = self.a_leader()  # the leader has ended in the middle of its writes

    def check(self) -> None:
        """No address is two pods', and no rank gets a second address while its root is there."""
        pods = [pod for pod in self.cluster.pods() if "railnet.io/net1-ip" in pod.annotations]
        found = [pod.annotations["railnet.io/net1-ip"] for pod in pods]
        assert len(found) == len(set(found))
        for pod, address in zip(pods, found, strict=True):
            assert pod.owner is not None
            assert self.of_rank.setdefault((pod.owner.uid, f"{pod.rank}"), address) == address


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_two_leaders_at_once_that_fail_at_any_write_never_give_two_pods_one_address(seed: int) -> None:
    disorder = Disorder(seed)
    for _ in range(80):
        disorder.act()
    disorder.cluster.interfere = lambda request: None
    disorder.a_leader().work()
    disorder.check()

    ranks = {(pod.owner, pod.rank) for pod in disorder.cluster.pods()}
    assert len({text for text in disorder.cluster.net1().values() if text}) == len(ranks)


def test_refused_write_of_the_table_gives_nothing_and_the_table_is_read_again() -> None:
    cluster = Cluster()
    root = cluster.make_job("mnist")
    cluster.make_pod("mnist-0", 0, root)
    first, second = a_leader(cluster), a_leader(cluster)
    first.work()
    second.learn()
    second.look()
    other = cluster.make_job("other")
    cluster.make_pod("other-0", 0, other, job="other")
    first.work()
    cluster.make_pod("mnist-1", 1, root)
    second._known = {pod.name: pod for pod in second.pods.of(second.pods.jobs()[0])}
    del cluster.objects["/api/v1/namespaces/ml/pods/other-0"]
    second.learn()
    with pytest.raises(Conflict):
        second.look()
    second.annotate()
    refused = dict(cluster.net1())
    second.work()

    assert refused == {"mnist-0": "10.58.0.1/24", "mnist-1": None}
    assert cluster.net1()["mnist-1"] == "10.58.0.3/24"


@pytest.mark.slow
def test_thousand_pods_cost_one_write_of_the_table_and_one_patch_each(measured: Callable[[str], None]) -> None:
    cluster = Cluster()
    root = cluster.make_job("mnist")
    for rank in range(1000):
        cluster.make_pod(f"mnist-{rank}", rank, root)
    leader = a_leader(cluster, "10.58.0.0/16")
    leader.learn()
    began = time.perf_counter()
    leader.look()
    looked = time.perf_counter() - began
    leader.annotate()
    leader.learn()
    began = time.perf_counter()
    leader.look()
    measured(
        f"1,000 pods: {1000 * looked:.0f} ms for the table, {1000 * (time.perf_counter() - began):.0f} ms when nothing is to do"
    )

    expected = {"get configmaps": 1, "get jobs": 1, "create configmaps": 1, "patch pods": 1000}
    assert dict(cluster.requests) == expected
    assert len(set(cluster.net1().values())) == 1000


def test_pod_is_annotated_once_though_the_table_is_looked_at_while_its_write_is_on_the_way() -> None:
    cluster = Cluster()
    cluster.make_pod("mnist-0", 0, cluster.make_job("mnist"))
    leader = a_leader(cluster)
    leader.learn()
    leader.look()

    def look_meanwhile(request: Request) -> None:
        if request.verb.right == "patch":
            leader.look()

    cluster.interfere = look_meanwhile
    leader.annotate()

    assert cluster.requests["patch pods"] == 1
    assert cluster.net1() == {"mnist-0": "10.58.0.1/24"}


def test_address_of_a_gated_pod_is_left_to_the_patch_that_removes_the_gate() -> None:
    cluster = Cluster()
    root = cluster.make_job("mnist")
    gates = {"schedulingGates": [{"name": "railnet.io/gang"}]}
    pods = [cluster.make_pod(f"mnist-{rank}", rank, root, spec=gates) for rank in range(2)]
    leader = Leader(cluster, networks(), gangs=True)
    leader.work()
    names = [PodName("ml", pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in pods]

    assert [leader.sticky.due(name) for name in names] == ["10.58.0.1/24", "10.58.0.2/24"]
    assert cluster.requests["patch pods"] == 0

    # The gate of one is removed with the annotation, that of the other without it.
    cluster.make_pod("mnist-0", 0, root, annotations={"railnet.io/net1-ip": "10.58.0.1/24"})
    cluster.make_pod("mnist-1", 1, root)
    leader.work()

    assert cluster.net1() == {"mnist-0": "10.58.0.1/24", "mnist-1": "10.58.0.2/24"}
    assert cluster.requests["patch pods"] == 1
    assert leader.sticky.due(names[0]) is None


def test_gated_pod_is_annotated_at_once_where_no_controller_places_gangs() -> None:
    cluster = Cluster()
    gates = {"schedulingGates": [{"name": "railnet.io/gang"}]}
    cluster.make_pod("mnist-0", 0, cluster.make_job("mnist"), spec=gates)
    a_leader(cluster).work()

    assert cluster.net1() == {"mnist-0": "10.58.0.1/24"}


def test_annotation_that_is_removed_after_each_write_is_left_alone_and_the_pod_has_an_event() -> None:
    cluster = Cluster()
    root = cluster.make_job("mnist")
    leader = a_leader(cluster)
    for _ in range(30):
        cluster.make_pod("mnist-0", 0, root)
        leader.work()
        leader.look()
    cluster.make_pod("mnist-1", 1, root)
    leader.work()

    assert cluster.requests["patch pods"] == 11
    assert cluster.net1()["mnist-1"] == "10.58.0.2/24"
    assert leader.sticky.left_out >= 20
    assert [event[:2] for event in leader.events] == [("StickyAddressLeftAlone", "Pod/mnist-0")]
