"""Which names a job's pods have on net1, and which slices their records are in."""

import json
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.controllers.net1_names import wanted_net1_records
from railnet.controllers.net1_names.wanted_net1_records import EndpointSlice, Family, Names, Net1Record
from railnet.controllers.training_pod import Job, TrainingPod
from railnet.objects.network_status import ANNOTATION
from railnet.objects.owner_reference import OwnerReference
from railnet.vf.permitted_networks import Limit, Network, Networks, NoIpam, PluginIpam, StaticIpam, StickyIpam
from tests.railnet.controllers.builders import training

JOB = Job("ml", "mnist")
OWNER = OwnerReference("batch/v1", "Job", "mnist", "uid-of-mnist")
TASK = {"annotations": {"railnet.io/names": "task"}}
PLUGIN = {"type": "whereabouts", "ipRanges": [{"range": "10.56.0.0/16"}, {"range": "fd00::/64"}]}
NETWORKS = Networks(
    {
        "default": Network(ipam=PluginIpam(PLUGIN)),
        "static": Network("static", ipam=StaticIpam(ip_network("10.60.0.0/16"))),
        "staying": Network("staying", ipam=StickyIpam(IPv4Network("10.58.0.0/16"))),
        "verbs": Network("verbs", ipam=NoIpam()),
        "any": Network("any", ipam=StaticIpam()),
        "dhcp": Network("dhcp", ipam=PluginIpam({"type": "dhcp"})),
        "leased": Network("leased", ipam=PluginIpam({"type": "host-local", "ranges": [[{"subnet": "10.61.3.0/24"}]]})),
        "dashed": Network("dashed", ipam=PluginIpam({"type": "whereabouts", "range": "10.62.0.9-10.62.0.20/16"})),
    },
    {
        "*": Limit(("default",)),
        "ml": Limit(("default", "static", "staying", "verbs"), static=True),
        "trusted": Limit(("any", "dhcp", "leased"), static=True),
    },
)


def names(pods: Sequence[TrainingPod], owner: OwnerReference | None = OWNER) -> list[Names]:
    members = addressed(pods)
    found, refused = wanted_net1_records.wanted(members, owner)
    assert refused == []
    return found


def addressed(pods: Iterable[TrainingPod]) -> list[TrainingPod]:
    members, refused = wanted_net1_records.addressed(wanted_net1_records.members(pods), NETWORKS)
    assert refused == []
    return members


def refusal(pod: TrainingPod) -> str:
    """Return why a pod has no name on net1."""
    members, refused = wanted_net1_records.addressed(wanted_net1_records.members([pod]), NETWORKS)
    assert members == []
    (one,) = refused
    assert one.pod == pod
    return one.text


def reported(network: str, *addresses: str, namespace: str = "ml", **annotations: str) -> TrainingPod:
    """Return a pod of which the annotation network-status names a network and addresses."""
    status = [{"name": f"railnet/{network}", "interface": "net1", "ips": list(addresses)}]
    annotations = {ANNOTATION: json.dumps(status), **annotations}
    return training("w-0", annotations=annotations, metadata={"namespace": namespace})


@pytest.mark.parametrize(
    ("network", "address", "namespace"),
    [
        ("default", "10.56.3.7", "ml"),
        ("default", "fd00::7", "ml"),
        ("static", "10.60.0.9", "ml"),
        ("staying", "10.58.0.9", "ml"),
        ("any", "192.168.7.9", "trusted"),
        ("dhcp", "192.168.7.9", "trusted"),
        ("leased", "10.61.4.9", "trusted"),
        ("dashed", "10.62.7.9", "ml"),
    ],
)
def test_address_of_a_configured_network_is_in_a_slice(network: str, address: str, namespace: str) -> None:
    assert [pod.addresses for pod in addressed([reported(network, address, namespace=namespace)])] == [(address,)]


