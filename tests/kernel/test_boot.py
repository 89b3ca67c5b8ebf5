"""When the machine started, as the kernel tells it."""

import time
from pathlib import Path

import pytest

from kernel.boot import boot_time


def test_boot_is_as_long_ago_as_the_machine_has_been_up() -> None:
    assert boot_time() == pytest.approx(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME), abs=2)


def test_kernel_that_does_not_say_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu 1 2 3\n")

    with pytest.raises(ValueError, match="no btime"):
        boot_time(tmp_path / "stat")
