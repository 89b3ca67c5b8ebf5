"""Each finding of `railnet doctor --pod`, from a pod as the API server shows it, and none that is wrong for a pod that runs with its rails."""

import json
from typing import Any

import pytest

from railnet.doctor.dra_checks import ClaimOfPod
from railnet.doctor.facts import Unread
from railnet.doctor.finding_kinds import OF_A_POD, Finding
from railnet.doctor.pod_checks import findings
from railnet.doctor.pod_facts import PodFacts
from railnet.gangs.slice_devices import PoolSlice, pool_slice
from railnet.objects.pod_claims import pod_claims
from tests.railnet.doctor.test_job_rails import pod as job_pod
from tests.railnet.gangs.slices_and_claims import a_claim, slices_of

RAIL = "rdma/ib_vf"
RAILS = frozenset({RAIL})
NODE = "gpu-7"
NETWORKS = [
    {"name": "cbr0", "interface": "eth0", "ips": ["10.244.0.9"]},
    {
        "name": "railnet/default",
        "interface": "net1",
        "ips": ["10.56.1.129"],
        "rail": 0,
        "device-info": {"type": "pci", "pci": {"pci-address": "0000:03:00.1"}},
    },
]
TRAINS = {
    "training.kubeflow.org/job-name": "mnist",
    "training.kubeflow.org/operator-name": "pytorchjob-controller",
    "training.kubeflow.org/replica-type": "worker",
    "training.kubeflow.org/replica-index": "0",
}
TAINT = {"key": "railnet.io/rails-not-active", "effect": "NoSchedule"}
LOST = {"type": "RailnetRails", "status": "False", "reason": "RailNotActive", "message": "rail 1 (mlx5_1) is DOWN"}
Json = dict[str, Any]


def pod(*, vfs: int = 1, node: str = NODE, phase: str = "Pending", **more: Any) -> Json:
    """Return a pod; `spec`, `status` and `metadata` add to it."""
    devices = {RAIL: str(vfs)} if vfs else {}
    container = {"name": "pytorch", "image": "train:1", "resources": {"limits": devices, "requests": devices}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "namespace": "ml", "uid": "uid-1", **more.get("metadata", {})},
        "spec": {"containers": [container], **({"nodeName": node} if node else {}), **more.get("spec", {})},
        "status": {"phase": phase, **more.get("status", {})},
    }


def hides(pod: Json) -> Json:
    pod["spec"]["containers"][0]["env"] = [{"name": "NCCL_IB_DISABLE", "value": "1"}]
    return pod


def a_node(name: str = NODE, vfs: int = 4, *, taints: tuple[Json, ...] = (), conditions: tuple[Json, ...] = ()) -> Json:
    return {
        "metadata": {"name": name},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {RAIL: str(vfs)} if vfs else {}, "conditions": list(conditions)},
    }


def unscheduled(message: str) -> Json:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"status": {"conditions": [condition]}, "node": ""}


def waiting(reason: str, message: str) -> Json:
    return {
        "status": {
            "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}]
        }
    }


def event(reason: str, message: str) -> Json:
    return {"reason": reason, "message": message, "metadata": {}, "lastTimestamp": "2026-01-01T00:00:00Z"}


def gang_event(message: str, name: str = "mnist") -> Json:
    about = {"namespace": "ml", "name": name, "uid": "uid-2"}
    return {**event("GangWaiting", message), "involvedObject": about}


def facts(found: Json, **more: Any) -> PodFacts:
    return PodFacts(pod=found, rails=RAILS, **more)


GANG = {
    "metadata": {"labels": {"pod-group.scheduling.sigs.k8s.io/name": "mnist"}},
    "spec": {"schedulingGates": [{"name": "railnet.io/gang"}]},
    "node": "",
}
READY = {
    "metadata": {"name": "railnet-x"},
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
}
NOT_READY = {
    "metadata": {"name": "railnet-x"},
    "spec": {"nodeName": NODE},
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]},
}
WITH_NET1 = {"annotations": {"k8s.v1.cni.cncf.io/network-status": json.dumps(NETWORKS)}}
CNI = 'plugin type="railnet" failed (add): the port of 0000:03:00.1 is not ACTIVE after 30 s'


