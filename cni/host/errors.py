"""CNI errors: a code, a message, and the bytes that a runtime reads. The codes of the specification, and Railnet's own."""

# CNI specification 1.1.0, section 5, "Error".
INCOMPATIBLE_VERSION = 1
ENVIRONMENT = 4
IO = 5
DECODE = 6
CONFIGURATION = 7
TRY_AGAIN = 11
NOT_AVAILABLE = 50  # of STATUS
# Railnet's own; the specification leaves 100 and above to plugins.
NOT_OURS = 100
UNUSABLE = 101
PORT_INACTIVE = 102
NO_ADDRESS = 103
NOT_PERMITTED = 104
DELEGATE_BROKE = 105
DELEGATE_TIMED_OUT = 106
DIFFERS = 107

_MAX_CHARACTERS = (
    2000  # of a message, and of its details: runtimes, kubelet and events repeat what plugins may have written
)


class CniError(Exception):
    """A request fails with `code`. `str()` says what happened; `details` helps to find out why."""

    def __init__(self, code: int, message: str, details: str = "") -> None:
        super().__init__(_shortened(message))
        self.code = code
        self.details = _shortened(details)

    def stdout(self, version: str = "1.0.0") -> bytes:
        """Encode the error as the specification's JSON, in the request's version if that is known."""
        from cni.host import json_text  # late: only a request that fails needs it

        answer = {"cniVersion": version, "code": self.code, "msg": str(self)}
        if self.details:
            answer["details"] = self.details
        return json_text.dumps(answer).encode() + b"\n"


class NotExecuted(CniError):
    """A delegate could not be executed: it did nothing, so there is nothing to undo."""


class DelegateError(CniError):
    """A delegate failed with a CNI error: the answer is that error's own JSON, byte for byte."""

    def __init__(self, plugin: str, code: int, message: str, raw: bytes) -> None:
        super().__init__(code, message, plugin)
        self.raw = raw

    def stdout(self, version: str = "1.0.0") -> bytes:  # noqa: ARG002 - the delegate chose its version
        """Return what the delegate printed."""
        return self.raw


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"


class TimedOut(CniError):
    """A plugin took too long and was ended; it would take as long again, so the same request does not run it another time."""

    def __init__(self, plugin: str, stderr: str) -> None:
        super().__init__(
            DELEGATE_TIMED_OUT,
            f"plugin {plugin!r} took longer than its time limit (timeouts.delegate) and was ended; see what it waits for",
            stderr,
        )
        self.plugin = plugin
