"""What holds for every test: a missing tool fails, it does not skip."""

import os
from collections.abc import Generator

import pytest


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
