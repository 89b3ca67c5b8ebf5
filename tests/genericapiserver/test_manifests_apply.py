"""A new kubectl and a new API server accept every manifest unchanged."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.genericapiserver.server import ApiServer

ROOT = Path(__file__).resolve().parents[2]
POLICY = ROOT / "overlays/own-node/policy.yaml"
PLATFORM = ROOT / "docs/training/platform"
ALL = [
    "daemonset",
    *sorted(path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("overlays/*/kustomization.yaml")),
]
OLD = (
    "overlays/admission-1.20",
    "overlays/controllers-1.20",
    "overlays/controllers-clean-up-1.20",
    "overlays/controllers-sticky-1.20",
    "overlays/host-network-1.20",
)
FOREIGN = {"overlays/admission-cert-manager": "cert-manager.io", "overlays/monitoring": "monitoring.coreos.com"}
"""Folders with kinds of another project, and the group of these kinds."""
FOR_OLD_KUBECTL = (*OLD, "overlays/uninstall-1.20")
FOLDERS = [folder for folder in ALL if folder not in (*OLD, *FOREIGN)]
ADMISSION = "validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingwebhookconfigurations,validatingwebhookconfigurations"
HOW = pytest.mark.parametrize("how", [(), ("--server-side", "--force-conflicts")], ids=["client-side", "server-side"])


@pytest.fixture(scope="module", autouse=True)
def admission_ends(server: ApiServer) -> Iterator[None]:
    """After these tests, nothing is asked about the requests of other tests: two policies refuse the same, and either may answer first."""
    yield
    done = server.kubectl("delete", ADMISSION, "--all")
    assert done.returncode == 0, done.stderr


def warnings(stderr: str, folder: str = "") -> list[str]:
    """Return the lines of a warning. Of a folder for old kubectls, those of kustomize, which begin with a hash, are left out."""
    return [line for line in stderr.splitlines() if not (folder in FOR_OLD_KUBECTL and line.startswith("#"))]


@HOW
@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_applies_strictly_without_a_warning(server: ApiServer, folder: str, how: tuple[str, ...]) -> None:
    done = server.kubectl("apply", "--kustomize", folder, "--validate=strict", *how)

    assert (done.returncode, warnings(done.stderr, folder)) == (0, [])


@HOW
@pytest.mark.parametrize(("folder", "group"), FOREIGN.items())
def test_folder_applies_strictly_except_for_the_kinds_of_another_project(
    server: ApiServer, folder: str, group: str, how: tuple[str, ...]
) -> None:
    server.api.create("/api/v1/namespaces", {"metadata": {"name": "railnet"}})
    documents = list(yaml.safe_load_all(server.kubectl("kustomize", folder).stdout))
    known = [document for document in documents if not document["apiVersion"].startswith(f"{group}/")]
    done = server.kubectl("apply", "--filename=-", "--validate=strict", *how, stdin=yaml.safe_dump_all(known))

    assert (done.returncode, warnings(done.stderr)) == (0, [])
    assert len(known) < len(documents)


@pytest.mark.parametrize("folder", OLD)
def test_overlay_for_old_api_servers_is_refused_for_its_old_version_of_a_kind(server: ApiServer, folder: str) -> None:
    done = server.kubectl("apply", "--kustomize", folder, "--validate=strict")

    assert done.returncode
    assert 'no matches for kind "PodDisruptionBudget" in version "policy/v1beta1"' in done.stderr


def test_unknown_field_is_refused_by_its_name(server: ApiServer) -> None:
    server.kubectl("apply", "--kustomize", "daemonset")
    manifest = yaml.safe_load((ROOT / "daemonset/daemonset.yaml").read_text())
    manifest["spec"]["updateStrategy"]["rollingUpdate"]["maxSurges"] = 1
    done = server.kubectl("apply", "--filename=-", "--validate=strict", stdin=yaml.safe_dump(manifest))

    assert done.returncode
    assert 'unknown field "spec.updateStrategy.rollingUpdate.maxSurges"' in done.stderr


def test_policy_for_events_fits_a_kind_without_an_involved_object(server: ApiServer) -> None:
    """events.k8s.io/v1, which this API server does not have, is such a kind. kube-apiserver checks the policy against it, too."""
    policy = next(one for one in yaml.safe_load_all(POLICY.read_text()) if one["metadata"]["name"].endswith("-events"))
    policy["metadata"]["name"] = "other-kind"
    policy["spec"]["matchConstraints"]["resourceRules"][0]["resources"] = ["events", "services"]
    done = server.kubectl("apply", "--filename=-", "--validate=strict", stdin=yaml.safe_dump(policy))
    server.kubectl("delete", "validatingadmissionpolicy", "other-kind")

    assert (done.returncode, warnings(done.stderr)) == (0, [])


def test_expression_that_does_not_fit_the_types_causes_a_warning(server: ApiServer) -> None:
    policy = next(yaml.safe_load_all(POLICY.read_text()))
    policy["metadata"]["name"] = "wrong"
    policy["spec"]["validations"][0]["expression"] = "oldObject.spec.nodename != ''"
    done = server.kubectl("apply", "--filename=-", "--validate=strict", stdin=yaml.safe_dump(policy))
    server.kubectl("delete", "validatingadmissionpolicy", "wrong")

    assert any("undefined field 'nodename'" in line for line in warnings(done.stderr))


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
        assert (step, done.returncode, warnings(done.stderr)) == (step, 0, [])

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
