"""JSON by the C core alone: the same text and the same values as Python's own module."""

import json
import math
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni.host import json_object, json_text
from cni.host.errors import CONFIGURATION, CniError

REPOSITORY = Path(__file__).resolve().parents[3]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.slow
@given(VALUES)
def test_values_are_spelled_and_read_as_by_the_standard_module(value: object) -> None:
    text = json_text.dumps(value)

    assert text == json.dumps(value)
    assert json_text.loads(text) == json.loads(text)


@given(st.text(alphabet='{}[]",:0123456789eE+-.\\u truefalsn\t\n\r\x0b\x00é'))
def test_texts_are_read_or_refused_as_by_the_standard_module(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            json_text.loads(text)
    else:
        assert json_text.loads(text) == expected


@pytest.mark.parametrize("text", ["", " ", "{", "[1,]", "nul", "1 2", "{} x", "\ufeff{}", '"\n"', "'a'", "[" * 5 + "]"])
def test_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        json_text.loads(text)


def test_numbers_that_are_none_are_what_the_standard_module_makes_of_them() -> None:
    nan, most, least = json_text.loads(" [NaN, Infinity, -Infinity]\n")

    assert math.isnan(nan)
    assert (most, least) == (math.inf, -math.inf)


def test_text_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(RecursionError):
        json_text.loads("[" * 200_000)


def test_what_is_no_json_is_not_spelled() -> None:
    with pytest.raises(TypeError, match="bytes is not JSON"):
        json_text.dumps({"a": b""})


def test_module_imports_no_regular_expressions() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); from cni.host import json_text, without_daemon; "
        "json_text.loads(json_text.dumps({'a': [1.5, None]})); print('re' in sys.modules, 'json' in sys.modules)"
    )
    done = subprocess.run(["/usr/bin/python3", "-ISE", "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "False"]


def test_load_object_raises_the_code_it_is_given() -> None:
    with pytest.raises(CniError, match="a file is not JSON") as raised:
        json_object.load_object(b"", "a file", CONFIGURATION)

    assert raised.value.code == CONFIGURATION
