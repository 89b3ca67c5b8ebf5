"""The probe's answer is a node's word: no number that is none, and no text without an end."""

import json

import pytest

from railnet.validate.pair_plan import Pair
from railnet.validate.probe.measured import parse

PAIR = Pair(0, "a", "b")
SOUND = '{"round_trip_seconds": {"median": 2e-05}, "mtu": 4092, "bits_per_second": 9e10}'


def test_sound_answer_is_read() -> None:
    measured = parse(PAIR, SOUND)

    assert (measured.round_trip_us, measured.mtu, measured.gbits, measured.failed) == (20.0, 4092, 90.0, "")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1", '"nan"', "[]"])
@pytest.mark.parametrize("sound", ["2e-05", "4092", "9e10"])
def test_number_that_no_rail_has_is_no_measurement(sound: str, number: str) -> None:
    with pytest.raises(ValueError, match="which is no measurement"):
        parse(PAIR, SOUND.replace(sound, number))


def test_words_of_a_node_are_cut() -> None:
    failed = {"measurement": "mtu", "why": "x" * 62_000}
    tools = {"ib_write_bw": {"failed": "y" * 62_000}, "z" * 62_000: {"untried": "z" * 62_000}}
    measured = parse(PAIR, json.dumps({"failed": failed, "rdma": tools}))

    assert measured.failed == f"largest packet: {'x' * 400}"
    assert measured.rdma.failed == f"ib_write_bw: {'y' * 400}"
    assert measured.rdma.untried == (("z" * 400, "z" * 400),)


def test_refusal_of_a_long_answer_is_short() -> None:
    answer = json.dumps({"failed": {"measurement": "9" * 5000, "why": ""}})

    with pytest.raises(ValueError, match="which is no measurement") as refused:
        parse(PAIR, answer)
    assert len(str(refused.value)) < 1000
