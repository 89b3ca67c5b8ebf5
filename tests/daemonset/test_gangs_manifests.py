"""The overlay of gangs, the webhook's part: one option, reviews of pods that name a gang, and no right."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from railnet.__main__ import _parser
from railnet.admission import webhook_configuration
from railnet.admission.certificates.cluster_objects import NAME
from tests.daemonset.kustomized import ROOT, kustomized

JsonObject = dict[str, Any]


def by_name(folder: Path | str) -> dict[tuple[str, str], JsonObject]:
    return {(one["kind"], one["metadata"]["name"]): one for one in kustomized(folder)}


def composed(folder: Path, base: str, *components: str) -> dict[tuple[str, str], JsonObject]:
    """Return the documents of an overlay of one's own."""

    def relative(name: str) -> str:
        return os.path.relpath(ROOT / "overlays" / name, folder)

    kustomization = {"resources": [relative(base)], "components": [*map(relative, components)]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return by_name(folder)


def test_one_command_brings_webhook_and_controllers() -> None:
    both = by_name("overlays/gangs")

    assert both.keys() >= by_name("overlays/admission").keys() | by_name("overlays/controllers").keys()


def test_webhook_gets_one_option_and_its_reviews_and_no_right() -> None:
    base, gangs = by_name("overlays/admission"), by_name("overlays/gangs")
    deployment = ("Deployment", NAME)
    (container,) = gangs[deployment]["spec"]["template"]["spec"]["containers"]
    (before,) = base[deployment]["spec"]["template"]["spec"]["containers"]

    assert {key for key, one in base.items() if gangs[key] != one} == {
        deployment,
        ("MutatingWebhookConfiguration", NAME),
    }
    assert container == {**before, "args": [*before["args"], "--gangs"]}
    assert _parser().parse_args(container["args"]).gangs is True
    assert _parser().parse_args(before["args"]).gangs is False


@pytest.mark.slow
def test_reviews_of_gangs_follow_those_of_rails(tmp_path: Path) -> None:
    webhooks = composed(tmp_path, "admission", "gangs/webhook")["MutatingWebhookConfiguration", NAME]["webhooks"]

    rails = by_name("overlays/admission")["MutatingWebhookConfiguration", NAME]["webhooks"]
    assert webhooks == [*rails, *webhook_configuration.gangs()]


def test_gangs_and_host_network_mode_are_beside_each_other_in_one_overlay(tmp_path: Path) -> None:
    documents = composed(tmp_path, "admission", "host-network/mode", "gangs/webhook")

    (container,) = documents["Deployment", NAME]["spec"]["template"]["spec"]["containers"]
    options = _parser().parse_args(container["args"])
    assert (options.host_ports, options.gangs) == ("20000-29999", True)
    names = [one["name"] for one in documents["MutatingWebhookConfiguration", NAME]["webhooks"]]
    assert names[-2:] == ["label.services.railnet.io", "gangs.railnet.io"]
    assert len(set(names)) == len(names)


@pytest.mark.slow
def test_component_gives_the_server_no_token_with_cert_manager(tmp_path: Path) -> None:
    documents = composed(tmp_path, "admission-cert-manager", "gangs/webhook")

    assert documents["ServiceAccount", NAME]["automountServiceAccountToken"] is False


def test_overlay_of_the_page_has_gangs_and_topology_labels(tmp_path: Path) -> None:
    page = (ROOT / "docs/training/gangs.md").read_text()
    (text,) = re.findall(r"```yaml\n(apiVersion: kustomize.*?)```", page, re.DOTALL)
    (tmp_path / "kustomization.yaml").write_text(
        text.replace("../", f"{os.path.relpath(ROOT / 'overlays', tmp_path)}/")
    )
    (tmp_path / "node.yaml").write_text((ROOT / "overlays/topology-labels/node.yaml").read_text())
    documents = by_name(tmp_path)

    args = [
        documents["Deployment", name]["spec"]["template"]["spec"]["containers"][0]["args"]
        for name in (NAME, "railnet-controllers")
    ]
    assert ["--gangs" in one for one in args] == [True, True]
    assert ("ClusterRole", "railnet-topology-labels") in documents
    (daemon,) = documents["DaemonSet", "railnet"]["spec"]["template"]["spec"]["containers"]
    assert daemon["securityContext"]["privileged"] is True


def test_overlay_has_each_component_of_its_folder() -> None:
    """The webhook's part without the controllers' would hold pods for ever."""
    folder = ROOT / "overlays/gangs"
    components = {path.parent.name for path in folder.glob("*/kustomization.yaml")}

    assert set(yaml.safe_load((folder / "kustomization.yaml").read_text())["components"]) == components