@pytest.mark.parametrize("network", ["default", "static", "staying", "verbs", "dashed"])
@pytest.mark.parametrize("address", ["10.96.0.1", "8.8.8.8", "10.244.0.7", "2001:db8::1", "10.59.0.1"])
def test_address_outside_of_its_networks_ranges_is_refused(network: str, address: str) -> None:
    text = refusal(reported(network, address))

    assert f"address {address} is in no range of network '{network}', which has: " in text
    assert "k8s.v1.cni.cncf.io/network-status" in text


def test_address_of_the_other_family_outside_of_the_ranges_costs_the_pod_its_name() -> None:
    assert "address 2001:db8::1 is in no range" in refusal(reported("default", "10.56.0.1", "2001:db8::1"))


def test_network_that_is_not_configured_is_refused_with_what_to_do() -> None:
    text = refusal(reported("mine", "10.56.0.1"))

    assert "network 'mine' is not configured; have the administrator add it" in text


@pytest.mark.parametrize("network", ["any", "dhcp", "leased"])
def test_network_without_a_known_range_gives_names_only_where_the_limit_names_it(network: str) -> None:
    assert f"may not use network '{network}'" in refusal(reported(network, "8.8.8.8"))
    assert "in the range of network 'staying'" in refusal(reported(network, "10.58.0.9", namespace="trusted"))


def test_pod_without_a_node_has_no_address_whatever_its_annotation_says() -> None:
    assert addressed([training("w-0", "10.56.0.1", node="")]) == []


def test_rails_of_a_second_network_give_no_address() -> None:
    status = [
        {"name": "railnet/default", "interface": "net1", "ips": []},
        {"name": "railnet/any", "interface": "net2", "ips": ["8.8.8.8"]},
    ]

    assert addressed([training("w-0", annotations={ANNOTATION: json.dumps(status)})]) == []


@pytest.mark.parametrize(
    ("annotations", "why"),
    [
        ({"railnet.io/net1-ip": "8.8.8.8/24"}, "does not use static addresses"),
        ({"railnet.io/net1-ip": "8.8.8.8/24", "railnet.io/network": "static"}, "not in the network's range"),
        ({"railnet.io/net1-ip": "8.8.8.8/24", "railnet.io/network": "any"}, "may not use network 'any'"),
        (
            {"railnet.io/net1-ip": "8.8.8.8/24", "railnet.io/network": "staying", "railnet.io/sticky": "true"},
            "not in the network's range",
        ),
    ],
    ids=["sliced", "static", "not permitted", "sticky"],
)
def test_address_that_an_author_writes_counts_only_where_the_node_would_give_it(
    annotations: dict[str, str], why: str
) -> None:
    assert why in refusal(training("w-0", annotations=annotations))


def slices(pods: Sequence[TrainingPod], before: Iterable[EndpointSlice] = ()) -> list[EndpointSlice]:
    return [one for of in names(pods) for one in wanted_net1_records.slices(of, before)]


def workers(numbers: Iterable[int]) -> list[TrainingPod]:
    return [training(f"w-{number:04d}", f"10.56.{number // 250}.{number % 250 + 1}") for number in numbers]


def test_each_member_has_a_record_with_its_hostname_and_its_address_on_net1() -> None:
    (job,) = names([training("mnist-worker-0", "10.56.0.1"), training("mnist-worker-1", "10.56.0.2", node="node-b")])

    assert (job.service.name, job.service.owner) == ("mnist-net1", OWNER)
    assert job.records == {
        Family.IPV4: (
            Net1Record("mnist-worker-0", "10.56.0.1", "mnist-worker-0", "uid-of-mnist-worker-0", "node-a"),
            Net1Record("mnist-worker-1", "10.56.0.2", "mnist-worker-1", "uid-of-mnist-worker-1", "node-b"),
        )
    }


def test_pods_without_an_address_on_net1_have_no_record() -> None:
    without = [
        training("waits"),
        training("on-the-host", "10.56.0.2", spec={"hostNetwork": True}),
        training("done", "10.56.0.3", phase="Succeeded"),
        training("failed", "10.56.0.4", phase="Failed"),
    ]

    assert wanted_net1_records.members(without) == []


