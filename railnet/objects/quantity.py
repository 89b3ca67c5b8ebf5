"""Quantities of resources: read as the API server writes them, and written for people.

Source: k8s.io/apimachinery/pkg/api/resource, "quantity.go".
"""

import re
from fractions import Fraction
from functools import lru_cache

_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?[0-9]{1,2})|(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E))?"
)
_MOST_CHARACTERS = 40
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_FACTORS = {
    **{suffix: Fraction(1024**power) for power, suffix in enumerate(_BINARY, 1)},
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", 1)},
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate("mun", 1)},
}
_MAX_DIGITS = len(str(2**63 - 1))  # k8s.io/apimachinery/pkg/api/resource: maxAllowed
_WHOLE = 100  # from here on, a quantity is written without decimals


@lru_cache(maxsize=4096)  # ten thousand pods have few different requests
def parsed(text: str) -> Fraction | None:
    """Return a quantity as a number of cores, bytes or devices; None if the text is none."""
    match = _QUANTITY.fullmatch(text) if len(text) <= _MOST_CHARACTERS else None
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    return Fraction(number) * (Fraction(f"1{exponent}") if exponent else 1) * _FACTORS.get(suffix, 1)


def count(quantity: str) -> int:
    """Return the quantity of an extended resource as a number; Kubernetes permits whole numbers only.

    A quantity with a suffix (`1k`), or beyond Kubernetes' maximum, is more than any node has: it counts as 1.
    """
    return int(quantity) if quantity.isdecimal() and len(quantity) <= _MAX_DIGITS else 1


def count_text(number: Fraction) -> str:
    """Return cores or devices for people: `12`, `0.5`, `7.25`; at most two decimals."""
    return f"{float(number):.2f}".rstrip("0").rstrip(".") if abs(number) < _WHOLE else f"{float(number):.0f}"


def bytes_text(number: Fraction) -> str:
    """Return bytes for people: `512Mi`, `1.5Ti`; `0` for none. At most one decimal."""
    suffix, size = "", abs(number)
    for bigger in _BINARY:
        if size < 1024:  # noqa: PLR2004 - the step from one suffix to the next
            break
        suffix, size = bigger, size / 1024
    text = f"{float(size):.1f}".rstrip("0").rstrip(".") if size < _WHOLE else f"{float(size):.0f}"
    return f"{'-' if number < 0 and text != '0' else ''}{text}{suffix}"
