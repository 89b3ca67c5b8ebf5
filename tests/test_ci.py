"""What GitHub and pre-commit read: workflows call scripts that exist, versions are those of the lock, forms ask what a report needs."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").iterdir())
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yaml"))
ON = True  # YAML 1.1 reads the word `on` so


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in yaml.safe_load(path.read_text())["jobs"].values():
        yield from job["steps"]


def scripts_of(path: Path) -> list[str]:
    """Return the command lines of a workflow that begin with a script of this checkout."""
    return [step["run"] for step in steps(path) if step.get("run", "").startswith((".ci/", "scripts/"))]


def test_workflows_are_found() -> None:
    assert {path.name for path in WORKFLOWS} >= {"tests.yaml", "chart.yaml"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_calls_scripts_that_exist(path: Path) -> None:
    scripts = {line.split()[0] for line in scripts_of(path)}

    assert scripts
    assert [script for script in scripts if not (ROOT / script).stat().st_mode & 0o100] == []


def test_tiers_that_workflows_run_exist() -> None:
    tiers = {line.split()[1] for path in WORKFLOWS for line in scripts_of(path) if line.startswith("scripts/test ")}
    usage = subprocess.run([ROOT / "scripts/test", "--help"], capture_output=True, text=True, check=True).stdout

    assert tiers == {"quick", "unit", "fuzz"}
    assert "scripts/test quick " in usage
    assert "\n  unit " in usage
    assert "\n  fuzz " in usage


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_starts_by_itself_may_only_read_and_ends(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())

    assert set(workflow[ON]) == {"push", "pull_request"}
    assert workflow["permissions"] == {"contents": "read"}
    assert [name for name, job in workflow["jobs"].items() if not job.get("timeout-minutes")] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_have_an_exact_version(path: Path) -> None:
    actions = [step["uses"] for step in steps(path) if "uses" in step]

    assert actions
    assert [
        action for action in actions if not re.fullmatch(r"[\w-]+/[\w-]+@(v\d+\.\d+\.\d+|[0-9a-f]{40})", action)
    ] == []


def hooks() -> dict[str, str]:
    """Return the version of each hook of pre-commit."""
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    return {hook["id"]: one["rev"].removeprefix("v") for one in repositories for hook in one["hooks"]}


def test_ruff_of_pre_commit_is_the_locked_one() -> None:
    locked = re.findall(r"^ruff==[\d.]+", (ROOT / "requirements.lock").read_text(), re.MULTILINE)

    assert {hook for hook in hooks() if "ruff" in hook} == {"ruff-check", "ruff-format"}
    assert [f"ruff=={hooks()[hook]}" for hook in ("ruff-check", "ruff-format")] == locked * 2


def test_shellcheck_of_pre_commit_is_the_one_of_the_unit_tier() -> None:
    printed = subprocess.run(["shellcheck", "--version"], capture_output=True, text=True, check=True).stdout
    version = re.findall(r"^version: (.+)$", printed, re.MULTILINE)

    assert [hooks()["shellcheck"].rpartition(".")[0]] == version  # the last number is the one of the Python package


def test_owners_have_reviewers_and_approvers() -> None:
    owners = yaml.safe_load((ROOT / "OWNERS").read_text())

    assert set(owners) == {"approvers", "reviewers"}
    assert [role for role, names in owners.items() if not names] == []


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_form_has_what_github_demands_of_it(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    names = [part["id"] for part in asked]

    assert form["name"]
    assert form["description"]
    assert len(names) == len(set(names))
    assert [part["id"] for part in asked if not part["attributes"]["label"]] == []
    assert any(part.get("validations", {}).get("required") for part in asked)


def test_form_for_bugs_asks_for_versions_card_and_doctor() -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/bug.yaml").read_text())
    required = {part["id"]: part for part in form["body"] if part.get("validations", {}).get("required")}

    assert {"doctor", "version", "kubernetes", "kernel", "card"} <= set(required)
    assert "railnet doctor -o json" in required["doctor"]["attributes"]["description"]
