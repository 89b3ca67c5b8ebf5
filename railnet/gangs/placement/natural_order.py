"""The order of names with numbers in them: `leaf-2` is before `leaf-10`."""

import re

_NUMBER = re.compile(r"([0-9]+)")


def natural_order(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key to sort names by: numbers in them by their value, and the name itself last, so that no two are equal."""
    parts = _NUMBER.split(name)
    return (*((int(part), "") if index % 2 else (-1, part) for index, part in enumerate(parts)), (-1, name))
