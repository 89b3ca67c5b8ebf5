"""CNI versions: their order, and a result as another version spells it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni.host.result_version_conversion import number, result_in

VERSIONS = ["latest", "0.3.1", "0.4.0", "1.0.0", "1.0.1", "1.1.0", "1.10.0", "2.0.0"]
OLD = {"cniVersion": "0.4.0", "ips": [{"version": "4", "address": "10.0.0.2/24"}], "dns": {}}
NEW = {"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.2/24"}], "dns": {}}


def test_versions_compare_as_numbers_and_what_is_none_is_lowest() -> None:
    assert all(number(one) < number(next_) for one, next_ in pairwise(VERSIONS))


@pytest.mark.parametrize(
    ("version", "result", "expected"), [("0.4.0", NEW, OLD), ("1.1.0", OLD, NEW), ("0.4.0", OLD, OLD)]
)
def test_result_is_spelled_as_the_version_does(version: str, result, expected) -> None:
    assert result_in(version, result) == expected


def test_result_that_names_no_version_is_left_alone() -> None:
    assert result_in("0.4.0", {"ips": [{"address": "10.0.0.2/24"}]}) == {"ips": [{"address": "10.0.0.2/24"}]}


@given(st.dictionaries(st.sampled_from(["cniVersion", "ips", "x"]), st.none() | st.text() | st.lists(st.none())))
def test_result_may_be_odd(result) -> None:
    assert result_in("0.4.0", result).keys() == result.keys()
