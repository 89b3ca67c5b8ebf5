"""Describe a host and a pod on it by the output of the machine's own tools, to compare two moments or two ways of attaching."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDERS = (
    "/run/cni",
    "/run/flannel",
    "/run/netns",
    "/run/railnet/journal",
    "/run/railnet/lock",
    "/run/railnet/quarantine",
    "/var/lib/cni",
)
_ADDRESSES = "ip -json address"
_ROUTES = "ip -json route show table all"
_RULES = ("iptables-save", "ip6tables-save")
_CARRIER = {"LOWER_UP", "NO-CARRIER"}  # the carrier comes a moment after the link is up
_SYSCTLS = ("net.core.somaxconn", "net.ipv4.conf.eth0.arp_notify")


def reset() -> None:
    """Remove what plugins never remove from a host themselves: bridges, chains of the packet filter, state."""
    for entry in _entries("ip -json -details link"):
        if entry.get("linkinfo", {}).get("info_kind") == "bridge":
            _output("ip", "link", "delete", entry["ifname"])
    for command in ("iptables-restore", "ip6tables-restore"):
        subprocess.run(
            [command], input="*filter\nCOMMIT\n*nat\nCOMMIT\n", text=True, check=True
        )  # only what these plugins made
    for folder in ("/run/cni", "/var/lib/cni"):
        for path in Path(folder).glob("*"):
            shutil.rmtree(path)


def of_host() -> list[str]:
    """Return all that pods may leave: links with addresses, routes, queueing disciplines, packet filter rules, files."""
    return sorted(
        [
            *(f"link {_link(entry)}" for entry in _entries(_ADDRESSES)),
            *_routes(),
            *_queueing(),
            *_rules(),
            *(f"file {path}" for folder in FOLDERS for path in Path(folder).rglob("*")),
        ]
    )


def of_pod(netns: Path) -> list[str]:
    """Return what the primary network's plugins set up in a pod and on the host. Values that differ from pod to pod are masked."""
    inside = ["nsenter", f"--net={netns}"]
    links = [entry for entry in _entries(_ADDRESSES, inside) if entry["ifname"] in ("lo", "eth0")]
    found = [
        *(f"link {_link(entry)} {sorted(set(entry['flags']) - _CARRIER)}" for entry in links),
        *(line for line in _routes(inside) if " eth0 " in line),
        *(f"{name} = {_output(*inside, 'sysctl', '-e', '-n', name).strip()}" for name in _SYSCTLS),
        *(line for line in _queueing() if " ibs" not in line),
        *_rules(),
    ]
    return sorted(map(masked, found))


def masked(text: str) -> str:
    """Replace MACs, veth names, namespace paths, container ids and the pod's addresses by constants. Spacing and order stay."""
    for pattern, name in (
        (r"([0-9a-f]{2}:){5}[0-9a-f]{2}", "MAC"),
        (r"\bveth[0-9a-f]+", "VETH"),
        (r"\bbwp[0-9a-f]+", "IFB"),
        (r"/run/netns/[-\w]+", "NETNS"),
        (r"\bfe80::[0-9a-f:]+", "LINK-LOCAL"),
        (r"\b10\.(244\.3|251\.0|252\.0)\.(?!0\b|1\b|255\b)\d+", "ADDRESS"),
        (r"\bCNI-(DN-)?[0-9a-f]{10,}", "CHAIN"),
        (r"\b[0-9a-f]{64}\b", "CONTAINER"),
    ):
        text = re.sub(pattern, name, text)
    return text


def _entries(command: str, inside: Sequence[str] = ()) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(_output(*inside, *command.split()) or "[]")
    return entries


def _link(entry: Mapping[str, Any]) -> str:
    """Return the properties of a link that do not depend on its peer: no carrier, and no address made from the MAC."""
    addresses = [f"{one['local']}/{one['prefixlen']}" for one in entry["addr_info"] if one["scope"] != "link"]
    return " ".join((entry["ifname"], entry["link_type"], str(entry["mtu"]), entry.get("master", "-"), *addresses))


def _routes(inside: Sequence[str] = ()) -> Iterator[str]:
    """Return the routes, without those that the kernel makes from a link's carrier and MAC."""
    keys = ("type", "dst", "gateway", "dev", "prefsrc", "table", "metric")
    for entry in _entries(_ROUTES, inside):
        if not entry["dst"].startswith(("fe80:", "ff00:")):
            yield "route " + " ".join(str(entry.get(key, "-")) for key in keys)


def _queueing() -> Iterator[str]:
    return (f"queueing {entry['dev']} {entry['kind']}" for entry in _entries("tc -json qdisc show"))


def _rules() -> Iterator[str]:
    """Return the packet filter's rules, and its chains that are not built in."""
    for command in _RULES:
        for line in _output(command).splitlines():
            if line.startswith("-A") or re.match(r":\S+ -", line):
                yield f"{command}: " + re.sub(r" \[\d+:\d+\]", "", line)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def link_of(netns: Path, ifname: str) -> dict[str, Any]:
    """Return one link of a pod with its addresses, as `ip` prints it."""
    (found,) = (entry for entry in _entries(_ADDRESSES, ["nsenter", f"--net={netns}"]) if entry["ifname"] == ifname)
    return found