def offered(node: str, vfs: int, unhealthy: int = 0) -> tuple[PoolSlice, ...]:
    return tuple(part for document in slices_of(node, vfs, unhealthy) if (part := pool_slice(document)) is not None)


def by_claim(claim: Json | None, **more: Any) -> tuple[Json, tuple[ClaimOfPod, ...]]:
    """Return a pod that names the claim `vf`, and its claims as they are gathered."""
    spec = {"resourceClaims": [{"name": "vf", "resourceClaimName": "vf"}]}
    found = pod(vfs=0, **{**more, "spec": {**more.get("spec", {}), **spec}})
    return found, tuple(ClaimOfPod(named, claim) for named in pod_claims(found))


def claims_of(claim: Json | None, case: Json, **more: Any) -> PodFacts:
    found, claims = by_claim(claim, **case)
    return facts(found, claims=claims, **more)


def reserved(uid: str) -> Json:
    claim = a_claim("vf", held=("pci-0000-03-00-1",))
    claim["status"]["reservedFor"] = [{"resource": "pods", "name": "x", "uid": uid}]
    return claim


NO_DEVICE = "0/1 nodes are available: 1 cannot allocate all claims."
OF_A_TEMPLATE = pod(vfs=0, node="", spec={"resourceClaims": [{"name": "vf", "resourceClaimTemplateName": "vfs"}]})
CASES: dict[str, tuple[PodFacts, Finding]] = {
    "a pod of no operator": (
        facts(pod(vfs=0)),
        Finding("pod-without-request", "ml/train", "its labels match no training operator that Railnet knows"),
    ),
    "a namespace that opts out": (
        facts(
            pod(vfs=0, metadata={"labels": TRAINS}),
            namespace={"metadata": {"labels": {"railnet.io/net1": "false"}}},
        ),
        Finding("pod-without-request", "ml/train", "the label railnet.io/net1 of its namespace is false"),
    ),
    "the webhook is not installed": (
        facts(
            pod(vfs=0, metadata={"labels": TRAINS}),
            namespace={"metadata": {"labels": {"railnet.io/net1": "true"}}},
            webhook=False,
        ),
        Finding(
            "pod-not-reviewed",
            "ml/train",
            "a review would add 1 rdma/ib_vf to container pytorch; the webhook railnet-admission does not exist",
        ),
    ),
    "a label that is no switch": (
        facts(pod(vfs=0, metadata={"labels": {"railnet.io/net1": "yes"}})),
        Finding(
            "pod-not-reviewed",
            "ml/train",
            'a review would refuse the pod: the label railnet.io/net1 of the pod is \'yes\'; it should be "true" or "false"',
        ),
    ),
    "on the host's network": (
        facts(pod(spec={"hostNetwork": True}, phase="Running")),
        Finding("pod-on-host-network", "ml/train", "spec.hostNetwork is true"),
    ),
    "a gang waits": (
        facts(pod(**GANG), gang_events=(gang_event("other", "other"), gang_event("mnist: 3 of 4 pods exist"))),
        Finding("pod-gated", "ml/train", "mnist: 3 of 4 pods exist"),
    ),
    "a gang, and no controller says why": (
        facts(pod(**GANG), gang_events=()),
        Finding("pod-gated", "ml/train", "gate railnet.io/gang; no event says what the gang waits for"),
    ),
    "no node has a rail": (
        facts(pod(**unscheduled("0/2 nodes are available")), nodes=(a_node("a", 0), a_node("b", 0))),
        Finding("no-node-with-rails", "ml/train", "rdma/ib_vf: 1 requested; no node has any"),
    ),
    "more rails than any node has": (
        facts(pod(vfs=9, **unscheduled("0/2 nodes are available")), nodes=(a_node("a", 2), a_node("b", 8))),
        Finding("no-node-with-rails", "ml/train", "rdma/ib_vf: 9 requested; the most that a node has is 8 (b)"),
    ),
    "a node's rail is lost": (
        facts(
            pod(**unscheduled("0/1 nodes are available: 1 node(s) had untolerated taint")),
            nodes=(a_node(taints=(TAINT,), conditions=(LOST,)),),
        ),
        Finding(
            "node-with-rail-taint",
            NODE,
            "taint railnet.io/rails-not-active; RailnetRails is False: rail 1 (mlx5_1) is DOWN",
        ),
    ),
    "other pods have the rails": (
        facts(pod(**unscheduled("0/1 nodes are available: 1 Insufficient rdma/ib_vf.")), nodes=(a_node(),)),
        Finding("rails-in-use", "ml/train", "Unschedulable: 0/1 nodes are available: 1 Insufficient rdma/ib_vf."),
    ),
    "the devices of its nodes are tainted": (
        facts(
            pod(vfs=2, **unscheduled("1 Insufficient rdma/ib_vf")), nodes=(a_node(vfs=0),), slices=offered(NODE, 3, 2)
        ),
        Finding("devices-tainted", f"{NODE} (2 of 3)", "tainted devices; Unschedulable: 1 Insufficient rdma/ib_vf"),
    ),
    "its claim asks for more devices than there are": (
        claims_of(a_claim("vf", 4), unscheduled(NO_DEVICE), nodes=(a_node(vfs=8),), slices=offered(NODE, 3)),
        Finding(
            "no-node-with-rails",
            "ml/train",
            f"rdma/ib_vf: 4 requested; the most that a node has is 8 ({NODE}); rdma.railnet.io/devices: 4 requested; "
            f"the most that a node has is 3 ({NODE})",
        ),
    ),
    "other pods have the devices": (
        claims_of(a_claim("vf", 2), unscheduled(NO_DEVICE), nodes=(a_node(vfs=0),), slices=offered(NODE, 3)),
        Finding("rails-in-use", "ml/train", f"Unschedulable: {NO_DEVICE}"),
    ),
    "its claim does not exist": (
        claims_of(None, {"node": ""}),
        Finding("claim-missing", "ml/train", "the claim vf does not exist"),
    ),
    "no claim of its template is made": (
        facts(OF_A_TEMPLATE, claims=tuple(ClaimOfPod(named, None) for named in pod_claims(OF_A_TEMPLATE))),
        Finding("claim-missing", "ml/train", "no claim is made of the template vfs yet"),
    ),
    "its claim is not allocated, though it has a node": (
        claims_of(a_claim("vf"), {}, events=(), daemons=(READY,)),
        Finding("claim-not-reserved", "ml/train", "the claim vf is not allocated"),
    ),
    "its claim is another pod's": (
        claims_of(reserved("uid-2"), {}, events=(), daemons=(READY,)),
        Finding("claim-not-reserved", "ml/train", "the claim vf is reserved for 1 other pods, and not for this one"),
    ),
    "its claim is its own, and it has just begun": (
        claims_of(reserved("uid-1"), {}, events=(), daemons=(READY,)),
        Finding("pod-starts", "ml/train", f"on {NODE} since now"),
    ),
    "not enough GPUs": (
        facts(pod(**unscheduled("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")), nodes=(a_node(),)),
        Finding(
            "pod-unschedulable", "ml/train", "Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
        ),
    ),
    "a gate of another program": (
        facts(pod(node="", spec={"schedulingGates": [{"name": "example.com/quota"}]})),
        Finding("pod-unschedulable", "ml/train", "scheduling gates of other programs: example.com/quota"),
    ),
    "kubelet refuses the device": (
        facts(
            pod(
                phase="Failed",
                status={"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no endpoint"},
            )
        ),
        Finding("device-refused", "ml/train", "UnexpectedAdmissionError: no endpoint"),
    ),
    "the network is not made": (
        facts(pod(), events=(event("Scheduled", "x"), event("FailedCreatePodSandBox", CNI)), daemons=(READY,)),
        Finding("sandbox-refused", "ml/train", CNI),
    ),
    "Railnet's own event is preferred": (
        facts(pod(), events=(event("RailnetAttachFailed", "102: why"), event("FailedCreatePodSandBox", CNI))),
        Finding("sandbox-refused", "ml/train", "102: why"),
    ),
    "the network was refused once and is made now": (
        facts(pod(status={"podIP": "10.244.0.9"}), events=(event("RailnetAttachFailed", "102: why"),)),
        Finding("pod-starts", "ml/train", f"on {NODE} since now"),
    ),
    "the network was refused once and an image is not there now": (
        facts(pod(**waiting("ImagePullBackOff", "x")), events=(event("RailnetAttachFailed", "102: why"),)),
        Finding("container-waits", "ml/train", "ImagePullBackOff: x"),
    ),
    "no daemon on the node": (
        facts(pod(), daemons=()),
        Finding("node-pod-not-ready", NODE, "no pod of Railnet's DaemonSet is on this node"),
    ),
    "a daemon that is not ready": (
        facts(pod(), daemons=(NOT_READY,)),
        Finding("node-pod-not-ready", NODE, "pod railnet/railnet-x is running and not ready"),
    ),
    "it has just begun": (
        facts(pod(status={"startTime": "2026-01-01T00:00:00Z"}), events=(), daemons=(READY,)),
        Finding("pod-starts", "ml/train", f"on {NODE} since 2026-01-01T00:00:00Z"),
    ),
    "an image that is not there": (
        facts(pod(**waiting("ImagePullBackOff", "Back-off pulling image")), daemons=(READY,)),
        Finding("container-waits", "ml/train", "ImagePullBackOff: Back-off pulling image"),
    ),
    "a rail of its node is lost": (
        facts(pod(phase="Running", metadata=WITH_NET1), node=a_node(conditions=(LOST,))),
        Finding("rail-not-active", NODE, "RailnetRails is False: rail 1 (mlx5_1) is DOWN"),
    ),
    "it runs without a rail": (
        facts(pod(phase="Running")),
        Finding(
            "pod-without-net1",
            "ml/train",
            "the annotation k8s.v1.cni.cncf.io/network-status names no network of Railnet",
        ),
    ),
    "it runs with its rail": (
        facts(pod(phase="Running", metadata=WITH_NET1), daemons=(READY,), node=a_node()),
        Finding("pod-has-net1", "ml/train", "net1 10.56.1.129 on 0000:03:00.1, rail 0"),
    ),
    "its own settings hide the rail": (
        facts(hides(pod(phase="Running", metadata=WITH_NET1)), daemons=(READY,), node=a_node()),
        Finding("pod-hides-its-rail", "ml/train", "NCCL_IB_DISABLE is 1: NCCL uses no VF"),
    ),
    "its job has another rail, and nothing is known of these rails": (
        facts(job_pod("train-0", 0), daemons=(READY,), node=a_node(), neighbours=(job_pod("train-1", 1),)),
        Finding("job-rails-differ", "ml/train-0", "this pod has rail 0; of its job train-1 has rail 1"),
    ),
    "its job has another rail, which its own does not reach": (
        facts(
            job_pod("train-0", 0),
            daemons=(READY,),
            node=a_node(),
            neighbours=(job_pod("train-1", 1),),
            reach={frozenset({0, 1}): False},
        ),
        Finding("job-rails-apart", "ml/train-0", "this pod has rail 0; of its job train-1 has rail 1"),
    ),
    "it has ended": (facts(pod(phase="Succeeded")), Finding("pod-ended", "ml/train", "succeeded")),
}


