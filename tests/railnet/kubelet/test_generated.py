"""The generated modules of the tree are those that scripts/generate writes."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
PATTERNS = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


def generated(root: Path) -> dict[str, bytes]:
    folder = root / "railnet" / "kubelet" / "api"
    return {file.name: file.read_bytes() for pattern in PATTERNS for file in folder.glob(pattern)}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    root = tmp_path_factory.mktemp("generated")
    subprocess.run([sys.executable, REPOSITORY / "scripts" / "generate", root], check=True)
    return generated(root)


@pytest.mark.slow
def test_generate_writes_the_modules_of_the_tree(fresh: dict[str, bytes]) -> None:
    assert fresh == generated(REPOSITORY)


def test_generate_writes_four_modules_per_proto_file(fresh: dict[str, bytes]) -> None:
    protos = [file.stem for file in (REPOSITORY / "proto").rglob("*.proto")]

    assert sorted(fresh) == sorted(pattern.replace("*", stem) for stem in protos for pattern in PATTERNS)


def test_proto_file_names_are_unique() -> None:
    names = [file.name for file in (REPOSITORY / "proto").rglob("*.proto")]

    assert sorted(set(names)) == sorted(names)
