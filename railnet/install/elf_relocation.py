"""Make a dynamically linked program run with a loader and libraries of its own. Pure: bytes to bytes, ELF64 little-endian.

Sources: elf(5); the generic ABI, chapters 4 and 5; binfmt_elf.c for what the kernel asks of PT_INTERP.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

_LOAD, _DYNAMIC, _INTERP, _NOTE = 1, 2, 3, 4
_DT_NULL, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 0, 5, 15, 29
_READABLE = 4
_ALIGNMENT = 0x10000  # the largest page of any machine Linux has CPython for
_DYNAMIC_ENTRY = struct.Struct("<qQ")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_HEADER_BYTES = 64


class NotRelocatable(ValueError):
    """The program is not what this module understands; the message says why."""


class _Segment(NamedTuple):
    """A program header, in its order on disk."""

    kind: int
    flags: int
    offset: int
    vaddr: int
    paddr: int
    filesz: int
    memsz: int
    align: int


def interpreter(program: bytes) -> str:
    """Return the path of the loader that the kernel starts the program by.

    Raises:
        NotRelocatable: it has none, or is no ELF64 program.
    """
    _, segment = _only(program, _INTERP)
    try:
        return program[segment.offset : segment.offset + segment.filesz].rstrip(b"\0").decode()
    except UnicodeDecodeError:
        raise NotRelocatable("the path of its loader is not text") from None


def relocate(program: bytes, loader: str, libraries: str) -> bytes:
    """Have the program started by `loader`, and its libraries looked for in the folder `libraries` before any other.

    Both are absolute paths on the machine it will run on. They go to the end of the file, into a segment that takes the
    program header of a note, as nothing reads notes at run time; the folder is a DT_RPATH, which, unlike DT_RUNPATH,
    LD_LIBRARY_PATH does not override and libraries inherit.

    Raises:
        NotRelocatable: it has no note, or no room in its dynamic section (binutils leaves five entries free).
    """
    try:
        return _relocated(program, loader, libraries)
    except (struct.error, OverflowError) as error:
        raise NotRelocatable(f"what its headers say goes beyond it: {error}") from None


def _relocated(program: bytes, loader: str, libraries: str) -> bytes:
    paths = loader.encode() + b"\0" + libraries.encode() + b"\0"
    segments = dict(_segments(program))
    end = max((segment.vaddr + segment.memsz for segment in segments.values() if segment.kind == _LOAD), default=0)
    vaddr = -(-end // _ALIGNMENT) * _ALIGNMENT + len(program) % _ALIGNMENT
    added = _Segment(_LOAD, _READABLE, len(program), vaddr, vaddr, len(paths), len(paths), _ALIGNMENT)
    place, _ = _only(program, _INTERP)
    length = len(loader.encode()) + 1

    relocated = bytearray(program + paths)
    _PROGRAM_HEADER.pack_into(relocated, _spare(segments), *added)
    _PROGRAM_HEADER.pack_into(relocated, place, *added._replace(kind=_INTERP, filesz=length, memsz=length, align=1))
    _set_rpath(relocated, vaddr + length)
    return bytes(relocated)


def _segments(program: bytes) -> Iterator[tuple[int, _Segment]]:
    """Return each program header with its place in the file."""
    if program[:6] != b"\x7fELF\2\1" or len(program) < _HEADER_BYTES:
        raise NotRelocatable("it is not a little-endian ELF64 program")
    (table,) = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    if size < _PROGRAM_HEADER.size or table + size * count > len(program):
        raise NotRelocatable(f"it is shorter than its {count} program headers")
    for place in range(table, table + size * count, size):
        yield place, _Segment(*_PROGRAM_HEADER.unpack_from(program, place))


def _only(program: bytes, kind: int) -> tuple[int, _Segment]:
    headers = [(place, segment) for place, segment in _segments(program) if segment.kind == kind]
    if len(headers) != 1:
        raise NotRelocatable(f"it has {len(headers)} program headers of type {kind}, not 1: is it linked statically?")
    return headers[0]


def _spare(segments: dict[int, _Segment]) -> int:
    """Return the place of a note behind the loaded segments, which have to stand in the order of their addresses."""
    last_load = max((place for place, segment in segments.items() if segment.kind == _LOAD), default=0)
    notes = [place for place, segment in segments.items() if segment.kind == _NOTE and place > last_load]
    if not notes:
        raise NotRelocatable("it has no note behind its loaded segments, whose program header could be used")
    return notes[0]


def _set_rpath(program: bytearray, vaddr: int) -> None:
    _, dynamic = _only(bytes(program), _DYNAMIC)
    places = range(dynamic.offset, dynamic.offset + dynamic.filesz, _DYNAMIC_ENTRY.size)
    tags = {place: _DYNAMIC_ENTRY.unpack_from(program, place) for place in places}
    strings = next((value for tag, value in tags.values() if tag == _DT_STRTAB), None)
    if strings is None:
        raise NotRelocatable("its dynamic section names no strings")
    present = [place for place, (tag, _) in tags.items() if tag in (_DT_RPATH, _DT_RUNPATH)]
    free = [place for place, (tag, _) in tags.items() if tag == _DT_NULL]
    if not present and len(free) < 2:  # noqa: PLR2004 - the last one ends the table
        raise NotRelocatable("its dynamic section has no free entry")
    _DYNAMIC_ENTRY.pack_into(program, (present or free)[0], _DT_RPATH, vaddr - strings)
