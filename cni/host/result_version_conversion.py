"""Choose the CNI version of a primary configuration, and convert results to another version. Pure."""

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    from cni.host.json_object import JsonObject

CHECK_SINCE = (0, 4, 0)  # and prevResult on DEL
STATUS_AND_GC_SINCE = (1, 1, 0)
_IPS_WITHOUT_VERSION_SINCE = (1, 0, 0)


def number(version: str) -> tuple[int, ...]:
    """Return a version as numbers that compare as versions do; (), the lowest, for a text that is no version."""
    parts = version.split(".")
    # Python refuses to parse a number of thousands of digits; those of a version have a few.
    return tuple(int(part[:9]) for part in parts) if all(part.isdecimal() for part in parts) else ()


def chosen(declared: str, listed: "list[str]", asked: str) -> str:
    """Choose the version of a configuration that declares one (`cniVersion`) and may list others (`cniVersions`).

    It is the newest version that is not newer than `asked`, the version of the runtime's request; if all are newer, it is
    `asked`. libcni chooses so, with the newest version that it knows in place of `asked` (libcni/conf.go,
    NetworkConfFromBytes): the runtime gets the result that it would get without Railnet.
    """
    known = [version for version in (declared, *listed) if number(version) <= number(asked)]
    return max(known, key=number) if known else asked


def result_in(version: str, result: "JsonObject") -> "JsonObject":
    """Convert a result of version 0.3.0 or newer to another such version: a plugin refuses a result of another version.

    A runtime passes a result in its request's version, which is not always the primary's. Versions differ in the keys of
    `ips`. Keys of newer versions stay: plugins ignore keys that they do not know.
    """
    if result.get("cniVersion", version) == version:
        return result
    converted = {**result, "cniVersion": version}
    if isinstance(result.get("ips"), list):
        converted["ips"] = [_ip(ip, number(version) < _IPS_WITHOUT_VERSION_SINCE) for ip in result["ips"]]
    return converted


def _ip(ip: object, with_version: bool) -> object:
    if not isinstance(ip, dict):
        return ip
    bare = {key: value for key, value in ip.items() if key != "version"}
    return {**bare, "version": "6" if ":" in str(ip.get("address")) else "4"} if with_version else bare
