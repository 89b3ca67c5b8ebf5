"""Names inside functions say what the value is, and a class name stands for one class. CONTRIBUTING.md has the rules."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("cni", "deviceplugin", "railnet")
GENERATED = {ROOT / "railnet/kubelet/api", ROOT / "railnet/nri/api"}
BANNED = frozenset(("one", "found", "said", "made", "came", "begun", "to_come"))


def bindings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each variable and parameter that is bound; a class's fields are none."""
    nodes = list(ast.walk(ast.parse(source)))
    fields = {
        id(statement.target)
        for node in nodes
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    for node in nodes:
        if id(node) in fields:
            continue
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name


def sources(*packages: str) -> list[Path]:
    paths = (path for package in packages for path in sorted((ROOT / package).rglob("*.py")))
    return [path for path in paths if path.parent not in GENERATED]


def repeated_classes(modules: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the module-level classes that more than one file defines, with these files; a module is a file's name and its source."""
    files = defaultdict(list)
    for file, source in modules:
        for name in {statement.name for statement in ast.parse(source).body if isinstance(statement, ast.ClassDef)}:
            files[name].append(file)
    return {name: defining for name, defining in sorted(files.items()) if len(defining) > 1}


def test_no_local_name_of_product_and_benches_says_nothing_of_its_value() -> None:
    banned = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sources(*PRODUCT, "benches")
        for line, name in bindings(path.read_text())
        if name in BANNED
    ]

    assert banned == []


def test_class_name_of_the_product_stands_for_one_thing() -> None:
    repeated = repeated_classes((str(path.relative_to(ROOT)), path.read_text()) for path in sources(*PRODUCT))

    assert not repeated, "\n".join(f"{name}: {', '.join(files)}" for name, files in repeated.items())


def test_class_that_two_modules_define_is_repeated() -> None:
    modules = [
        ("a.py", "class Pod: ...\nclass Port:\n    class Rail: ..."),
        ("b.py", "class Pod: ...\nclass Rail: ..."),
    ]

    assert repeated_classes(modules) == {"Pod": ["a.py", "b.py"]}


def test_field_of_a_class_is_no_local() -> None:
    assert list(bindings("class Change:\n    found: int\n    def f(self): pod = 1")) == [(3, "self"), (3, "pod")]


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    found = 1",
        "def f(one): ...",
        "[one for one in ()]",
        "for made in (): ...",
        "with open('x') as said: ...",
        "(came := 1)",
        "lambda begun: 0",
        "first, *to_come = ()",
    ],
)
def test_each_form_of_a_binding_is_seen(source: str) -> None:
    assert {name for _, name in bindings(source)} & BANNED
