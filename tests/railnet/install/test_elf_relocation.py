"""A program made to run with a loader and libraries of its own: what the kernel and the loader then read of it."""

import re
import shutil
import struct
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from railnet.install import elf_relocation

PYTHON = Path(sys.executable).resolve()
LOAD, NOTE = 1, 4


@pytest.fixture(scope="module")
def program() -> bytes:
    return PYTHON.read_bytes()


def headers(program: bytes) -> list[tuple[int, ...]]:
    (table,) = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    return [struct.unpack_from("<IIQQQQQQ", program, table + size * number) for number in range(count)]


def test_program_names_its_new_loader(program: bytes) -> None:
    relocated = elf_relocation.relocate(program, "/a/long/way/down/ld.so", "/b")

    assert elf_relocation.interpreter(relocated) == "/a/long/way/down/ld.so"
    assert elf_relocation.interpreter(program).startswith("/lib")


@pytest.mark.slow
def test_relocation_changes_only_four_records(program: bytes) -> None:
    relocated = elf_relocation.relocate(program, "/a", "/b")

    changed = [place for place in range(len(program)) if program[place] != relocated[place]]
    assert relocated[len(program) :] == b"/a\0/b\0"
    assert len({place // 8 for place in changed}) <= 2 * 7 + 2  # two program headers and a dynamic entry, in words


def test_loaded_segments_stay_in_order_apart_and_congruent_to_their_offsets(program: bytes) -> None:
    loads = [header for header in headers(elf_relocation.relocate(program, "/a", "/b")) if header[0] == LOAD]

    assert len(loads) == 1 + len([header for header in headers(program) if header[0] == LOAD])
    for (_, _, _, low, _, _, size, _), (_, _, _, high, *_) in pairwise(loads):
        assert low + size <= high
    assert all((offset - vaddr) % align == 0 for _, _, offset, vaddr, _, _, _, align in loads)


def test_program_runs_with_the_libraries_of_its_folder_whatever_the_environment_says(tmp_path: Path) -> None:
    loader = Path(elf_relocation.interpreter(PYTHON.read_bytes()))
    listing = subprocess.run([loader, "--list", PYTHON], capture_output=True, text=True, check=True).stdout
    for library in (loader, *map(Path, re.findall(r"=> (/\S+)", listing))):
        shutil.copy(library, tmp_path)
    program = tmp_path / "program"
    program.write_bytes(elf_relocation.relocate(PYTHON.read_bytes(), str(tmp_path / loader.name), str(tmp_path)))
    program.chmod(0o755)

    done = subprocess.run(
        [program, "-ISE", "-c", "print(open('/proc/self/maps').read())"],
        env={"LD_LIBRARY_PATH": str(loader.parent), "PYTHONHOME": sys.base_prefix},
        capture_output=True,
        text=True,
        check=True,
    )

    mapped = {Path(path) for path in re.findall(r" (/\S+\.so[.\d]*)$", done.stdout, re.MULTILINE)}
    assert {path.parent for path in mapped if "python" not in str(path)} == {tmp_path}
    assert tmp_path / loader.name in mapped


def test_relocated_program_can_be_relocated_again(program: bytes) -> None:
    once = elf_relocation.relocate(program, "/a", "/b")

    assert elf_relocation.interpreter(elf_relocation.relocate(once, "/c", "/d")) == "/c"


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda program: b"#!/bin/sh\n", "not a little-endian ELF64"),
        (lambda program: program[:4] + b"\1" + program[5:], "not a little-endian ELF64"),
        (lambda program: without(program, 3), "linked statically"),
        (lambda program: without(program, NOTE), "no note"),
    ],
    ids=["script", "32-bit", "static", "no-note"],
)
def test_program_that_cannot_be_relocated_is_refused_with_the_reason(program: bytes, damage, says: str) -> None:
    with pytest.raises(elf_relocation.NotRelocatable, match=says):
        elf_relocation.relocate(damage(program), "/a", "/b")


def without(program: bytes, kind: int) -> bytes:
    """Make the program headers of a type meaningless (PT_NULL)."""
    (table,) = struct.unpack_from("<Q", program, 32)
    size, _ = struct.unpack_from("<HH", program, 54)
    damaged = bytearray(program)
    for number, header in enumerate(headers(program)):
        if header[0] == kind:
            struct.pack_into("<I", damaged, table + size * number, 0)
    return bytes(damaged)
