"""The webhook: which pods the API server asks `railnet admission` about, and what they become.

Pods are created as dry runs: they go through admission, and are not stored.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from railnet.jobs.operators import OPERATORS
from railnet.jobs.railnet_labels import NET1
from railnet.jobs.recogniser import recognise
from railnet.objects.pod import parse
from tests.cluster.chart import ENABLED, WEBHOOK
from tests.control_plane.api import JsonObject
from tests.control_plane.cluster import EXPLAINED, TRAINING, UNWATCHED, Cluster, essence
from tests.control_plane.server import ApiServer
from tests.railnet.admission.goldens import GOLDENS, Golden
from tests.railnet.admission.reviewing import applied, ask, patch_of
from tests.railnet.admission.test_near_misses import near_misses_of_goldens

pytestmark = pytest.mark.long_module


@pytest.fixture(scope="module")
def cluster(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    values = {**WEBHOOK, "priorityClasses": ENABLED}  # golden pods name these classes
    with Cluster(server, values, tmp_path_factory.mktemp("replica")) as found:
        yield found


def by_configuration(golden: Golden) -> str:
    """Return the key that sorts pods with one configuration together, so that the helper restarts rarely."""
    return repr(golden.configuration)


@pytest.mark.parametrize("golden", sorted(GOLDENS, key=by_configuration), ids=lambda golden: golden.name)
def test_golden_pod_becomes_what_the_decision_says(cluster: Cluster, golden: Golden) -> None:
    """Host-network mode is off here: tests/control_plane/test_host_network.py."""
    cluster.configure(golden.configuration)
    namespace = cluster.namespace(golden.namespace, golden.net1)
    decided = ask(golden.pod, golden.policy, golden.net1, namespace)
    answer = cluster.create(golden.pod, namespace)

    if not decided["allowed"]:
        assert answer.status == decided["status"]["code"]
        assert answer.message.endswith(f'.railnet.io" denied the request: {decided["status"]["message"]}')
    else:
        # The API server sets its own defaults in the patched pod, too. The namespace is out of scope, so the webhook is not called.
        expected = cluster.create(applied(golden.pod, patch_of(decided)), UNWATCHED)
        assert (answer.status, expected.status) == (201, 201), answer.message
        assert essence(answer) == essence(expected)
        assert answer.warnings == decided.get("warnings", [])


def pods_of_no_operator() -> Iterator[tuple[str, JsonObject]]:
    """Yield pods that differ from an operator's in one key, and ask for GPUs as its pods do."""
    for operator in OPERATORS:
        if NET1 in operator.marks:
            continue  # Railnet's label with another value is malformed, and refused
        for how, pod in near_misses_of_goldens(operator):
            if recognise(parse(pod), lambda _: False) is None:
                yield f"{operator.page}: {how}", pod


def test_pods_of_no_operator_cause_no_call(cluster: Cluster) -> None:
    cluster.configure(None)
    cluster.namespace(TRAINING.namespace, None)
    before = cluster.calls()
    statuses = Counter(
        cluster.create(pod, cluster.namespace(pod["metadata"]["namespace"], None)).status
        for _, pod in pods_of_no_operator()
    )

    assert statuses.keys() == {201}
    assert statuses[201] > 500
    assert cluster.calls() - before == Counter()
    assert cluster.trains()
    assert (cluster.calls() - before).total() == 1


def test_every_condition_was_evaluated(cluster: Cluster, measured: Callable[[str], None]) -> None:
    """With failurePolicy: Fail, a pod is refused if a condition cannot be evaluated, or is beyond its cost limit."""
    assert cluster.trains()
    conditions, calls = cluster.milliseconds_of_conditions(), cluster.milliseconds_of_calls()
    measured(f"a webhook's conditions take {conditions}; a call {calls}")

    assert cluster.metric("apiserver_admission_match_condition_evaluation_errors_total") == []


def test_largest_pod_stays_below_the_cost_limit_of_conditions(cluster: Cluster) -> None:
    """256 KiB of annotations are the maximum, and no real pod has 200 containers."""
    pod = TRAINING.pod
    metadata = pod["metadata"] | {"annotations": {f"annotation-{number}": "x" * 8 for number in range(9000)}}
    idle = [{"name": f"idle-{number}", "image": "i", "resources": {"limits": {"cpu": "1"}}} for number in range(200)]
    large = {"metadata": metadata, "spec": pod["spec"] | {"containers": [*idle, *pod["spec"]["containers"]]}}
    answer = cluster.create(large, cluster.namespace(TRAINING.namespace, None))

    assert (answer.status, answer.message) == (201, "")
    assert EXPLAINED in answer.object["metadata"]["annotations"]


def test_mirror_of_a_static_pod_causes_no_call(cluster: Cluster) -> None:
    pod, namespace = TRAINING.pod, cluster.namespace(TRAINING.namespace, None)
    mirror = {
        "metadata": pod["metadata"] | {"annotations": {"kubernetes.io/config.mirror": "hash"}},
        "spec": pod["spec"] | {"nodeName": "node"},  # kubelet creates a mirror, and says that it runs the pod
    }
    before = cluster.calls()
    answer = cluster.create(mirror, namespace)

    assert answer.status == 201
    assert cluster.calls() - before == Counter()


def test_without_the_helper_only_training_pods_are_refused(cluster: Cluster) -> None:
    plain = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}
    namespace = cluster.namespace(TRAINING.namespace, None)
    cluster.stop()
    try:
        training, web = cluster.create(TRAINING.pod, namespace), cluster.create(plain, namespace)
    finally:
        cluster.start()

    assert (training.status, web.status) == (500, 201)
    assert "failed calling webhook" in training.message
    assert ".railnet.io" in training.message
    assert cluster.trains()
