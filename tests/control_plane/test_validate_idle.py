"""The policy of the CronJob that tries idle nodes: its account changes one condition of nodes, and nothing else of them, and its pods preempt no job.

What passes, passes with the rights of the manifest. What is refused, the policy refuses to an account with every right.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count

import pytest

from railnet.apiserver import node_status
from railnet.fabric import rails_condition
from railnet.validate.idle.node_verdict import TYPE
from railnet.validate.probe.probe_objects import Run, Target
from railnet.validate.probe.probe_objects import pod as probe_pod
from tests.cluster.manifests import NAMESPACE
from tests.cluster.process import wait_until
from tests.control_plane.api import ApiAnswer, JsonObject
from tests.control_plane.manifests import applied
from tests.control_plane.nodes import node, some_nodes
from tests.control_plane.server import ApiServer

NAME = "railnet-validate"
NODE = "/api/v1/nodes/node-a"
VALUES = {"validate": {"idle": {"schedule": "0 0 31 2 *"}}}
REFUSED = f"ValidatingAdmissionPolicy '{NAME}' with binding '{NAME}' denied request: "
STATUS = "nothing of the status but the condition RailnetValidated may be changed"
CLASS = "only pods of the PriorityClass railnet-validate may be created"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_RIGHTS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_SECONDS = 120.0


class CronJob:
    """The requests of the CronJob's account."""

    def __init__(self, server: ApiServer) -> None:
        self._server, self._token, self._serial = server, server.token(NAMESPACE, NAME), count()

    def say(self, kind: str = TYPE) -> ApiAnswer:
        """Set a condition. No two words are the same: a write that changes nothing is refused by no policy."""
        words = f"words {next(self._serial)}"
        request = node_status.set_condition(
            "node-a", kind, status="False", reason="Findings", message=words, since=NOON, now=NOON
        )
        return self._server.api.send(request.method, request.path, request.body, self._token, request.content_type)

    def patch(self, patch: JsonObject, subresource: str = "") -> ApiAnswer:
        return self._server.api.merge(f"{NODE}{subresource}", patch, self._token)

    def creates(self, priority_class: str) -> ApiAnswer:
        """Create a pod of a run, but for its last step: the API server keeps nothing."""
        pod = probe_pod(Run("try", NAME, priority_class=priority_class), Target("node-a", "try-0", 1), "uid")
        return self._server.api.create(f"/api/v1/namespaces/{NAME}/pods?dryRun=All", pod, self._token)

    def sees(self, path: str) -> bool:
        return self._server.api.get(path, self._token).status == 200

    def conditions(self) -> list[JsonObject]:
        found: list[JsonObject] = self._server.api.get(NODE).object["status"]["conditions"]
        return found


@pytest.fixture(scope="module")
def cron_job(server: ApiServer) -> Iterator[CronJob]:
    with some_nodes(server.api, [node("node-a")]), applied(server, VALUES):
        yield CronJob(server)


@pytest.fixture
def all_rights(server: ApiServer, cron_job: CronJob) -> Iterator[None]:
    """Give the account every right, once the policy is in force."""
    binding = {
        "metadata": {"name": "every-right-validate"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    }
    assert server.api.create(_RIGHTS, binding).status == 201
    try:
        wait_until(lambda: cron_job.sees("/api/v1/secrets?limit=1"), _SECONDS, "every right")
        wait_until(lambda: REFUSED in cron_job.say("Foreign").message, _SECONDS, "the policy to be in force")
        yield
    finally:
        server.api.delete(f"{_RIGHTS}/every-right-validate")


def test_condition_is_set_beside_kubelets(cron_job: CronJob) -> None:
    answer = cron_job.say()

    assert (answer.status, answer.message) == (200, "")
    types = [one["type"] for one in cron_job.conditions()]
    assert TYPE in types
    assert len(types) > 1


def test_account_may_not_create_pods_beside_the_daemons(server: ApiServer, cron_job: CronJob) -> None:
    token = server.token(NAMESPACE, NAME)
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}

    assert server.api.create(f"/api/v1/namespaces/{NAMESPACE}/pods", pod, token).status == 403
    assert server.api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets", token).status == 403


@pytest.mark.parametrize("other", ["", "system-node-critical"])
def test_account_creates_pods_of_the_lowest_class_alone(server: ApiServer, cron_job: CronJob, other: str) -> None:
    server.namespace(NAME)  # it is there; its default account comes a moment later
    wait_until(lambda: cron_job.creates(other).message.endswith(CLASS), _SECONDS, "the policy of pods to be in force")

    assert cron_job.creates(NAME).message == ""


@pytest.mark.usefixtures("all_rights")
@pytest.mark.parametrize("kind", ["Ready", rails_condition.TYPE])
def test_other_conditions_are_refused(cron_job: CronJob, kind: str) -> None:
    assert cron_job.say(kind).message.endswith(f"{REFUSED}{STATUS}")


@pytest.mark.usefixtures("all_rights")
@pytest.mark.parametrize(
    ("patch", "subresource"),
    [
        ({"spec": {"unschedulable": True}}, ""),
        ({"metadata": {"labels": {"zone": "z1"}}}, ""),
        ({"metadata": {"labels": {"zone": "z1"}}}, "/status"),
        ({"metadata": {"annotations": {"zone": "z1"}}}, "/status"),
        ({"status": {"capacity": {"rdma/ib_vf": "9"}}}, "/status"),
        ({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 666}}}}, "/status"),
    ],
)
def test_all_else_of_a_node_is_refused(cron_job: CronJob, patch: JsonObject, subresource: str) -> None:
    assert REFUSED in cron_job.patch(patch, subresource).message


@pytest.mark.usefixtures("all_rights")
def test_node_may_not_be_deleted(server: ApiServer, cron_job: CronJob) -> None:
    assert REFUSED in server.api.send("DELETE", NODE, token=server.token(NAMESPACE, NAME)).message
