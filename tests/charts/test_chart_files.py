"""The chart as a package: its files, what helm's linter says, and the notes that an installation prints."""

import tarfile
from pathlib import Path

import pytest
import yaml

from railnet import VERSION
from tests.charts.rendered import CHART, NAMESPACE, helm

JUNK = (
    ".git",
    ".DS_Store",
    "values.yaml.orig",
    "templates/.role.yaml.swp",
    "templates/role.yaml.swp",
    "templates/role.yaml~",
    "railnet-0.4.0.tgz",
)


@pytest.mark.slow
def test_linter_has_nothing_to_say() -> None:
    done = helm("lint", "--strict", "--namespace", NAMESPACE, CHART)

    assert (done.returncode, done.stderr) == (0, "")
    said = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert said == ["[INFO] Chart.yaml: icon is recommended"]


@pytest.mark.slow
def test_package_has_the_files_of_the_chart_and_no_junk(tmp_path: Path) -> None:
    copy = tmp_path / "railnet"
    written = sorted(path.relative_to(CHART).as_posix() for path in CHART.rglob("*") if path.is_file())
    for name in (*written, *JUNK):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((CHART / name).read_bytes() if name in written else b"junk")

    done = helm("package", copy, "--destination", tmp_path)

    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / f"railnet-{VERSION}.tgz") as package:
        names = sorted(name.removeprefix("railnet/") for name in package.getnames())
    assert names == [name for name in written if name != ".helmignore"]
    folders = {name.partition("/")[0] for name in names}
    assert folders == {"Chart.yaml", "examples", "files", "templates", "values.schema.json", "values.yaml"}


@pytest.mark.slow
@pytest.mark.parametrize("provision", [[], [{"pf": "0000:03:00.0", "vfs": 8}]], ids=["as found", "provisioned"])
def test_notes_say_how_to_look_at_the_nodes(provision: list[dict[str, str]]) -> None:
    values = yaml.safe_dump({"node": {"configuration": {"provision": provision}}})
    options = ("--namespace", NAMESPACE, "--dry-run=client", "--values", "-")

    done = helm("install", "railnet", CHART, *options, values=values)

    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("\nNOTES:\n")[2]
    assert notes.startswith(f"Railnet {VERSION}: a pod with `rdma/ib_vf: 1` in its limits gets")
    assert "kubectl -n railnet rollout status daemonset/railnet" in notes
    assert ("Railnet offers the VFs that it finds" in notes) is (not provision)
    assert "{{" not in notes
