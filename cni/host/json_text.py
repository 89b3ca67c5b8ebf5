"""Read and write JSON by the C core of Python's `json`, without what the rest of `json` imports.

`json` imports `re`, `enum` and `functools` to find white space. That takes as long as all else that a request without a daemon,
or STATUS, does in the interpreter (docs/decisions/0026). Text and values are the same as `json`'s. Only a text that is no JSON has
`json` imported, for its exception.
"""

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    from typing import Any

_WHITESPACE = " \t\n\r"  # RFC 8259, section 2


class _Context:
    """The attributes that the scanner reads from its decoder (Modules/_json.c, scanner_new)."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float  # NaN, Infinity and -Infinity, which json accepts, too


def loads(text: str) -> "Any":
    """Read one JSON value.

    Raises:
        ValueError: the text is no JSON value, or more follows it. RecursionError: it is nested too deeply.
    """
    from _json import make_scanner  # not built in

    try:
        value, end = make_scanner(_Context)(text, len(text) - len(text.lstrip(_WHITESPACE)))  # type: ignore[arg-type]
    except StopIteration as stop:
        raise ValueError(f"a value should be at character {stop.value}") from None
    except SystemError:  # the scanner raises json.decoder.JSONDecodeError, and that module is not loaded (raise_errmsg)
        import json

        return json.loads(text)
    if text[end:].strip(_WHITESPACE):
        raise ValueError(f"more follows the value, at character {end}")
    return value


def dumps(value: object) -> str:
    """Write a value of dicts, lists, strings, numbers, booleans and None, as `json.dumps` does.

    Raises:
        TypeError: the value has something else in it.
    """
    from _json import encode_basestring_ascii, make_encoder  # not built in

    encode = make_encoder({}, _refuse, encode_basestring_ascii, None, ": ", ", ", False, False, True)
    return "".join(encode(value, 0))


def _refuse(value: object) -> object:
    raise TypeError(f"{type(value).__name__} is not JSON")
