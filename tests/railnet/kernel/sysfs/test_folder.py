"""A folder of sysfs: files and links that exist, and absent ones."""

import errno
import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from railnet.kernel.sysfs.folder import SysfsFolder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[SysfsFolder]:
    (tmp_path / "net/ib0").mkdir(parents=True)
    (tmp_path / "net/ib0/mtu").write_text("4092\n")
    (tmp_path / "class").write_text("0x020700\n")
    (tmp_path / "driver").symlink_to("../../bus/pci/drivers/mlx5_core")
    with SysfsFolder(str(tmp_path)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("name", "text"),
    [("class", "0x020700"), ("net/ib0/mtu", "4092"), ("device", None), ("class/mtu", None), ("net", None)],
    ids=["a file", "a file in a subfolder", "absent", "below a file", "unreadable"],
)
def test_text_is_the_files_content_or_none(folder: SysfsFolder, name: str, text: str | None) -> None:
    assert folder.text(name) == text


@pytest.mark.parametrize(("number", "raises"), [(errno.ENODEV, False), (errno.EMFILE, True)], ids=["ENODEV", "EMFILE"])
def test_text_of_a_device_that_goes_away_is_none_and_other_errors_are_raised(
    folder: SysfsFolder, monkeypatch: pytest.MonkeyPatch, number: int, raises: bool
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)

    with pytest.raises(OSError, match="Too many") if raises else nullcontext():
        assert folder.text("class") is None


@pytest.mark.parametrize(("name", "number"), [("class", 0x020700), ("net/ib0/mtu", 4092), ("device", -1)])
def test_number_is_decimal_or_hexadecimal(folder: SysfsFolder, name: str, number: int) -> None:
    assert folder.number(name, -1) == number


@pytest.mark.parametrize(("name", "names"), [("net", ["ib0"]), (".", ["class", "driver", "net"]), ("infiniband", [])])
def test_names_are_sorted(folder: SysfsFolder, name: str, names: list[str]) -> None:
    assert folder.names(name) == names


@pytest.mark.parametrize(("name", "target"), [("driver", "mlx5_core"), ("physfn", None)])
def test_target_is_the_last_part_of_a_links_target(folder: SysfsFolder, name: str, target: str | None) -> None:
    assert folder.target(name) == target


def test_absent_folder_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SysfsFolder(str(tmp_path / "0000:99:00.0"))


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    before = sorted(Path("/proc/self/fd").iterdir())
    with SysfsFolder(str(tmp_path)) as folder:
        folder.text("absent")
        folder.names(".")

    assert sorted(Path("/proc/self/fd").iterdir()) == before
