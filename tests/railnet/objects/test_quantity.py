from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.objects.quantity import bytes_text, count, count_text, parsed


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("12", 12),
        ("500m", Fraction(1, 2)),
        ("1.5", Fraction(3, 2)),
        (".5", Fraction(1, 2)),
        ("4Gi", 4 << 30),
        ("1k", 1000),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("100n", Fraction(1, 10**7)),
        ("-1", -1),
    ],
)
def test_quantity_is_read_exactly(text: str, number: Fraction) -> None:
    assert parsed(text) == number


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "1gi", "1e", "one", "1.2.3", "1" * 50, "1e999", "٣"])
def test_what_is_no_quantity_is_none(text: str) -> None:
    assert parsed(text) is None


@pytest.mark.parametrize(
    ("number", "text"),
    [("500m", "0.5"), ("12", "12"), ("7250m", "7.25"), ("1000", "1000"), ("0", "0"), ("120500m", "120")],
)
def test_cores_are_written_for_people(number: str, text: str) -> None:
    assert count_text(parsed(number) or Fraction()) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [("0", "0"), ("512Mi", "512Mi"), ("1536Gi", "1.5Ti"), ("4Gi", "4Gi"), ("-4Gi", "-4Gi"), ("1023", "1023")],
)
def test_bytes_are_written_for_people(number: str, text: str) -> None:
    assert bytes_text(parsed(number) or Fraction()) == text


@given(st.integers(0, 2**62))
def test_written_bytes_are_at_most_one_twentieth_off(number: int) -> None:
    found = parsed(bytes_text(Fraction(number)))

    assert found is not None
    assert abs(found - number) * 20 <= number


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [("0", 0), ("1", 1), ("16", 16), ("1k", 1), ("9223372036854775807", 2**63 - 1), ("9" * 5000, 1)],
    ids=lambda value: f"{value:.20}" if isinstance(value, str) else None,
)
def test_quantity_of_devices_is_a_whole_number(quantity: str, expected: int):
    assert count(quantity) == expected
