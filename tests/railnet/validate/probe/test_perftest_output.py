"""The tables of perftest's tools are read, and no other text is taken for one."""

import pytest

from railnet.validate.probe.perftest_output import gbits, microseconds
from tests.railnet.validate.probe.perftest_tables import BANDWIDTH, LATENCY


def test_average_bandwidth_and_typical_latency_are_read() -> None:
    assert (gbits(BANDWIDTH), microseconds(LATENCY)) == (0.14, 31.4)


def test_table_is_found_whatever_its_blanks_and_what_comes_before() -> None:
    assert (
        gbits("WARNING: BW peak won't be measured in this run.\n" + BANDWIDTH.replace("\t", " ").replace("     ", "\t"))
        == 0.14
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        LATENCY,
        BANDWIDTH.replace("Gb/sec", "MiB/sec"),
        BANDWIDTH.replace("MsgRate[Mpps]", "MsgRate[Mpps]   CPU_Util[%]"),
        BANDWIDTH.replace("0.14", "nan"),
        BANDWIDTH.replace("0.14", "-1"),
        BANDWIDTH.replace("0.14", "much"),
        BANDWIDTH.replace("0.000264", "0.000264 7"),
        BANDWIDTH[: BANDWIDTH.index(" 65536")],
        BANDWIDTH[: BANDWIDTH.index(" 65536") - 1],
    ],
    ids=[
        "nothing",
        "another tool's",
        "another unit",
        "more columns",
        "nan",
        "negative",
        "a word",
        "more numbers",
        "no line",
        "cut",
    ],
)
def test_other_text_is_no_table(text: str) -> None:
    with pytest.raises(ValueError, match="no table"):
        gbits(text)
