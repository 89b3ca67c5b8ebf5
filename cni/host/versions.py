"""CNI versions: which one a primary configuration is run with, and results spelled as another version spells them. Pure."""

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    from cni.host.netconf import JsonObject

CHECK_SINCE = (0, 4, 0)  # and prevResult on DEL
STATUS_AND_GC_SINCE = (1, 1, 0)
_IPS_WITHOUT_VERSION_SINCE = (1, 0, 0)


def number(version: str) -> tuple[int, ...]:
    """Give a version as numbers that compare as versions do; (), the lowest, for what is none."""
    parts = version.split(".")
    # Python refuses to read a number of thousands of digits; a version has none of more than a few.
    return tuple(int(part[:9]) for part in parts) if all(part.isdecimal() for part in parts) else ()


def chosen(declared: str, listed: "list[str]", asked: str) -> str:
    """Give the version of a configuration that declares one (`cniVersion`) and may list others (`cniVersions`).

    As libcni chooses (libcni/conf.go, NetworkConfFromBytes), with `asked`, the version of the runtime's request, in place
    of the newest that libcni knows: the runtime gets the result it would get without Railnet. Where all are newer than
    `asked`, it is `asked`.
    """
    known = [version for version in (declared, *listed) if number(version) <= number(asked)]
    return max(known, key=number) if known else asked


def result_in(version: str, result: "JsonObject") -> "JsonObject":
    """Spell a result of version 0.3.0 or newer as another such version does: a plugin refuses one of a foreign version.

    A runtime hands a result back in its request's version, which is not always the primary's. Versions differ in what `ips`
    say; keys that only newer ones have stay, as plugins pass over what they do not know.
    """
    if result.get("cniVersion", version) == version:
        return result
    spelled = {**result, "cniVersion": version}
    if isinstance(result.get("ips"), list):
        spelled["ips"] = [_ip(ip, number(version) < _IPS_WITHOUT_VERSION_SINCE) for ip in result["ips"]]
    return spelled


def _ip(ip: object, with_version: bool) -> object:
    if not isinstance(ip, dict):
        return ip
    bare = {key: value for key, value in ip.items() if key != "version"}
    return {**bare, "version": "6" if ":" in str(ip.get("address")) else "4"} if with_version else bare
