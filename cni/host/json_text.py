"""JSON by the C core of Python's own module, without what the rest of that module imports.

`json` compiles regular expressions to find white space: with `re`, `enum` and `functools` it is half of what a request without
a daemon, or STATUS, would import (docs/decisions/0026). Text and values are the same; only a text that is wrong has it imported,
for its exception.
"""

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    from typing import Any

_WHITESPACE = " \t\n\r"  # RFC 8259, section 2


class _Context:
    """What the scanner asks its decoder for (Modules/_json.c, scanner_new)."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float  # NaN, Infinity and -Infinity, which json accepts, too


def loads(text: str) -> "Any":
    """Read one JSON value.

    Raises:
        ValueError: it is none, or more follows. RecursionError: it is nested too deeply.
    """
    from _json import make_scanner  # not built in

    try:
        value, end = make_scanner(_Context)(text, len(text) - len(text.lstrip(_WHITESPACE)))  # type: ignore[arg-type]
    except StopIteration as stop:
        raise ValueError(f"a value should be at character {stop.value}") from None
    except SystemError:  # json.decoder.JSONDecodeError was wanted, and the module is not there (raise_errmsg)
        import json

        return json.loads(text)
    if text[end:].strip(_WHITESPACE):
        raise ValueError(f"more follows the value, at character {end}")
    return value


def dumps(value: object) -> str:
    """Spell a value of dicts, lists, strings, numbers, booleans and None, as `json.dumps` does.

    Raises:
        TypeError: something else is in it.
    """
    from _json import encode_basestring_ascii, make_encoder  # not built in

    encode = make_encoder({}, _refuse, encode_basestring_ascii, None, ": ", ", ", False, False, True)
    return "".join(encode(value, 0))


def _refuse(value: object) -> object:
    raise TypeError(f"{type(value).__name__} is not JSON")
