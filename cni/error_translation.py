"""Translate what Railnet and the kernel raise to CNI errors with their codes."""

from cni.host import errors
from cni.host.errors import CniError
from railnet.errors import (
    Differs,
    Misconfigured,
    NoAddress,
    NotOurs,
    NotPermitted,
    NotReady,
    PortInactive,
    RailnetError,
    Unusable,
)

_CODES: tuple[tuple[type[RailnetError], int], ...] = (
    (Misconfigured, errors.CONFIGURATION),
    (NotReady, errors.TRY_AGAIN),
    (Unusable, errors.UNUSABLE),
    (NotOurs, errors.NOT_OURS),
    (PortInactive, errors.PORT_INACTIVE),
    (NoAddress, errors.NO_ADDRESS),
    (NotPermitted, errors.NOT_PERMITTED),
    (Differs, errors.DIFFERS),
)


def as_cni_error(error: Exception) -> CniError:
    """Return the error that the runtime gets; an unforeseen exception becomes an I/O error with its own words."""
    if isinstance(error, CniError):
        return error
    for kind, code in _CODES:
        if isinstance(error, kind):
            return CniError(code, str(error))
    details = "; ".join(getattr(error, "__notes__", ()))
    return CniError(errors.IO, _words(error) if isinstance(error, OSError) else repr(error), details)


def _words(error: OSError) -> str:
    """Return the kernel's words, and the file that they are about if there is one."""
    words = error.strerror or str(error) or repr(error)
    return words if error.filename is None else f"{error.filename}: {words}"
