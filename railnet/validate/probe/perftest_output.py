"""Reads what perftest's tools print at their end: a table of one line. Pure.

Source: linux-rdma/perftest, src/perftest_resources.h: RESULT_FMT_G and RESULT_FMT_LAT with their lines REPORT_FMT; 4.5 to 25. Columns are
apart by blanks or tabs, and other tables have other columns: then nothing is taken for a number.
"""

import math
from contextlib import suppress
from itertools import pairwise

_BANDWIDTH = "#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]"
_LATENCY = "#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] t_stdev[usec] 99% percentile[usec] 99.9% percentile[usec]"


def gbits(printed: str) -> float:
    """Return the average bandwidth in Gbit/s that ib_write_bw has printed with `--report_gbits`.

    Raises:
        ValueError: the table is absent or another one.
    """
    return _row(printed, _BANDWIDTH, 5)[3]


def microseconds(printed: str) -> float:
    """Return the typical latency of one way in microseconds that ib_write_lat has printed.

    Raises:
        ValueError: the table is absent or another one.
    """
    return _row(printed, _LATENCY, 9)[4]


def _row(printed: str, header: str, columns: int) -> list[float]:
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    for line, following in pairwise(lines):
        if line == header:
            with suppress(ValueError):  # a word where a number should be
                numbers = [float(text) for text in following.split(" ")]
                if len(numbers) == columns and all(math.isfinite(number) and number >= 0 for number in numbers):
                    return numbers
            break
    raise ValueError("it has printed no table of results that is known")
