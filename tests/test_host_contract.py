"""What runs on the host imports nearly nothing. Imports are read from the source, so that also those that do not run count.

`tests/test_layers.py` proves the coarse rule by import-linter; this one is a list of what is allowed, not of what is not.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from railnet.install.python_bundle import STANDARD_MODULES

ROOT = Path(__file__).resolve().parent.parent
ENTRY = ROOT / "cni/host/plugin.py"
OF_KUBELET = ("railnet.kubelet.checkpoint", "railnet.kubelet.dra_driver_name", "railnet.kubelet.dra_manager_state")
HOST_MODULES = [
    *sorted((ROOT / "cni/host").rglob("*.py")),
    *(ROOT / f"{module.replace('.', '/')}.py" for module in OF_KUBELET),
]
# Imported before any module in them.
PARENTS = [ROOT / f"{folder}/__init__.py" for folder in ("cni", "railnet", "railnet/kubelet")]

PACKAGES = ("cni", "cni.host", "railnet", "railnet.kubelet")
OURS = ("cni.host", *OF_KUBELET)
BUILT_IN = frozenset(sys.builtin_module_names)
SLOW_LANE = BUILT_IN | frozenset(STANDARD_MODULES)


def is_guard(node: ast.AST) -> bool:
    """Return whether a node is `if TYPE_CHECKING:`, whose body never runs."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports(node: ast.AST, *, inside_functions: bool) -> Iterator[str]:
    """Return the dotted name of every module that a piece of source imports."""
    below: list[ast.AST] = list(ast.iter_child_nodes(node))
    match node:
        case ast.Import():
            yield from (alias.name for alias in node.names)
        case ast.ImportFrom():
            base = "." * node.level + (node.module or "")
            # What is imported from a package of ours is a module; from anything else it may be any name.
            yield from ([f"{base}.{alias.name}" for alias in node.names] if base in PACKAGES else [base])
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() if not inside_functions:
            below = []
        case ast.If() if is_guard(node):
            below = [*node.orelse]
    for child in below:
        yield from imports(child, inside_functions=inside_functions)


def is_ours(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in OURS)


def refused(source: str, allowed: frozenset[str], *, inside_functions: bool) -> list[str]:
    """Return the imports that are neither allowed nor our own host code."""
    found = imports(ast.parse(source), inside_functions=inside_functions)
    return [name for name in found if name not in allowed and not is_ours(name)]


def source_of(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def fast_lane() -> set[Path]:
    """Return the executable and everything of ours it imports before its first line of work."""
    seen: set[Path] = set()
    waiting = [ENTRY]
    while waiting:
        path = waiting.pop()
        if path in seen or not path.exists():
            continue
        seen.add(path)
        names = imports(ast.parse(path.read_text()), inside_functions=False)
        waiting += [source_of(name) for name in names if is_ours(name)]
    return seen


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", HOST_MODULES, ids=name_of)
def test_host_module_imports_only_what_the_bundle_has(path: Path):
    assert refused(path.read_text(), SLOW_LANE, inside_functions=True) == []


@pytest.mark.parametrize("path", sorted(fast_lane()), ids=name_of)
def test_fast_lane_starts_with_built_in_modules_only(path: Path):
    assert refused(path.read_text(), BUILT_IN, inside_functions=False) == []


@pytest.mark.parametrize("path", PARENTS, ids=name_of)
def test_package_around_a_host_module_imports_nothing(path: Path):
    assert list(imports(ast.parse(path.read_text()), inside_functions=True)) == []


def test_fast_lane_begins_at_the_executable():
    assert ENTRY in fast_lane()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import dataclasses", ["dataclasses"]),
        ("from typing import NamedTuple", ["typing"]),
        ("try:\n    import posix\nexcept ImportError:\n    import asyncio", ["asyncio"]),
        ("def late():\n    import grpc", ["grpc"]),
        ("class Late:\n    def late(self):\n        from railnet.vf.guid import Guid", ["railnet.vf.guid"]),
        ("from cni import server", ["cni.server"]),
        ("from . import server", ["."]),
        ("import cni.hostile", ["cni.hostile"]),
        ("from railnet.kubelet import podresources", ["railnet.kubelet.podresources"]),
        ("if TYPE_CHECKING:\n    import typing\nelse:\n    import logging", ["logging"]),
        ("import posix, sys\nfrom cni.host import frames\nfrom railnet.kubelet import checkpoint", []),
    ],
)
def test_contract_refuses_a_planted_import(source: str, expected: list[str]):
    assert refused(source, SLOW_LANE, inside_functions=True) == expected


def test_fast_lane_may_import_more_inside_a_function_only():
    assert refused("def late():\n    import json", BUILT_IN, inside_functions=False) == []
    assert refused("if True:\n    import json", BUILT_IN, inside_functions=False) == ["json"]
