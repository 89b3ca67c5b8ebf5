"""The CronJob that tries idle nodes: it fits the command line, its account has the rights that the code uses, and nothing has more."""

import re
from collections.abc import Mapping

import pytest

from railnet import VERSION
from railnet.__main__ import _parser
from railnet.apiserver.client import Answer
from railnet.apiserver.request import ApiGroup, Request
from railnet.fabric.topology_labels import RAILS
from railnet.validate.idle.node_verdict import TYPE
from railnet.validate.probe.probe_objects import LONGEST_IDLE_RUN_SECONDS
from tests.charts import features
from tests.charts import rendered as chart
from tests.charts.rendered import CHART, JsonObject, Right, of_kind, rendered, template
from tests.railnet.validate.idle.test_idle_run import idle_cluster, run_idle

NAME = "railnet-validate"
FOLDER = CHART / "templates/validate"


def job() -> JsonObject:
    spec: JsonObject = of_kind(rendered(**features.IDLE), "CronJob", NAME)["spec"]["jobTemplate"]["spec"]
    return spec


def pod() -> JsonObject:
    spec: JsonObject = job()["template"]["spec"]
    return spec


@pytest.mark.slow
def test_arguments_fit_the_command_line() -> None:
    values = {**features.IDLE, "validate.idle.rails": 2, "validate.idle.image": "registry.example.com/python:3"}
    (container,) = of_kind(rendered(**values), "CronJob", NAME)["spec"]["jobTemplate"]["spec"]["template"]["spec"][
        "containers"
    ]
    arguments = _parser().parse_args(container["args"])

    assert (arguments.command, arguments.idle, arguments.rails, arguments.most_nodes) == ("validate", True, 2, 32)
    assert (arguments.namespace, arguments.priority_class) == (NAME, NAME)
    assert arguments.image == "registry.example.com/python:3"
    assert container["image"] == f"railnet.io/railnet-admission:{VERSION}"


@pytest.mark.slow
def test_jobs_with_vfs_of_all_pools_of_all_nodes_have_rails() -> None:
    values = {
        **features.IDLE,
        "node.configuration.pools": [{"resource": "rdma/ib_vf"}, {"resource": "rdma/rail1"}],
        "node.groups": [{"name": "old", "nodeSelector": {"a": "b"}, "configuration": {"pools": [{"resource": "x/y"}]}}],
    }
    (container,) = of_kind(rendered(**values), "CronJob", NAME)["spec"]["jobTemplate"]["spec"]["template"]["spec"][
        "containers"
    ]

    assert sorted(_parser().parse_args(container["args"]).other_resource) == ["rdma/rail1", "x/y"]
    assert _parser().parse_args(pod()["containers"][0]["args"]).other_resource == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pools", "values", "tried", "others"),
    [
        (["rdma/rail1", "rdma/ib_vf"], {}, "rdma/ib_vf", ["rdma/rail1"]),
        (["rdma/rail0", "rdma/rail1"], {}, "rdma/rail0", ["rdma/rail1"]),
        (["rdma/rail0", "rdma/rail1"], {"validate.idle.resource": "rdma/rail1"}, "rdma/rail1", ["rdma/rail0"]),
    ],
)
def test_run_tries_a_pool_that_the_nodes_have(
    pools: list[str], values: features.Values, tried: str, others: list[str]
) -> None:
    of_nodes = {"node.configuration.pools": [{"resource": pool} for pool in pools]}
    documents = rendered(**features.IDLE, **of_nodes, **values)
    (container,) = of_kind(documents, "CronJob", NAME)["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    arguments = _parser().parse_args(container["args"])

    assert (arguments.resource, arguments.other_resource) == (tried, others)


@pytest.mark.slow
def test_run_ends_with_its_pods_and_is_not_tried_twice() -> None:
    assert job()["activeDeadlineSeconds"] == LONGEST_IDLE_RUN_SECONDS
    assert (job()["backoffLimit"], pod()["restartPolicy"]) == (0, "Never")
    assert of_kind(rendered(**features.IDLE), "CronJob", NAME)["spec"]["concurrencyPolicy"] == "Forbid"


@pytest.mark.slow
def test_tries_are_below_every_other_pod_and_preempt_none() -> None:
    found = of_kind(rendered(**features.IDLE), "PriorityClass", NAME)

    assert (found["value"], found["preemptionPolicy"]) == (-1_000_000_000, "Never")
    assert pod()["priorityClassName"] == NAME


@pytest.mark.slow
def test_run_itself_is_kept_off_nodes_with_rails_where_there_are_others() -> None:
    (preferred,) = pod()["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]

    assert preferred["preference"]["matchExpressions"] == [{"key": RAILS, "operator": "DoesNotExist"}]


@pytest.mark.slow
def test_container_has_no_privilege() -> None:
    (container,) = pod()["containers"]

    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers", "volumes"} & pod().keys()
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.slow
def test_pods_are_made_where_no_account_of_railnet_is() -> None:
    documents = rendered(**features.IDLE)
    namespace = of_kind(documents, "Namespace", NAME)

    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert [one["kind"] for one in documents if one["metadata"].get("namespace") == NAME] == ["Role", "RoleBinding"]
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        binding = of_kind(documents, kind, NAME)
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": "railnet"}]


def used() -> set[Right]:
    """Return the rights that a run uses."""
    rights: set[Right] = set()
    cluster = idle_cluster()
    exchange = cluster.server.exchange

    def noted(request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        about = request.about
        assert not isinstance(about, ApiGroup)
        below = "/status" if request.path.partition("?")[0].endswith("/status") else ""
        rights.add((about.api_version.rpartition("/")[0], about.resource + below, request.verb.right))
        return exchange(request, headers, most_bytes)

    cluster.server.exchange = noted  # type: ignore[method-assign]
    run_idle(cluster)
    return rights


@pytest.mark.slow
def test_account_has_exactly_the_rights_that_a_run_uses() -> None:
    commands = {("", "pods/exec", verb) for verb in ("create", "get")}
    waiting = {("", "events", "list")}  # if a pod does not start

    assert chart.rights(rendered(**features.IDLE), NAME) == used() | commands | waiting


def test_each_right_has_its_reason_beside_it() -> None:
    lines = [line for line in (FOLDER / "role.yaml").read_text().splitlines() if "verbs:" in line]

    assert lines
    assert all("#" in line for line in lines)


def test_policy_and_code_name_the_same_condition() -> None:
    text = (FOLDER / "condition-policy.yaml").read_text()

    assert set(re.findall(r"one[.]type != '([^']+)'", text)) == {TYPE}


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["hourly", "* * * *", "* * * * * *", 7])
def test_schedule_of_another_form_is_refused(schedule: object) -> None:
    done = template(**{"validate.idle.schedule": schedule})

    assert done.returncode != 0
    assert "validate/idle/schedule" in done.stderr.replace(".", "/")
