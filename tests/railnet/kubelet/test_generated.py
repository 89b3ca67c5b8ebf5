"""The generated modules and files of the tree are those that scripts/generate writes."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
PATTERNS = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


def generated(root: Path) -> dict[str, bytes]:
    folders = [root / "railnet/kubelet/api", root / "railnet/nri/api"]
    return {file.name: file.read_bytes() for folder in folders for pattern in PATTERNS for file in folder.glob(pattern)}


def of_chart(root: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (root / "charts/railnet/files/webhooks").iterdir()}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("generated")
    subprocess.run([sys.executable, REPOSITORY / "scripts" / "generate", root], check=True)
    return root


@pytest.mark.slow
def test_generate_writes_the_modules_of_the_tree(fresh: Path) -> None:
    assert generated(fresh) == generated(REPOSITORY)


@pytest.mark.slow
def test_generate_writes_the_charts_entries_of_the_webhook_configuration(fresh: Path) -> None:
    assert of_chart(fresh).keys() == {"pods.yaml", "pods-with-claims.yaml", "services.yaml", "gangs.yaml"}
    assert of_chart(fresh) == of_chart(REPOSITORY)


@pytest.mark.slow
def test_generate_writes_four_modules_per_proto_file(fresh: Path) -> None:
    protos = [file.stem for file in (REPOSITORY / "proto").rglob("*.proto")]

    assert sorted(generated(fresh)) == sorted(pattern.replace("*", stem) for stem in protos for pattern in PATTERNS)


def test_proto_file_names_are_unique() -> None:
    names = [file.name for file in (REPOSITORY / "proto").rglob("*.proto")]

    assert sorted(set(names)) == sorted(names)
