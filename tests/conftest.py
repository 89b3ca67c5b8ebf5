"""Rules for all tests: a missing tool fails the test, properties are deterministic, no quick test waits, measured figures are printed last."""

import functools
import gc
import logging
import os
import re
from collections.abc import Callable, Collection, Generator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.shared_modules import SharedModules
from tests.waiting_limit import WaitingLimit

# No deadline: a slow machine is no failure. No database, and derandomized: every run tries the same inputs, so an unchanged
# tree cannot begin to fail. scripts/fuzz --seed tries other inputs.
settings.register_profile("railnet", deadline=None, database=None, derandomize=True)
settings.load_profile("railnet")

# A gRPC server that was never started logs itself at DEBUG while it is freed (AioServer.__dealloc__ in grpcio 1.85). A record that pytest
# keeps refers to freed memory then, and the process dies when the record is freed, in any later test.
logging.getLogger("grpc").setLevel(logging.INFO)

_TESTS = Path(__file__).parent
_MODULES = sorted(_TESTS.rglob("test_*.py"))
_LAST_LINES = 25
_measured = pytest.StashKey[list[str]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a skipped test."""
    return fail_if_skipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a module that skips as a whole."""
    return fail_if_skipped((yield))


def fail_if_skipped(report):
    """Turn a skip into a failure if scripts/test requests it: a skipped test has proved nothing."""
    if report.skipped and not hasattr(report, "wasxfail") and "RAILNET_NO_SKIP" in os.environ:
        report.outcome = "failed"
        report.longrepr = f"skipped, which counts as failed: {report.longrepr}"
    return report


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the modules of the other parts, because scripts/test runs some tiers in several processes at once.

    Processes that share their modules collect all.
    """
    part, parts = map(int, os.environ.get("RAILNET_MODULES_PART", "0/1").split("/"))
    if "RAILNET_MODULES_TAKEN" in os.environ:
        return None
    is_of_another_part = collection_path in _MODULES and _MODULES.index(collection_path) % parts != part
    return is_of_another_part or None


def pytest_collection_finish() -> None:
    """Exempt the thousands of collected tests from garbage collection: a collection would look at each of them again and again."""
    gc.freeze()


class FailuresAtOnce:
    """Prints the end of each failure when it happens: a later test that hangs ends the process, and with it the report."""

    def __init__(self, config: pytest.Config) -> None:
        """Print to the terminal of a run; a worker of a run with several processes has none."""
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print it."""
        terminal: pytest.TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line(f"\nfailed: {report.nodeid} ({report.when})")
            for line in report.longreprtext.splitlines()[-_LAST_LINES:]:
                terminal.write_line(f"  {line}")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_measured] = []
    config.pluginmanager.register(FailuresAtOnce(config))
    config.pluginmanager.register(WaitingLimit(1, is_quick))
    taken = os.environ.get("RAILNET_MODULES_TAKEN")
    if taken:
        config.pluginmanager.register(SharedModules(Path(taken)))


def is_quick(test: pytest.Item) -> bool:
    """Return whether `scripts/test quick` runs a test."""
    return test.get_closest_marker("slow") is None and test.path.relative_to(_TESTS).parts[0] not in folders_apart()


@functools.cache
def folders_apart() -> Collection[str]:
    """Return the folders whose tests need another machine; scripts/test names them."""
    apart = re.search(r"^apart=\((.+?)\)", (_TESTS.parent / "scripts/test").read_text(), re.MULTILINE)
    assert apart
    return apart[1].split()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash[_measured]:
        terminalreporter.write_line(f"measured: {line}")


@pytest.fixture(scope="session")
def measured(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return a function that prints a line at the end of the run."""
    return request.config.stash[_measured].append
