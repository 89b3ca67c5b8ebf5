"""What holds for every test: a missing tool fails, it does not skip; properties are tried without a clock or a memory."""

import os
from collections.abc import Generator

import pytest
from hypothesis import settings

# A slow machine is no failure, and what one run found is not kept for the next.
settings.register_profile("railnet", deadline=None, database=None)
settings.load_profile("railnet")


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
