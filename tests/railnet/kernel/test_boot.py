"""The time of the boot, as the kernel reports it."""

import time
from pathlib import Path

import pytest

from railnet.kernel.boot import boot_time


def test_boot_time_is_now_less_the_uptime() -> None:
    assert boot_time() == pytest.approx(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME), abs=2)


def test_missing_btime_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu 1 2 3\n")

    with pytest.raises(ValueError, match="no btime"):
        boot_time(tmp_path / "stat")
