"""What holds for every test: a missing tool fails, it does not skip; properties have no clock and no memory; figures are told last."""

import os
from collections.abc import Callable, Generator

import pytest
from hypothesis import settings

# A slow machine is no failure, and what one run found is not kept for the next.
# One run tries what the one before tried, so that none fails for what nobody changed; scripts/fuzz --seed looks further.
settings.register_profile("railnet", deadline=None, database=None, derandomize=True)
settings.load_profile("railnet")

_measured = pytest.StashKey[list[str]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Judge one test."""
    return fail_if_skipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Judge a module that may skip as a whole."""
    return fail_if_skipped((yield))


def fail_if_skipped(report):
    """Turn a skip into a failure where scripts/test asks for it: a test that was skipped has proved nothing."""
    if report.skipped and not hasattr(report, "wasxfail") and "RAILNET_NO_SKIP" in os.environ:
        report.outcome = "failed"
        report.longrepr = f"skipped, which counts as failed: {report.longrepr}"
    return report


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_measured] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash[_measured]:
        terminalreporter.write_line(f"measured: {line}")


@pytest.fixture(scope="session")
def measured(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Say something at the end of the run."""
    return request.config.stash[_measured].append
