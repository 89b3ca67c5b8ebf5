"""What documents and messages name of the chart and of daemonset/ exists."""

import re
from pathlib import Path
from typing import Any

import yaml

from railnet.daemon.node_object.rails_condition import RailsCondition, RailsTaint
from railnet.daemon.node_object.topology_labels import TopologyLabels
from tests.charts.rendered import CHART, ROOT

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = [path for package in ("cni", "deviceplugin", "railnet") for path in sorted((ROOT / package).rglob("*.py"))]


def value(path: str) -> Any:
    """Return the default of a value; KeyError if the chart has no such value."""
    found: Any = VALUES
    for key in path.split("."):
        found = found[key]
    return found


def test_messages_name_switches_of_the_chart() -> None:
    text = "".join(re.sub(r'"\n\s*f?"', "", path.read_text()) for path in SOURCES)
    named = set(re.findall(r"set ([\w.]+)=true of (?:the chart)", text)) | {
        part.value for part in (RailsCondition, RailsTaint, TopologyLabels)
    }

    assert named >= {
        "topologyLabels.enabled",
        "webhook.hostNetwork.enabled",
        "webhook.enabled",
        "priorityClasses.enabled",
    }
    assert {path: value(path) for path in named} == dict.fromkeys(named, False)


def test_documents_set_values_of_the_chart() -> None:
    named = {
        path
        for page in PAGES
        for option in re.findall(r"--set[ =](\S+)", page.read_text())
        for path in re.findall(r"(?:^|,)([\w.]+)=", option)
    }

    assert [path for path in sorted(named) if not is_known(path)] == []


def is_known(path: str) -> bool:
    parent, _, last = path.rpartition(".")
    try:
        return last in (value(parent) if parent else VALUES)
    except (KeyError, TypeError):
        return path.startswith("node.configuration.")


def test_value_that_the_chart_does_not_have_is_unknown() -> None:
    assert [is_known(path) for path in ("webhook.enabled", "webhook.on", "distribution", "helper.enabled")] == [
        True,
        False,
        True,
        False,
    ]


def named_folders(page: Path) -> list[str]:
    return re.findall(r"kubectl (?:apply|delete) -k (\S+?)/?[\s`]", page.read_text())


def test_documents_apply_and_delete_only_existing_folders() -> None:
    folders = {folder for page in PAGES if "decisions" not in page.parts for folder in named_folders(page)}

    assert "daemonset" in folders
    assert {folder for folder in folders if not (ROOT / folder / "kustomization.yaml").exists()} == set()