def test_pod_that_leaves_or_is_not_ready_keeps_its_record() -> None:
    leaving = training("w-0", "10.56.0.1", metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"})

    assert len(names([leaving])[0].records[Family.IPV4]) == 1


def test_deleted_pod_has_no_record_when_no_container_runs() -> None:
    """Kubelet 1.20 lets go of the pod ten seconds later; until then its phase is Running."""
    ended, removed = (
        {"state": {"terminated": {"exitCode": 143}}},
        {"state": {"waiting": {"reason": "ContainerCreating"}}},
    )
    runs = {"state": {"running": {"startedAt": "2026-01-01T11:00:00Z"}}}
    deleted = {"deletionTimestamp": "2026-01-01T12:00:00Z"}
    states = [[ended, ended], [removed], [ended, runs], []]
    leaving = [training("w-0", "10.56.0.1", metadata=deleted, containerStatuses=one) for one in states]
    restarting = training("w-0", "10.56.0.1", containerStatuses=[ended])

    assert [len(wanted_net1_records.members([one])) for one in (*leaving, restarting)] == [0, 0, 1, 1, 1]


def test_address_that_an_annotation_gives_is_known_before_the_pod_starts() -> None:
    given_address = {"railnet.io/net1-ip": "10.60.9.1/24, 10.60.8.1/24", "railnet.io/network": "static"}
    before = training("w-0", annotations=given_address)
    after = reported("static", "10.60.0.1", **given_address)

    assert [names([one])[0].records[Family.IPV4][0].address for one in (before, after)] == ["10.60.9.1", "10.60.0.1"]


@pytest.mark.parametrize(
    "text", ["", "x", "127.0.0.1/8", "0.0.0.0/0", "fe80::1/64", "::ffff:10.0.0.1/96", "224.0.0.1/4"]
)
def test_address_that_no_endpoint_may_have_is_none(text: str) -> None:
    assert addressed([training("w-0", annotations={"railnet.io/net1-ip": text})]) == []


def test_addresses_of_both_families_are_in_slices_of_their_own() -> None:
    found = slices([training("w-0", "10.56.0.1", "fd00::1"), training("w-1", "fd00::2")])

    assert [(one.name, one.family, [record.address for record in one.records]) for one in found] == [
        ("mnist-net1-0", Family.IPV4, ["10.56.0.1"]),
        ("mnist-net1-v6-0", Family.IPV6, ["fd00::1", "fd00::2"]),
    ]


def test_thousand_members_have_one_service_and_ten_slices() -> None:
    pods = workers(range(1000))

    assert len(names(pods)) == 1
    assert [len(one.records) for one in slices(pods)] == [100] * 10


def test_change_of_a_pod_touches_one_slice() -> None:
    before = slices(workers(range(250)))
    moved = [*workers(range(120)), training("w-0120", "10.56.9.9", node="node-b"), *workers(range(121, 250))]

    assert changed(before, slices(moved, before)) == ["mnist-net1-1"]


def test_member_that_is_gone_is_replaced_in_its_slice_by_the_next_new_one() -> None:
    before = slices(workers(range(250)))
    fewer = slices([one for one in workers(range(250)) if one.name != "w-0007"], before)
    again = slices([one for one in workers(range(251)) if one.name != "w-0007"], fewer)

    assert changed(before, fewer) == changed(fewer, again) == ["mnist-net1-0"]


def changed(before: Iterable[EndpointSlice], after: Iterable[EndpointSlice]) -> list[str]:
    there = {one.name: one for one in before}
    return [one.name for one in after if there.get(one.name) != one]


def test_slice_without_members_is_not_wanted() -> None:
    before = slices(workers(range(150)))

    assert [one.name for one in slices(workers(range(100, 150)), before)] == ["mnist-net1-1"]


def test_long_or_dotted_names_are_cut_to_labels() -> None:
    (job,) = names([training("w.0", "10.56.0.1", job="j" * 100), training("w" * 100, "10.56.0.2", job="j" * 100)])
    labels = [record.hostname for record in job.records[Family.IPV4]]

    assert all(len(label) <= 63 and "." not in label for label in (job.service.name, *labels))
    assert len(set(labels)) == 2


def test_name_that_a_service_cannot_have_is_refused_in_words() -> None:
    found, refused = wanted_net1_records.wanted([training("w-0", "10.56.0.1", job="2nd.try")], OWNER)

    assert found == []
    assert [(one.pod, one.text) for one in refused] == [
        (None, "the job's name '2nd.try' cannot be a Service's, so its pods cannot have names on net1; rename the job")
    ]


def test_task_that_asks_for_it_has_a_service_of_its_own_without_a_hostname() -> None:
    of_job, of_task = names([training("w-x7f", "10.56.0.1", rank=3, **TASK), training("w-y", "10.56.0.2", rank=4)])

    assert len(of_job.records[Family.IPV4]) == 2
    assert (of_task.service.name, of_task.service.scope) == ("mnist-worker-3", "task")
    assert of_task.records == {Family.IPV4: (Net1Record("", "10.56.0.1", "w-x7f", "uid-of-w-x7f", "node-a"),)}


def test_task_has_the_address_of_the_successor_while_a_pod_leaves() -> None:
    leaving = training("w-a", "10.56.0.1", rank=0, metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"}, **TASK)
    successor = training("w-b", "10.56.0.2", rank=0, **TASK)

    assert [record.address for record in names([leaving])[1].records[Family.IPV4]] == ["10.56.0.1"]
    assert [record.address for record in names([leaving, successor])[1].records[Family.IPV4]] == ["10.56.0.2"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"annotations": {"railnet.io/names": "all"}}, "annotation railnet.io/names is 'all'; it can be 'task'"),
        (
            {**TASK, "rank": 0, "labels": {"railnet.io/role": "Master_1"}},
            "the task's name 'mnist-Master_1-0' cannot be a Service's",
        ),
        (TASK, "annotation railnet.io/names is 'task', but the pod has no rank"),
        ({**TASK, "labels": {"railnet.io/role": "net1"}}, "annotation railnet.io/names is 'task', but the pod has no"),
    ],
)
def test_task_without_a_possible_name_is_refused_and_its_pod_keeps_the_jobs(fields: dict[str, Any], text: str) -> None:
    found, refused = wanted_net1_records.wanted([training("w-0", "10.56.0.1", **fields)], OWNER)

    assert [one.service.name for one in found] == ["mnist-net1"]
    assert [one.pod and one.pod.name for one in refused] == ["w-0"]
    assert refused[0].text.startswith(text)


