"""`scripts/build-cluster-programs`: an incomplete build is tried again, is refused by its name, and is never taken from the cache.

The script runs in a tree of its own, whose Go is a script that a test writes.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# `go build … -o FOLDER/ PACKAGE` does in the folder what the test says; `go list` names the folder of the program's own module.
GO = """#!/bin/bash
case $1 in
    version) echo "go version go99.0.0 linux/amd64" ;;
    build)
        while [[ $1 != -o ]]; do shift; done
        cd "$2" && eval "$BUILD" ;;
    list) echo "$MODULE" ;;
esac
"""
COMPLETE = "cp /bin/true toy; ln -s toy also-toy"
INCOMPLETE = {
    "a link that leads to nothing": (
        "cp /bin/true toy; ln -s gone also-toy",
        "links that lead to no program: {}/also-toy",
    ),
    "an empty program": ("touch toy; chmod +x toy; cp /bin/true other", "empty files: {}/toy"),
    "no program": ("true", "no program was built"),
    "a compiler that fails": ("cp /bin/true toy; echo toy.go:1: no; false", "toy.go:1: no"),
}


class Tree:
    """A checkout with modules that have no code, and an empty cache.

    Attributes:
        cache: the folder where builds are kept.
        module: what Go has fetched of the program's own module.
    """

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache/programs"
        self.module = folder / "module"
        self._folder = folder
        (folder / "scripts").mkdir()
        for name in ("setup", "build-cluster-programs"):
            shutil.copy2(ROOT / "scripts" / name, folder / "scripts")
        shutil.copy2(ROOT / "requirements.lock", folder)
        for name in ("toy", "dra-example-driver"):
            (folder / "tests/programs" / name).mkdir(parents=True)
            (folder / "tests/programs" / name / "go.mod").write_text(f"module example.com/tests/{name}\n")
        (folder / "bin").mkdir()
        (folder / "bin/go").write_text(GO)
        (folder / "bin/go").chmod(0o755)

    def run(self, build: str, name: str = "toy") -> subprocess.CompletedProcess[str]:
        """Run the script for a module, whose build is these lines of bash."""
        environment = {
            **os.environ,
            "BUILD": build,
            "MODULE": str(self.module),
            "RAILNET_CACHE": str(self._folder / "cache"),
            "PATH": f"{self._folder}/bin:{os.environ['PATH']}",
        }
        command = [self._folder / "scripts/build-cluster-programs", name]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def kept(self) -> list[str]:
        """Return the names of the builds that a later run would take, without their hashes."""
        return [path.name.rpartition("-")[0] for path in self.cache.iterdir() if not path.name.startswith("new-")]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.mark.parametrize(("build", "reason"), INCOMPLETE.values(), ids=INCOMPLETE.keys())
def test_incomplete_build_is_tried_again_then_refused_by_name_and_not_kept(tree: Tree, build: str, reason: str) -> None:
    done = tree.run(build)
    (folder,) = (path for path in tree.cache.iterdir() if path.is_dir())
    reason = reason.format(folder)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "setup: building toy",
        f"setup: building toy failed at the first try: {reason}",
        f"setup: building toy failed at the second try: {reason}",
        f"scripts/setup: toy cannot be built (tests/programs/toy); all that Go printed is in {folder}.log",
    ]
    assert tree.kept() == []


def test_run_after_a_refused_build_builds_anew_and_leaves_the_complete_build_alone(tree: Tree) -> None:
    refused = tree.run("ln -s gone toy")
    done = tree.run(COMPLETE)
    again = tree.run("false")

    assert refused.returncode == 1
    assert (done.returncode, again.returncode) == (0, 0)
    assert again.stdout == done.stdout
    assert again.stderr == ""
    assert sorted(path.name for path in Path(done.stdout.strip()).iterdir()) == ["also-toy", "toy"]
    assert [path.name for path in tree.cache.iterdir()] == [Path(done.stdout.strip()).name]


def test_build_that_fails_once_is_complete_after_the_second_try(tree: Tree, tmp_path: Path) -> None:
    done = tree.run(f"[[ -e {tmp_path}/tried ]] || {{ touch {tmp_path}/tried half; exit 1; }}; {COMPLETE}")

    assert done.returncode == 0
    assert "failed at the first try" in done.stderr
    assert sorted(path.name for path in Path(done.stdout.strip()).iterdir()) == ["also-toy", "toy"]
    assert tree.kept() == ["toy"]


def test_program_has_the_name_of_its_module_and_the_chart_beside_it(tree: Tree) -> None:
    """The script renames the one file of the folder: nothing else may be in it at that time."""
    chart = tree.module / "deployments/helm/dra-example-driver"
    chart.mkdir(parents=True)
    (chart / "Chart.yaml").write_text("name: dra-example-driver\n")
    done = tree.run("cp /bin/true dra-example-kubeletplugin", "dra-example-driver")
    folder = Path(done.stdout.strip())

    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["chart", "dra-example-driver"]
    assert (folder / "chart/Chart.yaml").exists()


def test_program_without_the_chart_of_its_module_is_not_complete(tree: Tree) -> None:
    done = tree.run("cp /bin/true dra-example-kubeletplugin", "dra-example-driver")

    assert done.returncode == 1
    assert "deployments/helm/dra-example-driver" in done.stderr
    assert tree.kept() == []