BESIDE_OTHERS = ("on the host's network", "a rail of its node is lost", "its own settings hide the rail")


@pytest.mark.parametrize("case", CASES)
def test_cause_is_found(case: str) -> None:
    given, expected = CASES[case]

    assert expected in findings(given)


@pytest.mark.parametrize("case", [case for case in CASES if case not in BESIDE_OTHERS])
def test_cause_is_the_only_one(case: str) -> None:
    given, expected = CASES[case]

    assert findings(given) == (expected,)


def test_tainted_devices_are_named_beside_those_that_other_pods_have() -> None:
    given = facts(pod(**unscheduled("1 Insufficient rdma/ib_vf")), nodes=(a_node(vfs=0),), slices=offered(NODE, 3, 2))

    assert [one.name for one in findings(given)] == ["rails-in-use", "devices-tainted"]


def test_pod_with_room_in_slices_and_without_in_allocatable_is_not_told_that_no_node_has_rails() -> None:
    given = facts(pod(**unscheduled("1 Insufficient cpu")), nodes=(a_node(vfs=0),), slices=offered(NODE, 3))

    assert [one.name for one in findings(given)] == ["pod-unschedulable"]


def test_settings_that_hide_the_vf_of_a_claim_are_named() -> None:
    found, claims = by_claim(reserved("uid-1"), phase="Running", metadata=WITH_NET1)
    sidecar = {"name": "log", "image": "log:1", "env": [{"name": "NCCL_NET", "value": "Socket"}]}
    hides(found)["spec"]["containers"][0]["resources"] = {"claims": [{"name": "vf"}]}
    found["spec"]["containers"].append(sidecar)

    hidden = Finding("pod-hides-its-rail", "ml/train", "NCCL_IB_DISABLE is 1: NCCL uses no VF")
    assert hidden in findings(facts(found, claims=claims, daemons=(READY,), node=a_node()))


