"""overlays/admission in a new API server, which calls `railnet admission`: who is asked about, and what becomes of it.

Pods are dry runs: they go through admission, and nothing is kept.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.admission.goldens import GOLDENS, Golden
from tests.admission.reviewing import applied, ask, patch_of
from tests.admission.test_near_misses import near_misses_of_goldens
from tests.genericapiserver.api import JsonObject
from tests.genericapiserver.cluster import EXPLAINED, TRAINING, UNWATCHED, Cluster, essence
from tests.genericapiserver.server import Server
from training.label_keys import NET1
from training.operators import OPERATORS
from training.pod import parse
from training.recogniser import recognise

CONDITIONS, SELECTORS = "overlays/admission", "overlays/admission-1.27"


@pytest.fixture(scope="module", params=[CONDITIONS, SELECTORS])
def cluster(
    server: Server, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Cluster]:
    with Cluster(server, request.param, tmp_path_factory.mktemp("replica")) as found:
        yield found


def by_configuration(golden: Golden) -> str:
    """Sort those together for which the helper need not start anew."""
    return repr(golden.configuration)


@pytest.mark.parametrize("golden", sorted(GOLDENS, key=by_configuration), ids=lambda golden: golden.name)
def test_golden_pod_becomes_what_the_decision_says(cluster: Cluster, golden: Golden) -> None:
    cluster.configure(golden.configuration)
    namespace = cluster.namespace(golden.namespace, golden.net1)
    decided = ask(golden.pod, golden.policy, golden.net1, namespace)
    answer = cluster.create(golden.pod, namespace)

    if not decided["allowed"]:
        assert answer.status == decided["status"]["code"]
        assert answer.message.endswith(f'.railnet.io" denied the request: {decided["status"]["message"]}')
    else:
        # What the API server makes of any pod, it makes of the patched one, in a namespace about which nobody is asked.
        expected = cluster.create(applied(golden.pod, patch_of(decided)), UNWATCHED)
        assert (answer.status, expected.status) == (201, 201), answer.message
        assert essence(answer) == essence(expected)
        assert answer.warnings == decided.get("warnings", [])


def pods_of_nobody(folder: str) -> Iterator[tuple[str, JsonObject]]:
    """Make pods that are one key away from an operator's, and ask for GPUs as those do."""
    for operator in OPERATORS:
        if NET1 in operator.marks:
            continue  # a label of ours with another value is malformed, and refused
        for how, pod in near_misses_of_goldens(operator):
            by_name = how.endswith("another container") and folder == SELECTORS  # selectors see labels only
            if not by_name and recognise(parse(pod), lambda _: False) is None:
                yield f"{operator.page}: {how}", pod


def test_pods_of_nobody_are_not_asked_about(cluster: Cluster) -> None:
    cluster.configure(None)
    cluster.namespace(TRAINING.namespace, None)
    before = cluster.calls()
    statuses = Counter(
        cluster.create(pod, cluster.namespace(pod["metadata"]["namespace"], None)).status
        for _, pod in pods_of_nobody(cluster.folder)
    )

    assert statuses.keys() == {201}
    assert statuses[201] > 500
    assert cluster.calls() - before == Counter()
    assert cluster.trains()
    assert (cluster.calls() - before).total() == (
        1 if cluster.folder == CONDITIONS else 2
    )  # it is an indexed Job's, too


def test_no_condition_had_no_value(cluster: Cluster, measured: Callable[[str], None]) -> None:
    """What cannot be evaluated, or costs more than its budget, is refused with failurePolicy: Fail."""
    if cluster.folder == CONDITIONS:
        assert cluster.trains()
        conditions, calls = cluster.milliseconds_of_conditions(), cluster.milliseconds_of_calls()
        measured(f"a webhook's conditions take {conditions}; a call {calls}")

    assert cluster.metric("apiserver_admission_match_condition_evaluation_errors_total") == []


def test_largest_pod_costs_less_than_the_conditions_may(cluster: Cluster) -> None:
    """256 KiB of annotations are the most there may be, and nobody has 200 containers."""
    pod = TRAINING.pod
    metadata = pod["metadata"] | {"annotations": {f"annotation-{number}": "x" * 8 for number in range(9000)}}
    idle = [{"name": f"idle-{number}", "image": "i", "resources": {"limits": {"cpu": "1"}}} for number in range(200)]
    large = {"metadata": metadata, "spec": pod["spec"] | {"containers": [*idle, *pod["spec"]["containers"]]}}
    answer = cluster.create(large, cluster.namespace(TRAINING.namespace, None))

    assert (answer.status, answer.message) == (201, "")
    assert EXPLAINED in answer.object["metadata"]["annotations"]


def test_static_pods_image_in_the_api_server_is_not_asked_about(cluster: Cluster) -> None:
    pod, namespace = TRAINING.pod, cluster.namespace(TRAINING.namespace, None)
    mirror = pod | {"metadata": pod["metadata"] | {"annotations": {"kubernetes.io/config.mirror": "hash"}}}
    before = cluster.calls()
    answer = cluster.create(mirror, namespace)

    assert answer.status == 201
    if cluster.folder == CONDITIONS:
        assert cluster.calls() - before == Counter()


def test_without_the_helper_training_pods_are_refused_and_others_are_not(cluster: Cluster) -> None:
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
