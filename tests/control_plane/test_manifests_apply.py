"""kubectl and the API server accept every manifest unchanged, and what they warn about is known."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.process import until_found
from tests.control_plane.api import JsonObject
from tests.control_plane.server import ApiServer

ROOT = Path(__file__).resolve().parents[2]
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
POLICY = ROOT / "overlays/own-node/policy.yaml"
PLATFORM = ROOT / "docs/training/platform"
ALL = [
    "daemonset",
    *sorted(path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("overlays/*/kustomization.yaml")),
]
FOREIGN = {"overlays/admission-cert-manager": "cert-manager.io", "overlays/monitoring": "monitoring.coreos.com"}
"""Folders with kinds of another project, and the group of these kinds."""
FOLDERS = [folder for folder in ALL if folder not in FOREIGN]
ADMISSION = "validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingwebhookconfigurations,validatingwebhookconfigurations"
HOW = pytest.mark.parametrize("how", [(), ("--server-side", "--force-conflicts")], ids=["client-side", "server-side"])


@pytest.fixture(scope="module", autouse=True)
def manifests_end(server: ApiServer) -> Iterator[None]:
    """After these tests nothing of the manifests is there: no policy refuses, and no controller makes pods of them."""
    before = namespaces(server)
    yield
    for what in (
        (ADMISSION, "--all"),
        ("clusterroles,clusterrolebindings", "--selector=app.kubernetes.io/name"),
        ("cronjobs,jobs,daemonsets,deployments,services", "--all", "--namespace=railnet"),
        ("deployments", "--selector=app.kubernetes.io/name", "--namespace=kube-system"),  # overlays/dns-autoscaler
    ):
        done = server.kubectl("delete", "--ignore-not-found", *what)
        assert done.returncode == 0, done.stderr
    for name in namespaces(server) - before:
        server.api.delete(f"/api/v1/namespaces/{name}")


def namespaces(server: ApiServer) -> set[str]:
    return {one["metadata"]["name"] for one in server.api.items("/api/v1/namespaces")}


APPARMOR = "container.apparmor.security.beta.kubernetes.io/"


def rendered(server: ApiServer, folder: str) -> list[JsonObject]:
    return list(yaml.safe_load_all(server.kubectl("kustomize", folder).stdout))


def of_apparmor(documents: list[JsonObject]) -> list[str]:
    """Return what Kubernetes 1.30 and newer say of annotations of `daemonset/`; overlays/kubernetes-1.30 replaces them."""
    templates = [one["spec"]["template"]["metadata"] for one in documents if one["kind"] in ("DaemonSet", "Deployment")]
    keys = [key for one in templates for key in one.get("annotations", {}) if key.startswith(APPARMOR)]
    words = 'deprecated since v1.30; use the "appArmorProfile" field instead'
    return [f"Warning: spec.template.metadata.annotations[{key}]: {words}" for key in keys]


@HOW
@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_applies_strictly_and_warns_of_deprecated_annotations_alone(
    server: ApiServer, folder: str, how: tuple[str, ...]
) -> None:
    expected = of_apparmor(rendered(server, folder))
    done = server.kubectl("apply", "--kustomize", folder, "--validate=strict", *how)

    assert done.returncode == 0, done.stderr
    assert set(done.stderr.splitlines()) <= set(expected)


def test_new_object_causes_exactly_these_warnings(server: ApiServer) -> None:
    """What is applied again without a change causes none."""
    documents = rendered(server, "daemonset")
    (daemons,) = (one for one in documents if one["kind"] == "DaemonSet")
    daemons["metadata"]["name"] = "another"
    done = server.kubectl("create", "--dry-run=server", "--filename=-", stdin=yaml.safe_dump(daemons))

    assert sorted(done.stderr.splitlines()) == sorted(of_apparmor(documents))
    assert len(of_apparmor(documents)) == 2


def test_folders_for_kubernetes_1_30_have_none_of_these_annotations(server: ApiServer) -> None:
    without = [folder for folder in FOLDERS if not of_apparmor(rendered(server, folder))]

    assert {"overlays/kubernetes-1.30", "overlays/own-node", "overlays/topology-labels"} <= set(without)
    assert "daemonset" not in without


@HOW
@pytest.mark.parametrize(("folder", "group"), FOREIGN.items())
def test_folder_applies_strictly_except_for_the_kinds_of_another_project(
    server: ApiServer, folder: str, group: str, how: tuple[str, ...]
) -> None:
    documents = rendered(server, folder)
    known = [document for document in documents if not document["apiVersion"].startswith(f"{group}/")]
    done = server.kubectl("apply", "--filename=-", "--validate=strict", *how, stdin=yaml.safe_dump_all(known))

    assert done.returncode == 0, done.stderr
    assert set(done.stderr.splitlines()) <= set(of_apparmor(known))
    assert len(known) < len(documents)


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

    assert (done.returncode, done.stderr.splitlines()) == (0, [])


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
    for folder in ("overlays/own-node", "overlays/topology-labels", "overlays/rails-condition-taint"):
        assert server.kubectl("apply", "--kustomize", folder).returncode == 0
    server.kubectl("apply", "--filename=-", "--validate=strict", stdin=yaml.safe_dump(policy))
    found = checked(server)
    server.kubectl("delete", "validatingadmissionpolicy", "wrong")

    assert "undefined field 'nodename'" in found.pop("wrong")
    assert len(found) >= 4
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
        assert [line for line in done.stderr.splitlines() if APPARMOR not in line] == []

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
