"""The recogniser: the operator of a pod, its role, rank and size, and the container that trains."""

from typing import Any

import pytest

from railnet.errors import Misconfigured
from railnet.jobs.operators import OPERATORS, Part
from railnet.jobs.recogniser import RecognisedPod, recognise
from railnet.objects.pod import Container, Pod
from tests.railnet.jobs.builders import a_container, a_pod

TFJOB = {
    "training.kubeflow.org/operator-name": "tfjob-controller",
    "training.kubeflow.org/job-name": "mnist",
    "training.kubeflow.org/replica-type": "worker",
    "training.kubeflow.org/replica-index": "0",
}
ANY_POD = {"railnet.io/net1": "true"}
SIDECAR = a_container(name="proxy")
GPU = a_container(name="gpu", resources={"nvidia.com/gpu": "1"})
NAMED = a_container(name="tensorflow")
PLAIN = a_container(name="plain")
DEFAULT = {"kubectl.kubernetes.io/default-container": "plain"}


def recognised(pod: Pod, has_additions: str = "", sets_variables: str = "") -> RecognisedPod:
    member = recognise(
        pod, lambda container: container.name == has_additions, lambda container: container.name == sets_variables
    )
    assert member is not None
    return member


CONTAINERS: dict[str, tuple[dict[str, str], tuple[Container, ...], dict[str, str], str, str]] = {
    "annotated before all": (TFJOB, (NAMED, GPU, SIDECAR), {"railnet.io/container": "proxy"}, "gpu", "proxy"),
    "with the additions before named": (TFJOB, (NAMED, GPU), {}, "gpu", "gpu"),
    "named before one with GPUs": (TFJOB, (SIDECAR, GPU, NAMED), {}, "", "tensorflow"),
    "with GPUs where none has the operator's name": (TFJOB, (SIDECAR, GPU), DEFAULT, "", "gpu"),
    "with GPUs where the operator names none": (ANY_POD, (SIDECAR, GPU), DEFAULT, "", "gpu"),
    "the default one where none has GPUs": (ANY_POD, (SIDECAR, PLAIN), DEFAULT, "", "plain"),
    "the first where no fact decides": (ANY_POD, (SIDECAR, PLAIN), {}, "", "proxy"),
    "the first where the default one is missing": (ANY_POD, (SIDECAR, NAMED), DEFAULT, "", "proxy"),
}


@pytest.mark.parametrize(
    ("labels", "containers", "annotations", "has_additions", "expected"), CONTAINERS.values(), ids=CONTAINERS.keys()
)
def test_training_container_is(labels: Any, containers: Any, annotations: Any, has_additions: str, expected: str):
    pod = a_pod(*containers, labels=labels, annotations=annotations)

    assert pod.containers[recognised(pod, has_additions).container].name == expected


@pytest.mark.parametrize(
    ("annotations", "expected"), [({}, "complete"), (DEFAULT, "plain")], ids=["nothing", "default"]
)
def test_container_that_sets_all_variables_trains_if_no_other_fact_decides(annotations: Any, expected: str):
    pod = a_pod(SIDECAR, PLAIN, a_container(name="complete"), labels=ANY_POD, annotations=annotations)

    assert pod.containers[recognised(pod, sets_variables="complete").container].name == expected


def test_first_row_that_fits_is_the_pods_row():
    pod = a_pod(NAMED, labels={**ANY_POD, **TFJOB})

    assert recognised(pod).operator.name == "Kubeflow training-operator"


def test_no_operators_marks_contain_another_operators():
    marks = [
        {(key, value) for key, values in operator.marks.items() for value in values or [None]} for operator in OPERATORS
    ]

    assert [one for one in marks for other in marks if one is not other and one <= other] == []


@pytest.mark.parametrize("rank", ["", "x", "-1", "1.x", "1.", "10000000", "\u0663"])
def test_rank_that_is_no_number_is_empty(rank: str):
    assert recognised(a_pod(labels={**ANY_POD, "railnet.io/rank": rank})).rank == ()


def test_rank_of_several_numbers_is_written_with_dots():
    member = recognised(a_pod(labels={**ANY_POD, "railnet.io/rank": "2.11"}))

    assert (member.rank, member.dotted_rank, str(member)) == ((2, 11), "2.11", "worker 2.11 of p")


@pytest.mark.parametrize("size", ["0", "", "-2", "many", "99999999"])
def test_size_that_is_no_number_of_pods_is_refused(size: str):
    with pytest.raises(Misconfigured, match=r"railnet\.io/size"):
        recognised(a_pod(labels=ANY_POD, annotations={"railnet.io/size": size}))


def test_missing_container_is_refused_with_the_names_of_the_containers():
    with pytest.raises(Misconfigured, match=r"railnet\.io/container is 'x'; this pod's containers are: proxy, plain"):
        recognised(a_pod(SIDECAR, PLAIN, labels=ANY_POD, annotations={"railnet.io/container": "x"}))


def test_launcher_with_gpus_trains():
    launcher = {**TFJOB, "training.kubeflow.org/replica-type": "launcher"}

    assert recognised(a_pod(NAMED, labels=launcher)).part is Part.LAUNCHES
    assert recognised(a_pod(GPU, labels=launcher)).part is Part.TRAINS


def test_pod_without_a_name_and_job_is_a_worker_of_an_unnamed_job():
    assert str(recognised(a_pod(labels=ANY_POD, name=""))) == "worker of unnamed"
