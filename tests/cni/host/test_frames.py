"""Frames: what one side writes the other reads, and nothing else is taken for a frame."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni.host import frames
from cni.host.frames import FrameError

environs = st.dictionaries(
    st.binary(min_size=1).filter(lambda name: not {0, ord("=")} & set(name)),
    st.binary().filter(lambda value: 0 not in value),
)


def test_frame_is_spelled_as_agreed() -> None:
    assert frames.frame(frames.DONE, b"\0{}") == b"RN\x01\x07\x00\x00\x00\x03\0{}"


@given(st.integers(0, 255), st.binary())
def test_frame_is_read_back(kind: int, payload: bytes) -> None:
    frame = frames.frame(kind, payload)

    assert frames.parse_header(frame[: frames.HEADER_BYTES]) == (kind, len(payload))
    assert frame[frames.HEADER_BYTES :] == payload


def test_frame_carries_as_much_as_agreed() -> None:
    frame = frames.frame(frames.OUTPUT, bytes(4 << 20))

    assert frames.parse_header(frame[:8]) == (frames.OUTPUT, 4 << 20)


def test_frame_is_refused_when_its_payload_is_too_large() -> None:
    with pytest.raises(FrameError, match="4194305 bytes is larger than a frame may carry"):
        frames.frame(frames.OUTPUT, bytes((4 << 20) + 1))


def test_largest_output_of_a_delegate_fits_in_a_frame() -> None:
    blobs = frames.blobs(bytes(frames.MAX_STDOUT), bytes(frames.MAX_STDERR))

    assert frames.frame(frames.OUTPUT, frames.u32(1) + frames.i32(0) + blobs)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"", "0 of 8 bytes"),
        (b"RN\x01\x07\x00\x00\x00", "7 of 8 bytes"),
        (b"NR\x01\x07\x00\x00\x00\x00", "does not begin a frame"),
        (b"GET / HT", "does not begin a frame"),
        (b"RN\x02\x07\x00\x00\x00\x00", "frame version 2, this side 1: finish the upgrade"),
        (b"RN\x00\x07\x00\x00\x00\x00", "frame version 0"),
        (b"RN\x01\x07\x00\x40\x00\x01", "4194305 bytes is larger"),
        (b"RN\x01\x07\xff\xff\xff\xff", "4294967295 bytes is larger"),
    ],
)
def test_header_is_refused_when_it_is_none_of_this_version(header: bytes, words: str) -> None:
    with pytest.raises(FrameError, match=words):
        frames.parse_header(header)


@given(st.binary(max_size=16))
def test_parse_header_raises_nothing_but_frame_error(header: bytes) -> None:
    try:
        _, length = frames.parse_header(header)
    except FrameError:
        return
    assert length <= frames.MAX_PAYLOAD


@given(st.lists(st.binary(), max_size=4))
def test_blobs_are_read_back(parts: list[bytes]) -> None:
    assert frames.parse_blobs(frames.blobs(*parts), len(parts)) == parts


@given(st.lists(st.binary(), min_size=1, max_size=4), st.data())
def test_blobs_are_refused_when_they_are_truncated(parts: list[bytes], data: st.DataObject) -> None:
    whole = frames.blobs(*parts)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]

    with pytest.raises(FrameError, match="is truncated"):
        frames.parse_blobs(cut, len(parts))


@pytest.mark.parametrize(
    ("payload", "count", "words"),
    [
        (b"\0\0\0\1ab", 1, "1 bytes too many"),
        (b"a", 0, "1 bytes too many"),
        (b"\xff\xff\xff\xffa", 1, "is truncated"),
        (b"\0\0\0\0", 2, "is truncated"),
    ],
    ids=["a byte left", "no blob wanted", "a length past the end", "one blob too few"],
)
def test_blobs_are_refused_when_they_are_not_exactly_what_was_wanted(payload: bytes, count: int, words: str) -> None:
    with pytest.raises(FrameError, match=words):
        frames.parse_blobs(payload, count)


@given(st.binary(), st.integers(0, 4))
def test_parse_blobs_raises_nothing_but_frame_error(payload: bytes, count: int) -> None:
    try:
        parts = frames.parse_blobs(payload, count)
    except FrameError:
        return
    assert frames.blobs(*parts) == payload


@pytest.mark.slow
@given(environs)
def test_environment_is_read_back(environ: dict[bytes, bytes]) -> None:
    assert frames.parse_environ(frames.environ_blob(environ)) == environ


def test_environment_drops_an_entry_without_a_value() -> None:
    assert frames.parse_environ(b"A=1\0odd\0B=x=y\0C=") == {b"A": b"1", b"B": b"x=y", b"C": b""}


@given(st.binary())
def test_parse_environ_takes_any_bytes(blob: bytes) -> None:
    assert b"=" not in b"".join(frames.parse_environ(blob))


@pytest.mark.parametrize(("number", "spelled"), [(-110, b"\xff\xff\xff\x92"), (256, b"\0\0\1\0"), (9, b"\0\0\0\t")])
def test_wait_status_keeps_its_sign(number: int, spelled: bytes) -> None:
    assert frames.i32(number) == spelled


WHOLE = frames.frame(frames.OUTPUT, b"payload")


@pytest.mark.parametrize("length", range(len(WHOLE) + 1))
def test_missing_bytes_complete_at_least_the_header_and_then_the_frame(length: int) -> None:
    wanted = frames.HEADER_BYTES if length < frames.HEADER_BYTES else len(WHOLE)

    assert frames.missing(WHOLE[:length]) == wanted - length


def test_first_frame_is_taken_from_what_has_arrived() -> None:
    received = bytearray(WHOLE + b"RN")

    assert frames.take_first(received) == (frames.OUTPUT, b"payload")
    assert received == b"RN"


@pytest.mark.parametrize("most", [1, 3, 100])
def test_frame_is_received_in_pieces_and_not_a_byte_of_the_next_one(most: int) -> None:
    stream = io.BytesIO(WHOLE + WHOLE)

    assert frames.receive(lambda count: stream.read(min(count, most))) == (frames.OUTPUT, b"payload")
    assert stream.tell() == len(WHOLE)


@pytest.mark.parametrize("length", [0, 3, frames.HEADER_BYTES, len(WHOLE) - 1])
def test_connection_that_ends_within_a_frame_is_the_end_of_the_file(length: int) -> None:
    with pytest.raises(EOFError, match="the connection ended"):
        frames.receive(io.BytesIO(WHOLE[:length]).read)
