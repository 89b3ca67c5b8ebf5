"""Pods as the API server reports them, reduced to what the controllers read: the golden pods, and annotations that anyone may have written."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.controllers.training_pod import Job, TrainingPod, training_pod
from railnet.errors import Misconfigured
from railnet.jobs.operators import OPERATORS, Part
from railnet.jobs.recogniser import RecognisedPod, recognise
from railnet.jobs.reported_pod import ReportedPod
from railnet.objects import pod as pods
from railnet.objects.owner_reference import OwnerReference
from tests.railnet.admission.goldens import GOLDENS, Golden
from tests.railnet.controllers.builders import training

NETWORK_STATUS = "k8s.v1.cni.cncf.io/network-status"


def created(golden: Golden) -> dict[str, Any]:
    """Return a golden pod as it is in the API server: it has a name and a UID."""
    metadata = golden.pod["metadata"]
    name = metadata.get("name") or f"{metadata['generateName']}x7k2p"
    return {**golden.pod, "metadata": {**metadata, "name": name, "uid": "0a1b"}}


def member_of(document: dict[str, Any]) -> RecognisedPod | None:
    try:
        return recognise(pods.parse(document), lambda _: False)
    except Misconfigured:
        return None


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.name)
def test_golden_pod_is_the_pod_of_its_job(golden: Golden) -> None:
    document = created(golden)

    found, member = training_pod(ReportedPod(document)), member_of(document)

    if member is None:
        assert found is None
        return
    assert found is not None
    assert (found.job, found.role, found.rank) == (Job(golden.namespace, member.job), member.role, member.rank)
    assert (found.part, found.size, found.operator) == (member.part, member.size, member.operator.name)
    assert (found.name, found.uid) == (document["metadata"]["name"], "0a1b")
    assert (found.phase, found.leaving, found.ended, found.addresses) == ("Pending", False, False, ())
    controllers = [one for one in document["metadata"].get("ownerReferences", ()) if one.get("controller")]
    assert found.owner == (
        OwnerReference(*(controllers[0][key] for key in ("apiVersion", "kind", "name", "uid"))) if controllers else None
    )


def test_every_operator_has_a_golden_pod_that_is_a_training_pod() -> None:
    found = [training_pod(ReportedPod(created(golden))) for golden in GOLDENS]

    assert {pod.operator for pod in found if pod is not None} == {operator.name for operator in OPERATORS}


# Written by hand after the labels in the golden files: job, role, rank, part.
KNOWN = {
    "any-pod/own-words": ("gpt", "stage-2", (7,), Part.TRAINS),
    "any-pod/statefulset": ("etl", "worker", (3,), Part.TRAINS),
    "indexed-job/gpu-namespace": ("train", "worker", (2,), Part.TRAINS),
    "jobset/jobset-second-job": ("slices", "workers", (2, 1), Part.TRAINS),
    "jobset/trainer-torch-node-3": ("ft", "node", (0, 3), Part.TRAINS),
    "kubedl/mpijob-launcher": ("resnet", "launcher", (0,), Part.LAUNCHES),
    "kubedl/tfjob-ps": ("mnist", "ps", (0,), Part.TRAINS),
    "kubeflow-training-operator/jaxjob-worker": ("spmd", "worker", (3,), Part.TRAINS),
    "kubeflow-training-operator/tfjob-evaluator": ("dist-mnist", "evaluator", (0,), Part.APART),
    "kuberay/head": ("bert", "headgroup", (), Part.APART),
    "kuberay/worker-multi-host": ("bert", "gpu-group", (1, 2), Part.TRAINS),
    "leaderworkerset/worker": ("vllm", "worker", (1, 1), Part.TRAINS),
    "mpi-operator/worker-beside-launcher": ("tensorflow-benchmarks", "worker", (1,), Part.TRAINS),
    "tensorflow-templates/ps-deployment-namespace": ("imagenet", "ps", (2,), Part.TRAINS),
    "volcano/mpi-worker": ("lm-mpi-job", "mpiworker", (1,), Part.TRAINS),
}


@pytest.mark.parametrize("name", KNOWN)
def test_golden_pod_has_the_place_that_its_labels_say(name: str) -> None:
    (golden,) = [one for one in GOLDENS if one.name == name]
    found = read(created(golden))

    assert (found.job.name, found.role, found.rank, found.part) == KNOWN[name]
    assert found.job.namespace == golden.namespace


def a_pod(annotations: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "train-0",
            "namespace": "ml",
            "uid": "u",
            "labels": {
                "batch.kubernetes.io/job-name": "train",
                "batch.kubernetes.io/job-completion-index": "0",
                "other": "kept",
            },
            "annotations": annotations or {},
        },
        "spec": {"containers": [{"name": "main"}], "nodeName": "node-1"},
        "status": status,
    }


def read(document: dict[str, Any]) -> TrainingPod:
    found = training_pod(ReportedPod(document))
    assert found is not None
    return found


def addresses(status: object) -> tuple[str, ...]:
    return read(a_pod({NETWORK_STATUS: status if isinstance(status, str) else json.dumps(status)})).addresses


def rail(interface: object, *ips: object, name: object = "railnet/ib") -> dict[str, object]:
    return {"name": name, "interface": interface, "ips": list(ips)}


def test_addresses_are_those_of_the_rails_in_their_order() -> None:
    primary = {"name": "cbr0", "interface": "eth0", "ips": ["10.244.0.9"], "default": True}

    assert addresses([]) == addresses("") == addresses([primary]) == ()
    assert addresses([primary, rail("net10", "10.0.10.1"), rail("net2", "10.0.2.1"), rail("net1", "10.0.1.1")]) == (
        "10.0.1.1",
        "10.0.2.1",
        "10.0.10.1",
    )
    assert addresses([rail("net1", "10.0.1.1", "FD00::0:1")]) == ("10.0.1.1", "fd00::1")
    assert addresses([rail("net1"), {"name": "railnet/b", "interface": "net2"}]) == ()


STRANGE = [
    "0.0.0.0",  # noqa: S104 - no address to bind
    "::",
    "127.0.0.1",
    "::1",
    "169.254.169.254",
    "fe80::1",
    "224.0.0.1",
    "ff02::1",
    "::ffff:10.0.0.1",
    "fd00::1%eth0",
    "fd00::1%" + "x" * 5000,
]


@pytest.mark.parametrize("ip", STRANGE, ids=lambda ip: ip[:20])
def test_address_that_no_endpoint_may_have_is_left_out(ip: str) -> None:
    """One such address would make the API server refuse the slice of the whole job."""
    assert addresses([rail("net1", ip, "10.0.1.1")]) == ("10.0.1.1",)


HOSTILE: dict[str, object] = {
    "no JSON": "[{",
    "a megabyte of nothing": "x" * (1 << 20),
    "a megabyte of JSON": [rail("net1")] * 20_000,
    "deep": "[" * 200_000,
    "deep objects": '[{"name": ' * 50_000,
    "a number of many digits": "1" * 10_000,
    "null": "null",
    "a number": "5",
    "a text": '"railnet/ib"',
    "an object": {"railnet/ib": {}},
    "a list of texts": ["railnet/ib"],
    "a list of lists": [[]],
    "null in a list": [None],
    "no name": [{"interface": "net1", "ips": ["10.0.0.1"]}],
    "name of another type": [rail("net1", "10.0.0.1", name=5)],
    "no interface": [{"name": "railnet/ib", "ips": ["10.0.0.1"]}],
    "interface of another type": [rail(5, "10.0.0.1")],
    "interfaces of several types": [rail("net1", "10.0.0.1"), rail([1, 2, 3, 4], "10.0.0.2")],
    "ips of another type": [{**rail("net1"), "ips": 5}],
    "ips are a text": [{**rail("net1"), "ips": "10.0.0.1"}],
    "a number as an address": [rail("net1", 167772161)],
    "a number beyond IPv6": [rail("net1", 1 << 200)],
    "a list as an address": [rail("net1", ["10.0.0.1"])],
    "a network as an address": [rail("net1", "10.0.0.0/8")],
    "no address": [rail("net1", "10.0.0.256")],
    "surrogate": [rail("net1", "\ud800")],
}


@pytest.mark.parametrize("status", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_network_status_gives_no_addresses(status: object) -> None:
    assert addresses(status) == ()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["railnet/ib", "net1", "10.0.0.1"]),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["name", "interface", "ips", "x"]), inner)
        | st.fixed_dictionaries({"name": st.just("railnet/ib"), "interface": st.just("net1") | inner, "ips": inner})
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.lists(JSON) | JSON)
def test_any_network_status_gives_addresses_or_none(status: object) -> None:
    for one in addresses(status):
        assert one
        assert "%" not in one


@given(
    st.dictionaries(
        st.sampled_from(
            ["railnet.io/container", "railnet.io/size", "railnet.io/sticky", "kubedl.io/network-mode", NETWORK_STATUS]
        ),
        st.text() | st.text('0123456789.-[]{}"main'),
    )
)
def test_any_annotations_give_a_pod_or_none(annotations: dict[str, str]) -> None:
    found = training_pod(ReportedPod(a_pod(annotations)))

    if found is not None:
        assert dict(found.annotations) == {key: text for key, text in annotations.items() if key == "railnet.io/sticky"}


def test_pod_with_a_malformed_annotation_is_left_out() -> None:
    assert training_pod(ReportedPod(a_pod({"railnet.io/size": "many"}))) is None


def test_state_of_a_pod_is_read() -> None:
    document = a_pod(phase="Running")
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    document["spec"]["hostNetwork"] = True

    found = read(document)

    assert (found.phase, found.leaving, found.host_network, found.node) == ("Running", True, True, "node-1")


@pytest.mark.parametrize(
    ("phase", "ended"),
    [("Pending", False), ("Running", False), ("Succeeded", True), ("Failed", True), ("Unknown", False), (None, False)],
)
def test_pod_has_ended_in_two_phases(phase: str | None, ended: bool) -> None:
    assert read(a_pod(phase=phase)).ended is ended


def test_only_annotations_that_the_controllers_read_are_kept() -> None:
    """A pod's other annotations may have a quarter of a megabyte."""
    kept = {"railnet.io/sticky": "true", "railnet.io/ps-cleanup": ""}

    assert read(a_pod({**kept, "kubectl.kubernetes.io/last-applied-configuration": "x" * 1000})).annotations == kept


