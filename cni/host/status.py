"""STATUS: check that an ADD of the primary network may work.

If STATUS fails, a runtime reports the whole node as not ready. So STATUS does not depend on Railnet's daemon or on a rail: those
show in the devices that the node offers to the scheduler.
"""

from cni.host import chain
from cni.host.errors import NOT_AVAILABLE, CniError

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    from cni.host.json_object import JsonObject

SUBNET_FILE = "/run/flannel/subnet.env"  # where the flannel plugin looks unless its configuration says otherwise
_LEASES = (b"FLANNEL_SUBNET=", b"FLANNEL_IPV6_SUBNET=")


def available(path: str, asked: str) -> chain.Primary:
    """Read the primary configuration at `path`, to be run at version `asked` at most, and make sure that its ADD may work.

    Raises:
        CniError: code 50, it is missing or broken, or flannel has no lease.
    """
    try:
        primary = chain.load(path, asked)
    except CniError as error:
        raise CniError(NOT_AVAILABLE, str(error), error.details) from None
    for plugin in primary.plugins:
        if plugin["type"] == "flannel":
            _check_lease(plugin)
    return primary


def _check_lease(plugin: "JsonObject") -> None:
    path = str(plugin.get("subnetFile") or SUBNET_FILE)
    try:
        with open(path, "rb") as file:  # pathlib takes longer to import than this module may
            content = file.read()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise _no_lease(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not names_subnet(content):
        raise _no_lease(f"{path} names no subnet")


def names_subnet(content: bytes) -> bool:
    """Return whether flannel's file has a lease."""
    return any(line.startswith(_LEASES) and line.partition(b"=")[2].strip() for line in content.splitlines())


def _no_lease(why: str) -> CniError:
    return CniError(NOT_AVAILABLE, f"flannel has no lease for this node: {why}; does flanneld run on it?")
