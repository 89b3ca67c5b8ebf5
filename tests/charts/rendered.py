"""The documents of the chart as `helm template` writes them, and those of daemonset/ as `kubectl apply -k` sends them.

Callers must not change the documents: a rendering is made once.
"""

import functools
import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

JsonObject = dict[str, Any]
Right = tuple[str, str, str]
"""The group, the resource and the verb of a rule."""

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/railnet"
NAMESPACE = "railnet"


@functools.cache
def _helm() -> str:
    done = subprocess.run(
        [ROOT / "scripts/build-cluster-programs", "helm"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return f"{done.stdout.strip()}/helm"


def helm(*arguments: str | Path, values: str = "") -> subprocess.CompletedProcess[str]:
    """Run helm, which reaches no cluster; `values` is its standard input."""
    environment = {**os.environ, "KUBECONFIG": "/dev/null"}
    command = [_helm(), *arguments]
    return subprocess.run(command, input=values, capture_output=True, text=True, check=False, env=environment)


def template(*arguments: str | Path, **values: Any) -> subprocess.CompletedProcess[str]:
    """Run `helm template`, with values by their paths: `**{"webhook.enabled": True}`."""
    return _template(arguments, json.dumps(nested(values)))


def rendered(*files: str | Path, **values: Any) -> list[JsonObject]:
    """Return the documents of the chart with files of values, and then values by their paths."""
    return _documents(tuple(part for file in files for part in ("--values", CHART / file)), json.dumps(nested(values)))


@functools.cache
def _documents(arguments: tuple[str | Path, ...], values: str) -> list[JsonObject]:
    done = _template(arguments, values)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [one for one in yaml.load_all(done.stdout, yaml.CSafeLoader) if one is not None]


def _template(arguments: Iterable[str | Path], values: str) -> subprocess.CompletedProcess[str]:
    options = ("--namespace", NAMESPACE, *arguments, "--values", "-")
    return helm("template", "railnet", CHART, *options, values=values)


def nested(values: dict[str, Any]) -> JsonObject:
    """Return values by their paths as one mapping."""
    whole: JsonObject = {}
    for path, value in values.items():
        *parents, last = path.split(".")
        parent = whole
        for name in parents:
            parent = parent.setdefault(name, {})
        parent[last] = value
    return whole


@functools.cache
def kustomized() -> list[JsonObject]:
    """Return the documents of daemonset/."""
    command = ["kubectl", "kustomize", ROOT / "daemonset"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return list(yaml.load_all(done.stdout, yaml.CSafeLoader))


def as_written(name: str) -> list[JsonObject]:
    """Return the documents of a template of the chart that is rendered as it is, or not at all."""
    lines = (CHART / "templates" / name).read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("{{"))
    assert "{{" not in text
    return list(yaml.load_all(text, yaml.CSafeLoader))


def by_name(documents: Iterable[JsonObject]) -> dict[tuple[str, str], JsonObject]:
    return {(one["kind"], one["metadata"]["name"]): one for one in documents}


def of_kind(documents: Iterable[JsonObject], kind: str, name: str) -> JsonObject:
    (found,) = (one for one in documents if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def pod(documents: Iterable[JsonObject], kind: str, name: str) -> JsonObject:
    """Return the specification of a workload's pods."""
    found: JsonObject = of_kind(documents, kind, name)["spec"]["template"]["spec"]
    return found


def container(documents: Iterable[JsonObject], kind: str, name: str) -> JsonObject:
    """Return the only container of a workload's pods."""
    (found,) = pod(documents, kind, name)["containers"]
    return dict(found)


def node_yaml(documents: Iterable[JsonObject], name: str = "railnet-node") -> str:
    text: str = of_kind(documents, "ConfigMap", name)["data"]["node.yaml"]
    return text


def rights(documents: Iterable[JsonObject], account: str) -> set[Right]:
    """Return what the roles that are bound to a service account allow."""
    documents = list(documents)
    bound = {
        (one["roleRef"]["kind"], one["roleRef"]["name"])
        for one in documents
        if one["kind"].endswith("RoleBinding") and account in [subject["name"] for subject in one["subjects"]]
    }
    return {
        (group, resource, verb)
        for one in documents
        if (one["kind"], one["metadata"]["name"]) in bound
        for rule in one["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
