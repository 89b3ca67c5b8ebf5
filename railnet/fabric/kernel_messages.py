"""What the kernel's log says of cards: the messages of mlx5_core and ib_core that mean something, and until when. Pure.

The log is Documentation/ABI/testing/dev-kmsg: `6,339,5140900,-;text`, then lines ` KEY=value`. A driver's message begins with the driver and
the device (`dev_printk`, drivers/base/core.c); mlx5_core adds function, line and process (`mlx5_core_err`,
drivers/net/ethernet/mellanox/mlx5/core/mlx5_core.h). Only the kernel can write records of the facility 0.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from railnet.fabric.rails_condition import Moment, RailError, time_text

REASON = "KernelErrors"
_KERNEL = 0  # facility LOG_KERN, include/linux/syslog.h
_LONGEST_TEXT = 160
_SEVERE_SECONDS = 3600.0  # a dead firmware says so once
_PREFIX = re.compile(rb"([0-9]{1,4}),([0-9]{1,20}),([0-9]{1,20}),[^;]*")
_FIELD = re.compile(rb" ([A-Z_]{1,32})=(.{1,64})")
_PCI = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_OF_DRIVER = re.compile(rf"mlx5_core (?P<pci>{_PCI}): |infiniband (?P<rdma>[A-Za-z0-9_.-]{{1,64}}): ")
_DEVICE = re.compile(rf"\+pci:(?P<pci>{_PCI})|\+infiniband:(?P<rdma>[A-Za-z0-9_.-]{{1,64}})")

Effect = Literal["severe", "slight", "over", "nothing"]


class KernelRecord(NamedTuple):
    """One record of /dev/kmsg.

    Attributes:
        facility: 0 for the kernel; another number for a program that wrote into the log.
        sequence: the record's number since the boot.
        text: the message, without its line end.
        fields: the machine-readable lines, such as SUBSYSTEM and DEVICE.
    """

    facility: int
    sequence: int
    text: str
    fields: Mapping[str, str]


class KernelMessageKind(NamedTuple):
    """A message of the kernel.

    Attributes:
        name: a word for metrics and events.
        pattern: what its text has after the driver and the device.
        effect: `severe` makes the condition False, `slight` does not, `over` begins the end of what is severe, `nothing` is known to be harmless.
        source: the kernel's file and function.
        remedy: what to do.
    """

    name: str
    pattern: "re.Pattern[str]"
    effect: Effect
    source: str
    remedy: str


def _kind(name: str, pattern: str, effect: Effect, source: str, remedy: str = "") -> KernelMessageKind:
    return KernelMessageKind(name, re.compile(pattern), effect, source, remedy)


_CORE = "drivers/net/ethernet/mellanox/mlx5/core"
_RESET = "reset the card (mlxfwreset) or the node; if it comes again, replace the card"
_COOL = "check cooling"
# The first row that fits counts. NVSentinel's severities are the same (NVIDIA/NVSentinel, docs/configuration/syslog-health-monitor.md), but for
# command-timeout-of-tools: a tool's access to a register, or the removal of a driver, that times out says less than a command of the data path.
KINDS = (
    _kind("firmware-recovered", "health recovery succeeded", "over", f"{_CORE}/health.c, mlx5_health_try_recover"),
    # Also by hand: who resets the card, as the message says, has its driver loaded anew. A card that is gone from PCIe reads as all ones.
    _kind(
        "driver-loaded",
        r"^(?:\w+:[0-9]+:\(pid [0-9]+\): )?firmware version: (?!65535\.)",
        "over",
        f"{_CORE}/main.c, mlx5_function_enable",
    ),
    _kind(
        "firmware-recovery-failed",
        "health recovery (?:flow aborted|failed)",
        "severe",
        f"{_CORE}/health.c, mlx5_health_try_recover",
        _RESET,
    ),
    _kind(
        "firmware-silent",
        "device's health compromised - reached miss count",
        "severe",
        f"{_CORE}/health.c, poll_health",
        _RESET,
    ),
    _kind("firmware-fatal", r"Fatal error [0-9]+ detected", "severe", f"{_CORE}/health.c, poll_health", _RESET),
    # The severity is a level of include/linux/kern_levels.h: 3 is an error.
    _kind(
        "firmware-fault",
        r"Health issue observed, .{1,80}, severity\([0-3]\)|synd 0x[0-9a-f]+: unrecoverable hardware error",
        "severe",
        f"{_CORE}/health.c, print_health_info",
        _RESET,
    ),
    _kind(
        "pci-gone",
        "PCI slot is unavailable",
        "severe",
        f"{_CORE}/health.c, print_health_info",
        "look for PCIe errors in dmesg, then reset the node",
    ),
    _kind(
        "command-timeout-of-tools",
        r"(?:ACCESS_REG|TEARDOWN_HCA|DISABLE_HCA)\(0x[0-9a-f]+\) (?:Async, )?timeout\. Will cause a leak",
        "slight",
        f"{_CORE}/cmd.c, wait_func and cb_timeout_handler",
        _RESET,
    ),
    _kind(
        "command-timeout",
        r"timeout\. Will cause a leak of a command resource",
        "severe",
        f"{_CORE}/cmd.c, wait_func and cb_timeout_handler",
        _RESET,
    ),
    _kind(
        "high-temperature",
        r"High temperature on sensors|Port module event\[error\]: .*High Temperature",
        "slight",
        f"{_CORE}/events.c, temp_warn and port_module",
        _COOL,
    ),
    _kind(
        "cable-fault",
        r"Port module event\[error\]",
        "slight",
        f"{_CORE}/events.c, port_module",
        "check the cable and the transceiver",
    ),
    # At each start of some machines, which NVIDIA calls benign: it is not known to cost bandwidth by itself.
    _kind(
        "slot-power",
        "Detected insufficient power on the PCIe slot",
        "nothing",
        f"{_CORE}/events.c, mlx5_pcie_event",
    ),
    # Cards whose firmware refuses a register write this at each read of a counter (leptonai/gpud#1164, prometheus/node_exporter#3434).
    _kind("register-refused", r"ACCESS_REG\(0x805\) op_mod", "nothing", f"{_CORE}/cmd.c, mlx5_cmd_out_err"),
    _kind(
        "port-query-failed",
        r"ib_query_(?:port|pkey) failed \(-?[0-9]+\)",
        "slight",
        "drivers/infiniband/core/cache.c, ib_cache_update",
        "look in dmesg for what the card's driver said before",
    ),
)


class CardMessage(NamedTuple):
    """A message about a card: the PCI address or the name of the RDMA device, as the kernel has said it."""

    kind: KernelMessageKind
    pci: str | None
    rdma: str | None
    text: str


class KernelIncident(NamedTuple):
    """Messages of one kind about one rail.

    Attributes:
        since: the first.
        last: the second of the last one, or of the driver's words that the card has recovered or the driver is loaded anew.
        text: the first one's words.
        recovered: whether the driver has said one of these since.
    """

    kind: KernelMessageKind
    since: Moment
    last: float
    text: str
    recovered: bool = False

    def lasts(self, recovery: float) -> float:
        """Return for how many seconds after `last` it is not over: a dead firmware says so once, and one that recovers may die again at once."""
        return _SEVERE_SECONDS if self.kind.effect == "severe" and not self.recovered else recovery


Incidents = Mapping[str, KernelIncident]  # by the kind's name


def parse_record(raw: bytes) -> KernelRecord | None:
    """Parse what one read(2) of /dev/kmsg returns; None if it has another form. Unknown parts of the prefix are left out."""
    head, separator, rest = raw.partition(b";")
    match = _PREFIX.fullmatch(head)
    if match is None or not separator:
        return None
    first, *lines = rest.split(b"\n")
    pairs = (_FIELD.fullmatch(line) for line in lines)
    fields = {pair[1].decode(): pair[2].decode(errors="replace") for pair in pairs if pair is not None}
    return KernelRecord(int(match[1]) >> 3, int(match[2]), first.decode(errors="replace"), fields)


def recognised(record: KernelRecord) -> CardMessage | None:
    """Return what a record says of a card; None if it says nothing that is known, or if a program wrote it."""
    driver = _OF_DRIVER.match(record.text)
    if record.facility != _KERNEL or driver is None:
        return None
    text = record.text[driver.end() :]
    kind = next((kind for kind in KINDS if kind.pattern.search(text)), None)
    if kind is None or kind.effect == "nothing":
        return None
    device = _DEVICE.fullmatch(record.fields.get("DEVICE", "")) or driver
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[:_LONGEST_TEXT])
    return CardMessage(kind, device["pci"], device["rdma"], shown)


def noted(incidents: Incidents, message: CardMessage, now: Moment) -> dict[str, KernelIncident]:
    """Return the incidents of a rail after one more message about its card."""
    kind = message.kind
    if kind.effect == "over":
        return {
            name: incident._replace(last=now.seconds, recovered=True) if incident.kind.effect == "severe" else incident
            for name, incident in incidents.items()
        }
    known = incidents.get(kind.name)
    incident = KernelIncident(kind, now, now.seconds, message.text)
    return {**incidents, kind.name: incident if known is None else known._replace(last=now.seconds, recovered=False)}


def lasting(incidents: Incidents, recovery: float, now: Moment) -> dict[str, KernelIncident]:
    """Return the incidents that are not over: severe ones last an hour after the last message, others and recovered ones `recovery` seconds."""
    return {
        name: incident for name, incident in incidents.items() if now.seconds - incident.last < incident.lasts(recovery)
    }


def errors(incidents: Incidents) -> Iterator[RailError]:
    """Yield what the condition says of the kernel's messages about a rail. The words stay the same while an incident lasts."""
    for name, incident in sorted(incidents.items()):
        text = f"the kernel says since {time_text(incident.since)}: {incident.text!r}: {incident.kind.remedy}"
        yield RailError(REASON, name, incident.kind.effect == "severe", text)
