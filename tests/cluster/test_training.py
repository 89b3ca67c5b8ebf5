"""The admission helper between a real API server and pods of training jobs, which ask for no VF themselves."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from railnet.admission.environment import wanted
from railnet.jobs.operators import Part
from tests.cluster import pytorch, reviewed_pods, training_jobs, training_pods
from tests.cluster.admission_load import AdmissionLoad
from tests.cluster.admission_on_node import GPUS, RAILS, REPLICAS, Admission
from tests.cluster.api_requests import ApiRequests
from tests.cluster.node import PFS, VFS, ClusterNode
from tests.cluster.process import until_found, wait_until
from tests.cluster.training_jobs import BYTES, SHAPES, Ended

_SECONDS = 120.0  # replicas look at their certificates every ten seconds, while the load takes both processors
_JOB_SECONDS = 400.0  # a Job that was refused its pod is looked at again after 10 s, then 20, 40, 80, 160
_NO_ENDPOINTS = 'no endpoints available for service "railnet-admission"'
_LITTLE = 1 << 20  # what may go over eth0: questions to the DNS, rendezvous, ARP, router solicitations


@pytest.fixture(scope="module")
def cluster(shared_node: ClusterNode) -> Iterator[ClusterNode]:
    """A node with a running daemon; nothing may be left over after all tests."""
    shared_node.railnet.start()
    shared_node.wait_for_vfs(VFS * len(PFS))
    yield shared_node
    shared_node.delete_all()
    assert shared_node.left_over() == []


@pytest.fixture(scope="module")
def admission(cluster: ClusterNode, measured: Callable[[str], None]) -> Iterator[Admission]:
    began = time.monotonic()
    with Admission(cluster) as installed:
        measured(f"admission helper installed: {time.monotonic() - began:.1f} s")
        yield installed
        began = time.monotonic()
    measured(f"… and taken away: {time.monotonic() - began:.1f} s")


@pytest.fixture(scope="module")
def jobs(admission: Admission, cluster: ClusterNode, measured: Callable[[str], None]) -> dict[str, tuple[Ended, Ended]]:
    began = time.monotonic()
    ended = training_jobs.run(cluster)
    measured(f"{len(ended)} jobs of two pods: {time.monotonic() - began:.1f} s")
    return ended


@pytest.mark.parametrize("shape", SHAPES)
def test_unedited_job_runs_to_completion_over_net1(
    jobs: dict[str, tuple[Ended, Ended]], shape: str, measured: Callable[[str], None]
) -> None:
    for ended in jobs[shape]:
        measured(f"{shape}: {ended.carried}")
        assert ended.phase == "Succeeded"
        assert ended.asked() == {ended.container: "2"}
        assert ended.env().items() >= {(variable.name, variable.value) for variable in wanted(Part.TRAINS)}
        assert ended.carried["net1"][0] > BYTES  # of what it sent, some may still have been on its way when it ended
        assert max(ended.carried["eth0"]) < _LITTLE


def test_api_server_patches_every_golden_pod_as_the_decision_does(
    admission: Admission, measured: Callable[[str], None]
) -> None:
    before = admission.calls()
    with ApiRequests() as api:
        differences = [line for golden in reviewed_pods.REVIEWED for line in reviewed_pods.differences(api, golden)]
    measured(
        f"{len(reviewed_pods.REVIEWED)} golden pods by dry run, {admission.calls() - before} calls, {len(differences)} differ"
    )

    assert differences == []


def test_api_server_asks_about_no_pod_outside_the_scope(
    admission: Admission, cluster: ClusterNode, measured: Callable[[str], None]
) -> None:
    others = list(reviewed_pods.outside_the_scope())
    before = admission.calls()
    cluster.run("plain")
    with ApiRequests() as api:
        refused = [answer for one in others if (answer := api.create(one, dry_run=True)).status != HTTPStatus.CREATED]
        calls = admission.calls() - before
        api.create(training_pods.of("kubedl/tfjob-worker", GPUS), dry_run=True)
    measured(
        f"1 pod and {len(others)} dry runs outside the scope: {calls} calls; one within: {admission.calls() - before}"
    )

    assert refused == []
    assert calls == 0
    assert admission.calls() > before


def test_dry_run_gets_the_same_answer_and_leaves_nothing(admission: Admission, cluster: ClusterNode) -> None:
    def pods() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = cluster.kubectl.get("pods", f"--namespace={GPUS}")
        return found

    # The jobs' pods were deleted, and a busy kubelet lets go of them late.
    wait_until(lambda: pods() == [], _JOB_SECONDS, "the pods of the jobs before to be gone")
    said = _create(cluster, training_pods.of("kubedl/tfjob-worker", GPUS), "--dry-run=server", "--output=yaml")

    assert "rdma/ib_vf: " in said
    assert pods() == []


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        ({"railnet.io/network": "nowhere"}, "pods of namespace 'team-gpus' may not use network 'nowhere'"),
        ({"railnet.io/vf": "many"}, "railnet.io/vf is 'many'; it should be a number of VFs from 1 to 256"),
    ],
)
def test_impossible_request_is_refused_with_railnets_message(
    admission: Admission, cluster: ClusterNode, annotation: dict[str, str], words: str
) -> None:
    said = _refusal(cluster, training_pods.of("kubedl/tfjob-worker", GPUS, annotations=annotation))

    assert "denied the request" in said
    assert words in said


def test_only_training_pods_wait_while_no_replica_answers(
    admission: Admission, cluster: ClusterNode, measured: Callable[[str], None]
) -> None:
    member = training_pods.of("kubedl/tfjob-worker", GPUS)
    with admission.down():
        plain = cluster.run("plain")
        # The API server reads the Service's slices, which another controller writes than the Endpoints that `down` waits for.
        wait_until(lambda: _NO_ENDPOINTS in _refusal(cluster, member), _SECONDS, "the API server to know no replica")
        said = _refusal(cluster, member)
        wanted_pod = training_pods.of("tensorflow-templates/worker-namespace", RAILS)
        cluster.create(training_pods.job_of("late", wanted_pod))
        wait_until(lambda: "FailedCreate" in _reasons(cluster, "late"), _SECONDS, "the Job to be refused its pod")
    took = wait_until(lambda: _succeeded(cluster, "late"), _JOB_SECONDS, "the Job to complete")
    measured(f"webhook back: the Job that it refused a pod was complete {took:.1f} s later")

    assert list(cluster.addresses(plain)) == ["eth0"]
    assert any(f'failed calling webhook "{name}"' in said for name in admission.webhooks())
    assert _NO_ENDPOINTS in said


def test_certificates_are_replaced_under_load_and_no_request_fails(
    admission: Admission, measured: Callable[[str], None]
) -> None:
    # An API server takes a replica by chance for each connection, and keeps as many as it had requests at once: with few,
    # they might all be to the same one.
    loads = [training_pods.of("kubedl/tfjob-worker", GPUS), training_pods.of("mpi-operator/worker", RAILS)] * 8
    before, answered = admission.shown(), admission.reviews()
    with AdmissionLoad(*loads) as load:
        admission.rotate()
        took = wait_until(
            lambda: len(now := admission.shown()) > 0 and now.isdisjoint(before), _SECONDS, "new certificates"
        )
        at_rotation = load.patched
        wait_until(lambda: load.patched > at_rotation + 100, _SECONDS, "requests after it")
        each = until_found(lambda: _answered_by_all(admission, answered), _SECONDS, "each replica to have answered")
    measured(
        f"new authority and certificates in {took:.1f} s, {load.patched} requests, {len(load.others)} failed; {each}"
    )

    assert load.others == []
    assert len(each) == REPLICAS


def test_distributed_job_exchanges_its_data_over_net1_with_the_injected_environment(
    admission: Admission, cluster: ClusterNode, measured: Callable[[str], None]
) -> None:
    cluster.containerd.load(Path(os.environ["RAILNET_TORCH_IMAGE"]))
    fabric = cluster.fabrics[0]
    before = fabric.counters.bytes
    rail = training_jobs.run_pytorch(cluster, "rail", rail=True)
    fabrics = fabric.counters.bytes - before
    control = training_jobs.run_pytorch(cluster, "control", rail=False)
    cluster.containerd.forget(pytorch.NAME)
    for name, pods in (("by net1", rail), ("switched off", control)):
        measured(f"all-reduce, {name}: {[ended.carried for ended in pods]}; fabric {fabrics}")

    assert {ended.phase for ended in (*rail, *control)} == {"Succeeded"}
    payload = pytorch.ROUNDS * pytorch.TENSOR_BYTES
    assert fabrics > 2 * payload
    assert all(min(ended.carried["net1"]) > payload for ended in rail)
    assert all(max(ended.carried["eth0"]) < _LITTLE for ended in rail)
    assert all("net1" not in ended.carried for ended in control)
    assert all(min(ended.carried["eth0"]) > payload for ended in control)


def _answered_by_all(admission: Admission, before: dict[str, float]) -> dict[str, float]:
    """Count what each replica has answered since, if each has answered something; else nothing."""
    each = {address: count - before.get(address, 0) for address, count in admission.reviews().items()}
    return each if min(each.values(), default=0) > 0 else {}


def _create(node: ClusterNode, wanted_pod: dict[str, Any], *arguments: str) -> str:
    return node.kubectl.run("create", "--filename=-", *arguments, stdin=json.dumps(wanted_pod))


def _refusal(node: ClusterNode, wanted_pod: dict[str, Any]) -> str:
    """Give what kubectl says of a pod that is refused."""
    with pytest.raises(subprocess.CalledProcessError) as caught:
        _create(node, wanted_pod)
    return str(caught.value.stderr)


def _reasons(node: ClusterNode, job: str) -> set[str]:
    events = node.kubectl.get("events", f"--namespace={RAILS}", f"--field-selector=involvedObject.name={job}")
    return {event["reason"] for event in events}


def _succeeded(node: ClusterNode, job: str) -> bool:
    return bool(node.kubectl.get("job", job, f"--namespace={RAILS}")["status"].get("succeeded"))
