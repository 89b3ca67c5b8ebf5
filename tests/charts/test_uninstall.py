"""What removes Railnet from the nodes: the hook that `helm uninstall` runs first, and the patch for daemonset/."""

import subprocess
from typing import Any

import pytest
import yaml

from railnet.__main__ import _parser
from tests.charts import features
from tests.charts.rendered import (
    CHART,
    NAMESPACE,
    ROOT,
    JsonObject,
    container,
    kustomized,
    of_kind,
    pod,
    rendered,
    rights,
)

NAME = "railnet-uninstall"
PATCH: JsonObject = yaml.safe_load((ROOT / "daemonset/uninstall-patch.yaml").read_text())


def hooks() -> dict[str, JsonObject]:
    """Return the objects of the hook, by kind."""
    return {one["kind"]: one for one in rendered() if one["metadata"]["name"] == NAME}


@pytest.mark.slow
def test_hook_runs_before_the_deletion_and_leaves_nothing() -> None:
    annotations = {kind: one["metadata"]["annotations"] for kind, one in hooks().items()}

    assert annotations.keys() == {"ServiceAccount", "Role", "RoleBinding", "Job"}
    assert {one["helm.sh/hook"] for one in annotations.values()} == {"pre-delete"}
    assert {one["helm.sh/hook-delete-policy"] for one in annotations.values()} == {
        "before-hook-creation,hook-succeeded"
    }
    weights = {kind: int(one.get("helm.sh/hook-weight", "0")) for kind, one in annotations.items()}
    assert max(weight for kind, weight in weights.items() if kind != "Job") < weights["Job"]
    hooked = [one for one in rendered() if "helm.sh/hook" in one["metadata"].get("annotations", {})]
    assert len(hooked) == len(annotations)


@pytest.mark.slow
def test_job_may_patch_the_daemon_sets_and_see_their_pods() -> None:
    assert rights(rendered(), NAME) == {
        *(("apps", "daemonsets", verb) for verb in ("get", "list", "patch")),
        ("", "pods", "list"),
    }
    assert hooks()["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]
    assert {one["metadata"]["namespace"] for one in hooks().values()} == {NAMESPACE}
    assert pod(rendered(), "Job", NAME)["serviceAccountName"] == NAME


def test_each_right_of_the_job_has_its_reason_beside_it() -> None:
    lines = (CHART / "templates/uninstall.yaml").read_text().splitlines()
    verbs = [line for line in lines if line.lstrip().startswith("verbs:")]

    assert len(verbs) == 5
    assert [line for line in verbs if "] # " not in line] == []


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [60, 3600, 10_000_000])
def test_job_has_the_time_of_the_values_and_a_minute_more(seconds: int) -> None:
    documents = rendered(**{"uninstall.timeoutSeconds": seconds})

    assert container(documents, "Job", NAME)["args"] == ["uninstall", "--cluster", f"--timeout={seconds}"]
    assert of_kind(documents, "Job", NAME)["spec"]["activeDeadlineSeconds"] == seconds + 60


@pytest.mark.slow
def test_arguments_of_the_job_fit_the_command_line() -> None:
    arguments = _parser().parse_args(container(rendered(), "Job", NAME)["args"])

    assert (arguments.command, arguments.cluster, arguments.timeout) == ("uninstall", True, 3600.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "webhook", "gangs"),
    [({}, False, False), (features.WEBHOOK, True, False), (features.GANGS, False, True)],
    ids=["the node's part", "webhook", "gangs"],
)
def test_job_deletes_the_webhook_and_lets_gangs_go_where_they_are_on(
    values: dict[str, Any], webhook: bool, gangs: bool
) -> None:
    documents = rendered(**values)
    arguments = _parser().parse_args(container(documents, "Job", NAME)["args"])
    roles = [one for one in documents if one["kind"] == "ClusterRole" and one["metadata"]["name"] == NAME]
    rights = {(*rule["resources"], *rule["verbs"]) for role in roles for rule in role["rules"]}

    assert (arguments.webhook, arguments.gangs) == (webhook, gangs)
    assert (("mutatingwebhookconfigurations", "get", "delete") in rights) is (webhook or gangs)
    assert (("pods", "list", "patch") in rights) is gangs


@pytest.mark.slow
def test_job_has_no_privilege() -> None:
    spec = pod(rendered(), "Job", NAME)

    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers", "volumes"} & spec.keys()
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container(rendered(), "Job", NAME)["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def patched(documents: list[JsonObject]) -> Any:
    """Return the DaemonSet after `kubectl patch` with the file."""
    command = ["kubectl", "patch", "--local", "--output=json", "--filename=-"]
    done = subprocess.run(
        [*command, f"--patch-file={ROOT / 'daemonset/uninstall-patch.yaml'}"],
        input=yaml.safe_dump(of_kind(documents, "DaemonSet", "railnet")),
        capture_output=True,
        text=True,
        check=True,
    )
    return yaml.safe_load(done.stdout)


def assert_is_only_in_the_mode(before: JsonObject, after: JsonObject) -> None:
    (daemon,) = after["spec"]["template"]["spec"]["containers"]
    arguments = _parser().parse_args(daemon["args"])
    assert (arguments.command, arguments.stay) == ("uninstall", True)
    assert after["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == "100%"
    spec = before["spec"]["template"]["spec"]
    (serving,) = spec["containers"]
    assert after["spec"]["template"]["spec"] == {
        **spec,
        "initContainers": [],
        "containers": [{**serving, "args": daemon["args"]}],
    }


def test_patch_puts_the_daemon_set_of_the_folder_into_the_mode() -> None:
    assert_is_only_in_the_mode(of_kind(kustomized(), "DaemonSet", "railnet"), patched(kustomized()))


@pytest.mark.slow
def test_patch_fits_the_daemon_set_of_the_chart() -> None:
    documents = rendered(**{**features.TOPOLOGY_LABELS, **features.RAILS_TAINT})

    assert_is_only_in_the_mode(of_kind(documents, "DaemonSet", "railnet"), patched(documents))


def test_patch_names_what_the_daemon_set_has() -> None:
    spec, of_patch = pod(kustomized(), "DaemonSet", "railnet"), PATCH["spec"]["template"]["spec"]

    for kind in ("initContainers", "containers"):
        assert [one["name"] for one in of_patch[kind]] == [one["name"] for one in spec[kind]]
