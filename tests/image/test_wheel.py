"""The wheel on a user's machine: installed by pip, beside the user's own folders, with the packages of the command line alone."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.image.built import ROOT

# Folders that repositories have, and that were packages of Railnet's wheel up to 0.5.
EVERYDAY = ("admission", "apiserver", "controllers", "jobs", "kernel", "kubelet", "tests", "training", "vf")
NOT_ON_A_LAPTOP = {"aiohttp", "grpcio", "protobuf", "pyroute2", "pyroute2-minimal", "pyudev"}
JOB = "name: mnist\nimage: example/train:1\ncommand: [python, /train.py]\nworkers: 2\n"
POD = '{"kind": "Pod", "metadata": {"name": "train-0"}, "spec": {"containers": [{"name": "main"}]}}'

# As the tests' own, without their path to this checkout: pip's index, proxies, certificates.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "HOME", "KUBECONFIG")}


class Laptop:
    """A project of a user, with an environment of its own in which Railnet is installed."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.python = folder / "venv/bin/python"
        for name in EVERYDAY:
            (self.project / name).mkdir(parents=True)
            (self.project / name / "__init__.py").write_text(
                f"raise SystemExit('{name} of the project was imported')\n"
            )
        (self.project / "job.yaml").write_text(JOB)
        (self.project / "pod.json").write_text(POD)

    def installs(self, *packages: str | Path) -> None:
        done = self.run(sys.executable, "-m", "pip", "--python", self.python, "install", "-qq", "--no-input", *packages)
        assert done.returncode == 0, done.stderr

    def railnet(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.python.with_name("railnet"), *arguments, **environment)

    def run(self, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.project,
            env={**ENVIRONMENT, "HOME": str(self.project), **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    def packages(self) -> set[str]:
        listed = self.run(sys.executable, "-m", "pip", "--python", self.python, "list", "--format=freeze").stdout
        return {line.partition("==")[0].lower() for line in listed.splitlines()}


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Laptop:
    folder = tmp_path_factory.mktemp("laptop")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder], cwd=ROOT, check=True
    )
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    laptop = Laptop(folder)
    # Without hashes: pip would demand one of Railnet's own wheel, too.
    pins = re.findall(r"^\S+==\S+", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    (folder / "versions").write_text("\n".join(pins))
    laptop.installs("--constraint", folder / "versions", next(folder.glob("*.whl")))
    return laptop


def test_command_line_is_installed_without_the_packages_of_a_node(laptop: Laptop) -> None:
    packages = laptop.packages()

    assert {"railnet", "argcomplete", "kubernetes", "pyyaml"} <= packages
    assert packages & NOT_ON_A_LAPTOP - {"aiohttp"} == set()  # aiohttp comes with kubernetes


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["version"], 0, ""),
        (["train", "up", "-f", "job.yaml"], 3, "there is no kubeconfig"),
        (["train", "ls"], 3, "there is no kubeconfig"),
        (["validate"], 3, "there is no kubeconfig"),
        (["doctor", "--cluster"], 3, "there is no kubeconfig"),
        (["doctor", "--pod", "train-0"], 3, "there is no kubeconfig"),
        (["admission", "explain", "-f", "pod.json"], 0, ""),
        (["node", "--no-supervisor"], 3, "pip install 'railnet[node]'"),
        (["admission"], 3, "pip install 'railnet[webhook]'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_command_finds_its_own_modules_in_a_project_with_folders_of_everyday_names(
    laptop: Laptop, arguments: list[str], status: int, words: str
) -> None:
    done = laptop.railnet(*arguments, PYTHONPATH=".")

    assert done.returncode == status, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_plugin_of_kubectl_is_the_same_program(laptop: Laptop) -> None:
    done = laptop.run(laptop.python.with_name("kubectl-railnet"), "train")

    assert done.returncode == 2
    assert done.stderr.startswith("usage: kubectl railnet train")


def test_wheel_has_no_file_below_an_everyday_name(laptop: Laptop) -> None:
    done = laptop.run(sys.executable, "-m", "pip", "--python", laptop.python, "show", "--files", "railnet")
    files = done.stdout.partition("Files:\n")[2].split()

    assert {name.partition("/")[0] for name in files if name.endswith(".py")} == {"cni", "deviceplugin", "railnet"}
