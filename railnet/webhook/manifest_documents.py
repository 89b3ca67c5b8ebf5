"""Reads the documents of a file of Kubernetes' objects, within bounds. Not here: what the objects are.

A file may have no end, and a few lines of aliases may stand for more values than memory holds.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from railnet import strict_yaml
from railnet.errors import Misconfigured

_MOST_BYTES = 64 << 20  # the pods of a large cluster have some ten MiB
_MOST_VALUES = 10_000_000  # with those of aliases, as often as they are used
# The errors that `railnet.strict_yaml` names, and RecursionError for too many brackets.
_NO_VALUE = (ValueError, AttributeError, LookupError, ArithmeticError, TypeError, RecursionError)


def documents(file: str, source: str) -> list[Any]:
    """Return the documents of a file, `-` for standard input; an alias has its value.

    Raises:
        Misconfigured: the file cannot be read, is too long, is not YAML, or has too many values; the message begins with `source`.
    """
    text = _text(file, source)
    try:
        parsed = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise Misconfigured(f"{source} is not YAML: {strict_yaml.problem_of(error, text)}") from None
    except _NO_VALUE as error:
        raise Misconfigured(f"{source} is not YAML: {error!s:.400}") from None
    _refuse_too_many(parsed, source)
    return parsed


def _text(file: str, source: str) -> str:
    try:
        if file == "-":
            content = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise Misconfigured(
            f"{source} cannot be read: {error.strerror}; name a file, or - for standard input"
        ) from None
    if len(content) > _MOST_BYTES:
        raise Misconfigured(f"{source} has more than {_MOST_BYTES >> 20} MiB; give one job, or fewer pods")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Misconfigured(f"{source} is no text in UTF-8; give objects as YAML or JSON") from None


def _refuse_too_many(parsed: Iterable[Any], source: str) -> None:
    """Raise Misconfigured if a value contains itself, or if there are more values than could be looked at."""
    counts: dict[int, int] = {}
    try:
        number = sum(_values(value, counts) for value in parsed)
    except RecursionError:
        raise Misconfigured(f"{source} has an alias that is a part of its own value; write the value itself") from None
    if number > _MOST_VALUES:
        raise Misconfigured(
            f"{source} has aliases for {number} values; write the values that are needed, without aliases"
        )


def _values(value: Any, counts: dict[int, int]) -> int:
    """Return how many values a value has; each mapping and list is counted once, whatever number of aliases it has."""
    if not isinstance(value, dict | list):
        return 1
    known = counts.get(id(value))
    if known is None:
        parts = value.values() if isinstance(value, dict) else value
        known = counts[id(value)] = 1 + sum(_values(part, counts) for part in parts)
    return known
