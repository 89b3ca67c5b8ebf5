"""A module that is imported at its first use: it is not there before, and then it is the real one, in whichever thread."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest

from railnet.daemon.process import late_imports

NAME = "railnet_late_import_sample"


@pytest.fixture
def executions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make a module of this name that notes each execution of its code; return the notes."""
    notes: list[str] = []
    monkeypatch.setattr(sys, "executions_of_the_sample", notes, raising=False)
    (tmp_path / f"{NAME}.py").write_text(
        "import sys, time\nsys.executions_of_the_sample.append(__name__)\ntime.sleep(0.01)\nANSWER = 42\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    return notes


def test_module_is_imported_when_one_of_its_names_is_looked_up(executions: list[str]) -> None:
    late_imports.postpone([NAME])
    sample = import_module(NAME)

    assert executions == []
    assert sample.ANSWER == 42
    assert sample.ANSWER == 42
    assert (executions, sys.modules[NAME].ANSWER) == ([NAME], 42)


def test_name_is_imported_from_it_as_ever(executions: list[str]) -> None:
    late_imports.postpone([NAME])
    names: dict[str, object] = {}

    exec(f"from {NAME} import ANSWER", names)  # noqa: S102 - mypy knows no module of this name

    assert (names["ANSWER"], executions) == (42, [NAME])


def test_name_that_it_does_not_have_is_an_attribute_error(executions: list[str]) -> None:
    late_imports.postpone([NAME])
    sample = import_module(NAME)

    with pytest.raises(AttributeError, match="NONE"):
        _ = sample.NONE
    assert executions == [NAME]


def test_threads_that_use_it_at_the_same_moment_have_one_module(executions: list[str]) -> None:
    late_imports.postpone([NAME])
    sample = sys.modules[NAME]

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: sample.ANSWER, range(64)))

    assert (answers, executions) == ([42] * 64, [NAME])


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in late_imports._GIVEN.items() for name in names]
)
def test_name_that_is_given_is_the_one_that_the_module_has(module: str, name: str) -> None:
    assert late_imports._GIVEN[module][name] is getattr(import_module(module), name)


def test_module_that_is_imported_already_or_not_there_stays_as_it_is() -> None:
    late_imports.postpone(["json", "railnet_no_such_module", "railnet_no_such_package.module"])

    assert sys.modules["json"].loads("1") == 1
    assert "railnet_no_such_module" not in sys.modules


@pytest.mark.slow
def test_daemon_serves_without_any_of_these_modules() -> None:
    program = (
        "import sys; from railnet.daemon.process import late_imports; late_imports.postpone(); "
        "import railnet.daemon_process, railnet.configuration, railnet.daemon.composition, railnet.daemon.process.heartbeat; "
        "import pyudev; pyudev.Monitor.from_netlink(pyudev.Context(), source='kernel'); "
        "print([name for name in late_imports.MODULES if '__getattr__' not in vars(sys.modules[name])])"
    )

    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"[]\n"
