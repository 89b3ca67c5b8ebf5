"""Read a JSON object from outside; what is none is a CNI error that names it."""

from cni.host.errors import DECODE, CniError
from cni.host.json_text import loads

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    from typing import Any

    JsonObject = dict[str, Any]


def load_object(raw: bytes, what: str, code: int = DECODE) -> "JsonObject":
    """Read a JSON object.

    Raises:
        CniError: `code`, `what` is not JSON, is nested too deeply, or is another value.
    """
    try:
        value = loads(raw.decode())
    except RecursionError:
        raise CniError(code, f"{what} is nested too deeply to be read") from None
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise CniError(code, f"{what} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CniError(code, f"{what} is a JSON {type(value).__name__}, not an object")
    return value