def test_owner_is_the_one_that_makes_the_pod_again() -> None:
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1"},
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "d", "uid": "2", "controller": False},
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "3", "controller": True},
    ]
    document = a_pod()
    document["metadata"]["ownerReferences"] = references

    assert read(document).owner == OwnerReference("batch/v1", "Job", "train", "3")
    assert read(document).owner.reference() == {
        key: references[2][key] for key in ("apiVersion", "kind", "name", "uid")
    }  # type: ignore[union-attr]
    document["metadata"]["ownerReferences"] = references[:2]
    assert read(document).owner is None


def addresses_of(count: int) -> str:
    ips = [f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in range(count)]
    return json.dumps([{"name": "railnet/default", "interface": "net1", "ips": ips}])


@pytest.mark.parametrize(
    "annotations",
    [
        {"railnet.io/names": "x" * 250_000},
        {f"railnet.io/{number}": "x" * 50 for number in range(4000)},
        {f"kubedl.io/{number}": "" for number in range(4000)},
        {NETWORK_STATUS: addresses_of(12_000)},
    ],
    ids=["one", "many", "keys", "addresses"],
)
def test_what_is_kept_of_one_pod_is_bounded(annotations: dict[str, str]) -> None:
    document = created(next(golden for golden in GOLDENS if golden.name == "kubedl/tfjob-ps"))
    own = {"railnet.io/net1-ip": "10.58.0.7", "railnet.io/sticky": "true"}
    document["metadata"] = {**document["metadata"], "annotations": {**annotations, **own}}
    resources = {"limits": {f"example.com/{number}": "1" for number in range(5000)}}
    document["spec"] = {**document["spec"]}
    document["spec"]["containers"] = [{**document["spec"]["containers"][0], "resources": resources}]

    kept = training_pod(ReportedPod(document))

    assert kept is not None
    assert len(repr(kept)) < 4_000
    assert own.items() <= kept.annotations.items()


def test_pod_without_a_node_has_no_addresses() -> None:
    assert training("w-0", "10.56.0.1", node="").addresses == ()


def test_few_addresses_are_kept_of_a_pod_that_names_thousands() -> None:
    found = training("w-0", *(f"10.56.{number // 250}.{number % 250 + 1}" for number in range(3000)))

    assert len(found.addresses) == 16
