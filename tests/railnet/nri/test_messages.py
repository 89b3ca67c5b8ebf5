"""Messages of NRI, as bytes."""

import pytest

from railnet.nri.messages import REQUEST, RESPONSE, TO_PLUGIN, BadMessage, Messages, NriMessage, framed

# Written by hand: service 1, 13 bytes; 3 bytes, call 5, a response, no flags; the body.
RESPONSE_BYTES = bytes.fromhex("00000001 0000000d 00000003 00000005 02 00") + b"abc"


def test_message_is_framed_as_nri_and_ttrpc_say() -> None:
    assert framed(TO_PLUGIN, NriMessage(5, RESPONSE, b"abc")) == RESPONSE_BYTES


def test_message_is_whole_however_its_bytes_come() -> None:
    content = RESPONSE_BYTES[8:] * 2
    for cut in range(len(content) + 1):
        messages = Messages()
        whole = [*messages.take(content[:cut]), *messages.take(content[cut:])]
        assert whole == [NriMessage(5, RESPONSE, b"abc")] * 2


def test_message_without_a_body_is_whole() -> None:
    assert list(Messages().take(framed(TO_PLUGIN, NriMessage(1, REQUEST, b""))[8:])) == [NriMessage(1, REQUEST, b"")]


def test_message_that_is_longer_than_ttrpc_permits_is_refused_before_it_has_come() -> None:
    assert list(Messages().take(bytes.fromhex("00400000 00000001 01 00"))) == []
    with pytest.raises(BadMessage, match="4194305 bytes; ttrpc permits 4194304"):
        list(Messages().take(bytes.fromhex("00400001 00000001 01 00")))
