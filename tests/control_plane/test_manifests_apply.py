"""A new kubectl and a new API server accept all that the chart renders, and daemonset/, unchanged and without a warning."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.chart import CONTROLLERS, ENABLED, EXAMPLES, GANGS, WEBHOOK, Values, render
from tests.cluster.process import until_found
from tests.control_plane.api import JsonObject
from tests.control_plane.manifests import as_list, delete
from tests.control_plane.server import ApiServer

ROOT = Path(__file__).resolve().parents[2]
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
POLICY = ROOT / "daemonset/pods-and-events-policy.yaml"
PLATFORM = ROOT / "docs/training/platform"
FOREIGN = ("cert-manager.io", "monitoring.coreos.com")
"""Groups of kinds of other projects, which this API server does not have."""

NODE_FEATURES = {"topologyLabels": ENABLED, "railsCondition": {**ENABLED, "taint": True}}
EVERYTHING = {
    **NODE_FEATURES,
    "image": {"registry": "registry.example.com/hpc", "tag": "1.0", "pullSecrets": ["registry"]},
    "distribution": "k0s",
    "node": {
        "nodeSelector": {"example.com/card": "true"},
        "groups": [{"name": "old", "nodeSelector": {"example.com/old": "true"}, "configuration": {"rails": "auto"}}],
    },
    "webhook": {**ENABLED, "priorityClass": "iteration", "hostNetwork": ENABLED},
    "controllers": {**ENABLED, "stickyAddresses": {**ENABLED, "range": "10.58.0.0/16"}, "cleanUp": ENABLED},
    "gangs": ENABLED,
    "validate": {"idle": {"schedule": "17 * * * *"}},
    "monitoring": ENABLED,
    "priorityClasses": ENABLED,
    "dnsAutoscaler": ENABLED,
}
CERT_MANAGER = {"webhook": {**EVERYTHING["webhook"], "certManager": ENABLED}}
RENDERED: dict[str, tuple[Values, ...]] = {
    "defaults": (),
    "webhook": (WEBHOOK,),
    "controllers": (CONTROLLERS,),
    "gangs": (GANGS,),
    "everything": (EVERYTHING,),
    "everything with cert-manager": (EVERYTHING, CERT_MANAGER),
    # An example is beside the ones before it.
    **{path.stem: EXAMPLES[: number + 1] for number, path in enumerate(EXAMPLES)},
}
HOW = pytest.mark.parametrize("how", [(), ("--server-side", "--force-conflicts")], ids=["client-side", "server-side"])


@pytest.fixture(scope="module", autouse=True)
def manifests_end(server: ApiServer) -> Iterator[None]:
    """After these tests nothing of the manifests is there: no policy refuses, and no controller makes pods of them."""
    before = namespaces(server)
    yield
    objects = [one for values in RENDERED.values() for one in render(*values)]
    delete(server, known({name_of(one): one for one in objects}.values()))
    for kinds in ("configmaps,cronjobs,jobs,daemonsets,deployments,services", "roles,rolebindings,serviceaccounts"):
        done = server.kubectl("delete", kinds, "--all", "--namespace=railnet")
        assert done.returncode == 0, done.stderr
    for name in namespaces(server) - before:
        server.api.delete(f"/api/v1/namespaces/{name}")


def namespaces(server: ApiServer) -> set[str]:
    return {one["metadata"]["name"] for one in server.api.items("/api/v1/namespaces")}


def name_of(document: JsonObject) -> tuple[str, str, str]:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def known(documents: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the documents whose kinds the API server has."""
    return [one for one in documents if not one["apiVersion"].startswith(FOREIGN)]


@HOW
@pytest.mark.parametrize("values", RENDERED.values(), ids=RENDERED.keys())
def test_chart_applies_strictly_without_a_warning(
    server: ApiServer, values: tuple[Values, ...], how: tuple[str, ...]
) -> None:
    documents = known(render(*values))
    done = server.kubectl("apply", "--filename=-", "--validate=strict", *how, stdin=as_list(documents))

    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(documents)


@pytest.mark.parametrize("values", RENDERED.values(), ids=RENDERED.keys())
def test_new_objects_of_the_chart_cause_no_warning(server: ApiServer, values: tuple[Values, ...]) -> None:
    """What is applied again without a change would cause none."""
    documents = known(render(*values))
    for one in documents:
        one["metadata"]["name"] += "-another"
    done = server.kubectl("create", "--dry-run=server", "--validate=strict", "--filename=-", stdin=as_list(documents))

    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(documents)


@HOW
def test_folder_of_the_node_applies_strictly_without_a_warning(server: ApiServer, how: tuple[str, ...]) -> None:
    done = server.kubectl("apply", "--kustomize", "daemonset", "--validate=strict", *how)

    assert (done.returncode, done.stderr) == (0, "")


