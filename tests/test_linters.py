"""The linters are tests: what they refuse fails the build, wherever it is run."""

import hashlib
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SHELL = ("#!/usr/bin/env bash", "#!/bin/bash", "#!/bin/sh")


def run(*command: str | Path) -> None:
    """Run a linter at the root and fail with what it printed."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def shell_scripts() -> Iterator[Path]:
    for folder in ("scripts", ".ci", "daemonset", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.read_bytes().startswith(tuple(line.encode() for line in SHELL)):
                yield path


def test_source_is_formatted():
    run(sys.executable, "-m", "ruff", "format", "--no-cache", "--check", ".")


def test_source_passes_ruff():
    run(sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise", ".")


def test_source_passes_mypy():
    run(sys.executable, "-m", "mypy")


def test_shell_scripts_pass_shellcheck():
    """It reads `scripts/setup` again with each script, which takes seconds. So scripts that have passed are not checked again."""
    scripts = list(shell_scripts())
    passed = passed_file(scripts)
    if passed is None or not passed.exists():
        run("shellcheck", "--external-sources", *scripts)
        if passed is not None:
            passed.parent.mkdir(exist_ok=True)
            passed.touch()


def passed_file(scripts: Iterable[Path]) -> Path | None:
    """Return the file in the cache that exists if this shellcheck has passed these scripts; None if scripts/setup names no folder."""
    version = subprocess.run(["shellcheck", "--version"], capture_output=True, check=True).stdout
    contents = [part for path in scripts for part in (str(path.relative_to(ROOT)).encode(), path.read_bytes())]
    folder = os.environ.get("RAILNET_SHELLCHECK_PASSED")
    return None if folder is None else Path(folder, hashlib.sha256(b"\0".join([version, *contents])).hexdigest())


def test_scripts_that_have_passed_shellcheck_are_checked_again_after_a_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAILNET_SHELLCHECK_PASSED", str(tmp_path))
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    first, second = tmp_path / "first", tmp_path / "second"
    files = set()
    for text in ("echo", "echo 1"):
        first.write_text(text)
        second.write_text("echo")
        files |= {passed_file([first, second]), passed_file([first])}

    assert len(files) == 4
    assert all(path is not None and path.parent == tmp_path for path in files)


def test_every_package_is_typed():
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    packages = tool["importlinter"]["root_packages"]

    assert tool["mypy"]["packages"] == packages
    assert [package for package in packages if not (ROOT / package / "py.typed").exists()] == []


def test_modules_that_shell_scripts_name_exist():
    """A shell script runs `python -m MODULE`, and Python of its own by `from PACKAGE import NAME`; no linter looks into it."""
    texts = [path.read_text() for path in shell_scripts()]
    run_by_name = {
        name for text in texts for name in re.findall(r"python -m ((?:benches|railnet|simnode|tests)[\w.]*)", text)
    }
    imported = {
        pair
        for text in texts
        for pair in re.findall(r"^from ((?:railnet|simnode)[\w.]*) import (\w+)$", text, re.MULTILINE)
    }

    assert "simnode.demo" in run_by_name
    assert imported != set()
    assert {name for name in run_by_name if importlib.util.find_spec(name) is None} == set()
    assert {
        (package, name)
        for package, name in imported
        if not hasattr(importlib.import_module(package), name) and importlib.util.find_spec(f"{package}.{name}") is None
    } == set()


def locked() -> dict[str, str]:
    """Return the version of each package of requirements.lock."""
    pins = re.findall(r"^(\S+)==(\S+) \\$", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in pins}


def test_environment_is_the_lock_file():
    assert {f"{name} {version}" for name, version in locked().items() if metadata.version(name) != version} == set()


@pytest.mark.parametrize("line", dict.fromkeys(sum(PROJECT["optional-dependencies"].values(), PROJECT["dependencies"])))
def test_lock_file_holds_every_dependency_in_range(line: str):
    wanted = Requirement(line)

    assert wanted.specifier.contains(locked()[canonicalize_name(wanted.name)])