@pytest.mark.slow
@given(st.lists(st.sets(st.integers(0, 30), max_size=20), min_size=1, max_size=6))
def test_slices_have_each_record_once_and_stay_where_they_are(states: list[set[int]]) -> None:
    before: list[EndpointSlice] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wanted_net1_records, "_MOST_RECORDS", 4)
        for state in filter(None, states):
            after = slices(workers(sorted(state)), before)
            places = {record.pod: one.name for one in after for record in one.records}
            old = {record.pod: one.name for one in before for record in one.records}

            assert sorted(record.pod for one in after for record in one.records) == [
                f"w-{n:04d}" for n in sorted(state)
            ]
            assert all(0 < len(one.records) <= 4 for one in after)
            assert all(places[pod] == old[pod] for pod in places.keys() & old.keys())
            assert by_name(slices(workers(sorted(state)), after)) == by_name(after)
            before = after


@pytest.mark.slow
@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30), min_size=1), st.integers(0, 12))
def test_successor_of_a_leader_that_died_after_some_slices_decides_the_same(
    old: set[int], new: set[int], written: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wanted_net1_records, "_MOST_RECORDS", 4)
        before = slices(workers(sorted(old))) if old else []
        whole = slices(workers(sorted(new)), before)
        differing = [one for one in whole if one not in before][:written]
        partly = {one.name: one for one in (*before, *differing)}

        assert by_name(slices(workers(sorted(new)), partly.values())) == by_name(whole)


def by_name(found: Iterable[EndpointSlice]) -> dict[str, EndpointSlice]:
    return {one.name: one for one in found}
