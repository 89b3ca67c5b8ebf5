"""The PriorityClass of training pods: `railnet admission` sets it between the two runs of the API server's plugin Priority."""

import http.client
from collections.abc import Iterator

import pytest

from tests.cluster.chart import ENABLED, WEBHOOK
from tests.cluster.process import wait_until
from tests.control_plane.api import ApiAnswer, JsonObject
from tests.control_plane.cluster import EXPLAINED, TRAINING, UNWATCHED, Cluster
from tests.control_plane.server import ApiServer

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
LOWER, NEVER = "PreemptLowerPriority", "Never"
_SECONDS = 120.0
PLAIN = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}


@pytest.fixture(scope="module")
def cluster(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(server, {**WEBHOOK, "priorityClasses": ENABLED}, tmp_path_factory.mktemp("replica")) as found:
        yield found


def train(cluster: Cluster, configured: str | None, **spec: str) -> ApiAnswer:
    """Create a training pod in a cluster whose node.yaml names a class, or none."""
    cluster.configure({} if configured is None else {"admission": {"priorityClass": configured}})
    pod = TRAINING.pod | {"spec": TRAINING.pod["spec"] | spec}
    return cluster.create(pod, cluster.namespace(TRAINING.namespace, None))


def priority(answer: ApiAnswer) -> tuple[str | None, int, str]:
    assert answer.status == http.client.CREATED, answer.message
    spec: JsonObject = answer.object["spec"]
    return spec.get("priorityClassName"), spec["priority"], spec["preemptionPolicy"]


@pytest.mark.parametrize(
    ("name", "value", "preempts"), [("production", 10000, LOWER), ("iteration", 1000, LOWER), ("ptr", 100, NEVER)]
)
def test_training_pod_gets_the_configured_class_with_its_priority(
    cluster: Cluster, name: str, value: int, preempts: str
) -> None:
    answer = train(cluster, name)

    assert priority(answer) == (name, value, preempts)
    assert f"set the PriorityClass {name}" in answer.object["metadata"]["annotations"][EXPLAINED]


def test_training_pod_keeps_its_own_class_and_priority(cluster: Cluster) -> None:
    answer = train(cluster, "iteration", priorityClassName="production")

    assert priority(answer) == ("production", 10000, LOWER)
    assert answer.object["metadata"]["annotations"][EXPLAINED].endswith("kept its PriorityClass production")


def test_training_pod_keeps_the_class_that_is_the_clusters_default(cluster: Cluster) -> None:
    default = {"metadata": {"name": "everything"}, "value": 7, "preemptionPolicy": LOWER, "globalDefault": True}
    assert cluster.server.api.create(CLASSES, default).status == http.client.CREATED
    try:
        wait_until(
            lambda: plain(cluster)[0] == "everything", _SECONDS, "the API server's plugin to know the default class"
        )
        found = priority(train(cluster, "iteration"))
    finally:
        cluster.server.kubectl("delete", "priorityclass", "everything")
        wait_until(lambda: plain(cluster)[0] is None, _SECONDS, "the API server's plugin to forget the default class")

    assert found == ("everything", 7, LOWER)


def plain(cluster: Cluster) -> tuple[str | None, int, str]:
    return priority(cluster.create(PLAIN, UNWATCHED))


def test_pod_that_does_not_train_gets_no_class(cluster: Cluster) -> None:
    train(cluster, "iteration")

    assert priority(cluster.create(PLAIN, cluster.namespace(TRAINING.namespace, None))) == (None, 0, LOWER)


def test_without_the_key_a_training_pod_gets_no_class(cluster: Cluster) -> None:
    assert priority(train(cluster, None)) == (None, 0, LOWER)


def test_training_pod_is_refused_if_the_cluster_lacks_the_configured_class(cluster: Cluster) -> None:
    answer = train(cluster, "missing")

    assert answer.status == http.client.FORBIDDEN
    assert answer.message.endswith("no PriorityClass with name missing was found")


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ({"priority": 0}, "the integer value of priority (0) must not be provided in pod spec"),
        (
            {"preemptionPolicy": LOWER},
            "the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided",
        ),
    ],
    ids=["priority", "preemption policy"],
)
def test_pod_whose_priority_is_not_that_of_its_class_is_refused(cluster: Cluster, kept: JsonObject, words: str) -> None:
    """The patch removes both values for this reason."""
    answer = cluster.create(PLAIN | {"spec": PLAIN["spec"] | kept | {"priorityClassName": "ptr"}}, UNWATCHED)

    assert answer.status == http.client.FORBIDDEN
    assert words in answer.message


@pytest.mark.parametrize(("spec", "calls"), [({}, 2), ({"priorityClassName": "production"}, 1)], ids=["set", "kept"])
def test_class_that_is_set_costs_a_second_review(cluster: Cluster, spec: dict[str, str], calls: int) -> None:
    train(cluster, "iteration")
    before = cluster.calls()
    train(cluster, "iteration", **spec)

    assert (cluster.calls() - before).total() == calls