def test_claim_of_another_driver_that_cannot_be_allocated_is_not_about_rails() -> None:
    found, claims = by_claim(a_claim("vf", device_class="gpu.example.com"), **unscheduled(NO_DEVICE))
    found["spec"]["containers"][0]["resources"] = {"limits": {RAIL: "1"}, "requests": {RAIL: "1"}}
    given = facts(found, claims=claims, nodes=(a_node(),))

    assert [one.name for one in findings(given)] == ["pod-unschedulable"]


def test_every_kind_has_a_case() -> None:
    assert {expected.name for _, expected in CASES.values()} == OF_A_POD.keys()


@pytest.mark.parametrize("toleration", [{"operator": "Exists"}, {"key": TAINT["key"], "operator": "Exists"}])
def test_taint_that_the_pod_tolerates_is_no_cause(toleration: Json) -> None:
    found = pod(**unscheduled("1 Insufficient rdma/ib_vf"))
    found["spec"]["tolerations"] = [toleration]

    given = facts(found, nodes=(a_node(taints=(TAINT,), conditions=(LOST,)),))
    assert [one.name for one in findings(given)] == ["rails-in-use"]


@pytest.mark.parametrize("written", ["{", "[1]", '[{"name": "railnet/default"}]', "null"])
def test_annotation_that_is_not_readable_names_no_rail(written: str) -> None:
    annotated = {"annotations": {"k8s.v1.cni.cncf.io/network-status": written}}

    assert [one.name for one in findings(facts(pod(phase="Running", metadata=annotated)))] == ["pod-without-net1"]


def test_what_the_user_may_not_read_is_named_and_the_rest_is_checked() -> None:
    given = facts(pod(**unscheduled("1 Insufficient rdma/ib_vf")), unread=(Unread("nodes", "you lack the right"),))

    assert findings(given) == (
        Finding("rails-in-use", "ml/train", "Unschedulable: 1 Insufficient rdma/ib_vf"),
        Finding("could-not-be-read", "nodes", "you lack the right"),
    )
