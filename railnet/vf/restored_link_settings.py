"""A VF's netdev carries these settings from one pod to the next unless it is reset: one table. Pure.

Each setting is read before the netdev goes into a sandbox, and has its value again when the netdev is back. Reading and writing
are `railnet.kernel.netlink.restored_link_settings`'s. docs/decisions/0042 has the table with what the kernel resets, and what is not reset.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Value = int | str | tuple[str, ...]
Settings = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a link by its name in `ip link`, and what a pod could do to the next pod by it.

    `normal` is its value on the node if none was recorded, as in a record of an older version; with None it is then left alone.
    `recorded` is false if the value before the attach is not the value to return to: it belonged to a program on the node.
    """

    name: str
    normal: Value | None
    harm: str
    recorded: bool = True


SETTINGS = (
    Setting("mtu", None, "packets that the network permits are refused"),
    Setting("txqueuelen", None, "packets wait, or are dropped, that should not be"),
    Setting("group", 0, "rules for the group apply to the netdev"),
    Setting("alias", "", "it is shown as another netdev"),
    Setting("altnames", (), "names of other links are taken, on the node and in the next pod"),
    Setting("flags", None, "no ARP, no multicast, or all packets of the port are received"),
    Setting("address", None, "frames for another host are received"),
    Setting("broadcast", None, "neighbours are not found"),
    Setting("mode", 0, "the netdev stays dormant, so it has no carrier"),
    Setting("protodown", 0, "the netdev cannot be brought up"),
    Setting("master", 0, "packets go to a link of another program", recorded=False),
    Setting("xdp", 0, "a program of the last pod reads, changes or drops each packet", recorded=False),
    Setting("promiscuity", 0, "a link of the last pod still receives through the netdev", recorded=False),
    Setting("gso_max_size", None, "sending is slow"),
    Setting("gso_max_segs", None, "sending is slow"),
    Setting("gro_max_size", None, "receiving is slow"),
    Setting("gso_ipv4_max_size", None, "sending is slow"),
    Setting("gro_ipv4_max_size", None, "receiving is slow"),
    Setting("ipoib", None, "IPoIB's mode and multicast of user space"),
)
_RECORDED = frozenset(setting.name for setting in SETTINGS if setting.recorded)


def to_record(settings: Settings) -> dict[str, Value]:
    """Return the settings that a record keeps."""
    return {name: value for name, value in settings.items() if name in _RECORDED}


def changes(current: Settings, before: Settings) -> dict[str, Value]:
    """Return the settings that a netdev must be given so that it is as `before` the attach, with their values.

    A setting that this kernel does not report is left out.
    """
    wanted = {setting.name: _wanted(setting, before) for setting in SETTINGS}
    return {
        name: value
        for name, value in wanted.items()
        if value is not None and name in current and current[name] != value
    }


def decode(body: Mapping[str, Any]) -> dict[str, Value]:
    """Parse the settings of a record; unknown ones, of a newer version, are left out.

    Raises:
        TypeError: a value is neither a number, a text nor a list of texts.
    """
    return {name: _value(value) for name, value in body.items() if name in _RECORDED}


def _wanted(setting: Setting, before: Settings) -> Value | None:
    return before.get(setting.name, setting.normal) if setting.recorded else setting.normal


def _value(value: object) -> Value:
    if isinstance(value, list) and all(isinstance(altname, str) for altname in value):
        return tuple(value)
    if type(value) in (int, str):
        return value  # type: ignore[return-value]
    raise TypeError(f"{value!r:.40} is where a setting should be")