def test_uninstall_patch_applies_strictly_without_a_warning(server: ApiServer) -> None:
    server.kubectl("apply", "--kustomize", "daemonset")
    patch = ("--patch-file=daemonset/uninstall-patch.yaml", "--dry-run=server", "--output=json")
    done = server.kubectl("patch", "daemonset/railnet", "--namespace=railnet", *patch)

    assert (done.returncode, done.stderr) == (0, "")
    spec = json.loads(done.stdout)["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert container["args"] == ["uninstall", "--stay"]
    assert "initContainers" not in spec["template"]["spec"]
    assert spec["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == "100%"


def test_kinds_of_other_projects_are_those_of_cert_manager_and_the_prometheus_operator() -> None:
    groups = {one["apiVersion"].partition("/")[0] for one in render(EVERYTHING, CERT_MANAGER)}

    assert {one for one in groups if one.startswith(FOREIGN)} == set(FOREIGN)
    assert [one for one in known(render(EVERYTHING)) if one["kind"] == "PodMonitor"] == []


def test_unknown_field_is_refused_by_its_name(server: ApiServer) -> None:
    server.kubectl("apply", "--kustomize", "daemonset")
    manifest = yaml.safe_load((ROOT / "daemonset/daemonset.yaml").read_text())
    manifest["spec"]["updateStrategy"]["rollingUpdate"]["maxSurges"] = 1
    done = server.kubectl("apply", "--filename=-", "--validate=strict", stdin=yaml.safe_dump(manifest))

    assert done.returncode
    assert 'unknown field "spec.updateStrategy.rollingUpdate.maxSurges"' in done.stderr


def test_policy_for_events_fits_a_kind_without_an_involved_object(server: ApiServer) -> None:
    """Such a kind is that of Services, and Event of events.k8s.io/v1."""
    policy = next(one for one in yaml.safe_load_all(POLICY.read_text()) if one["metadata"]["name"].endswith("-events"))
    policy["metadata"]["name"] = "other-kind"
    policy["spec"]["matchConstraints"]["resourceRules"][0]["resources"] = ["events", "services"]
    done = server.kubectl("apply", "--filename=-", "--validate=strict", stdin=yaml.safe_dump(policy))
    server.kubectl("delete", "validatingadmissionpolicy", "other-kind")

    assert (done.returncode, done.stderr) == (0, "")


def checked(server: ApiServer) -> dict[str, str]:
    """Return what a controller of Kubernetes says of each policy's expressions, when it has looked at all of them."""

    def look() -> list[JsonObject] | None:
        found = server.api.items(POLICIES)
        return found if all(is_checked(one) for one in found) else None

    policies = until_found(look, 60, "the policies to be checked")
    return {one["metadata"]["name"]: json.dumps(one["status"]["typeChecking"]) for one in policies}


def is_checked(policy: JsonObject) -> bool:
    status = policy.get("status", {})
    return "typeChecking" in status and status.get("observedGeneration") == policy["metadata"]["generation"]


def test_expressions_of_all_policies_fit_the_types_and_a_wrong_one_is_named(server: ApiServer) -> None:
    policy = next(yaml.safe_load_all(POLICY.read_text()))
    policy["metadata"]["name"] = "wrong"
    policy["spec"]["validations"][0]["expression"] = "oldObject.spec.nodename != ''"
    assert server.kubectl("apply", "--filename=-", stdin=as_list(render(NODE_FEATURES))).returncode == 0
    server.kubectl("apply", "--filename=-", "--validate=strict", stdin=yaml.safe_dump(policy))
    found = checked(server)
    server.kubectl("delete", "validatingadmissionpolicy", "wrong")

    assert "undefined field 'nodename'" in found.pop("wrong")
    assert len(found) >= 3
    assert set(found.values()) == {"{}"}


@HOW
def test_manifests_of_a_platform_apply_strictly_without_a_warning(server: ApiServer, how: tuple[str, ...]) -> None:
    """In the order of docs/training/platform.md: Railnet, whose namespace has a Role, then the namespaces, then all files."""
    steps = (
        ("--kustomize", "daemonset"),
        ("--filename", "docs/training/platform/namespaces.yaml"),
        ("--filename", "docs/training/platform"),
    )
    for step in steps:
        done = server.kubectl("apply", *step, "--validate=strict", *how)
        assert (step, done.returncode) == (step, 0), done.stderr
        assert done.stderr == ""

    documents = [one for path in PLATFORM.glob("*.yaml") for one in yaml.safe_load_all(path.read_text())]
    assert len(documents) > 30
    assert sum(done.stdout.count(word) for word in ("created", "configured", "unchanged", "serverside-applied")) == len(
        documents
    )


@pytest.mark.parametrize("field", ["schedule", "completionMode"])
def test_manifest_of_a_platform_with_a_misspelt_field_is_refused(server: ApiServer, field: str) -> None:
    server.kubectl("apply", "--filename", "docs/training/platform/namespaces.yaml")
    text = (PLATFORM / "scheduled-training.yaml").read_text().replace(f"{field}:", f"{field}s:")
    done = server.kubectl("apply", "--filename=-", "--validate=strict", stdin=text)

    assert done.returncode
    assert f'.{field}s"' in done.stderr
