"""The counters of a function's RDMA ports: their names, what moved since the reading before, and since a sandbox has the VF.

Pure; `railnet.kernel.sysfs.rdma_counters` reads the files. Units: Documentation/ABI/stable/sysfs-class-infiniband. Widths: the attributes
`PORT_PMA_ATTR` of drivers/infiniband/core/sysfs.c; a counter of the InfiniBand specification stays at its largest value.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from railnet.vf.vf_table import Owner

OCTETS_OF_A_WORD = 4  # port_rcv_data and port_xmit_data count octets, divided by 4
RECEIVED, TRANSMITTED = "counters/port_rcv_data", "counters/port_xmit_data"
RECEIVED_PACKETS, TRANSMITTED_PACKETS = "counters/port_rcv_packets", "counters/port_xmit_packets"
_TRAFFIC = (RECEIVED, TRANSMITTED, RECEIVED_PACKETS, TRANSMITTED_PACKETS)
_PORT_WIDTHS = {
    "counters/symbol_error": 16,
    "counters/link_error_recovery": 8,
    "counters/link_downed": 8,
    "counters/port_rcv_errors": 16,
    "counters/port_xmit_discards": 16,
    "counters/port_xmit_wait": 32,
    "counters/local_link_integrity_errors": 4,
    "counters/excessive_buffer_overrun_errors": 4,
    "counters/VL15_dropped": 16,
}
_TRANSPORT = (
    "hw_counters/out_of_sequence",
    "hw_counters/packet_seq_err",
    "hw_counters/local_ack_timeout_err",
    "hw_counters/rnr_nak_retry_err",
    "hw_counters/np_cnp_sent",
    "hw_counters/rp_cnp_handled",
)
# Files below `ports/<number>`. The list is fixed, so a driver with a thousand counters makes no thousand series.
OF_A_VF = (*_TRAFFIC, *_TRANSPORT)
OF_A_PF = (*_TRAFFIC, *_PORT_WIDTHS, *_TRANSPORT)
_NUMBER = re.compile(r"[0-9]{1,20}")
_LARGEST = (1 << 64) - 1

Counters = Mapping[str, int]  # by file below `ports/<number>`, or by `of_port`


@dataclass(frozen=True, slots=True)
class Tally:
    """The counters of one function over several readings.

    `reading` is the newest one. `last` also has what an earlier one had, for a counter that is not readable now. `total` is
    what moved since the driver was loaded, and goes on after a reset. `begun` has the totals when `holder` was first seen with the VF.
    """

    reading: Counters = field(default_factory=dict)
    last: Counters = field(default_factory=dict)
    total: Counters = field(default_factory=dict)
    holder: Owner | None = None
    begun: Counters = field(default_factory=dict)

    def moved(self) -> dict[str, int]:
        """Return what the holder moved, of the counters that can be read now; empty without a holder."""
        if self.holder is None:
            return {}
        return {name: self.total[name] - self.begun[name] for name in self.reading}


def of_port(port: int, name: str) -> str:
    """Return the path of a counter's file, below the folder of the RDMA device. Each port is counted for itself: one port alone may be reset."""
    return f"ports/{port}/{name}"


def ports_of(counters: Counters) -> frozenset[int]:
    """Return the ports whose counters these are, by `of_port`."""
    return frozenset(int(key.split("/")[1]) for key in counters)


def over_ports(counters: Counters) -> dict[str, int]:
    """Return the sum over all ports, by file below `ports/<number>`."""
    return summed({key.split("/", 2)[2]: value} for key, value in counters.items())


def parse_counter(text: str) -> int | None:
    """Parse a counter's file. Return None where it has no number of 64 bits: `N/A (no PMA)`, or nonsense of a driver."""
    if _NUMBER.fullmatch(text) is None or (number := int(text)) > _LARGEST:
        return None
    return number


def tallied(before: Tally, reading: Counters, holder: Owner | None) -> Tally:
    """Return the tally after one more reading, during which `holder` had the VF from beginning to end; None if no sandbox had it."""
    total = dict(before.total)
    for name, value in reading.items():
        total[name] = total.get(name, 0) + difference(before.last.get(name, 0), value)
    known = before.begun if holder == before.holder else {}
    start_totals = {name: known.get(name, total[name]) for name in {*known, *reading}} if holder is not None else {}
    return Tally(reading, {**before.last, **reading}, total, holder, start_totals)


def difference(before: int, now: int) -> int:
    """Return what a counter moved. A smaller value means that it began at 0 again: reset of the function, or the driver loaded anew."""
    return now - before if now >= before else now


def summed(totals: Iterable[Counters]) -> dict[str, int]:
    """Return the sum of totals, by name."""
    sums: dict[str, int] = {}
    for counters in totals:
        for name, value in counters.items():
            sums[name] = sums.get(name, 0) + value
    return sums


def saturated(reading: Counters) -> list[str]:
    """Return the names of counters that have reached their largest value at a port, and count no more there until they are reset."""
    values = ((key.split("/", 2)[2], value) for key, value in reading.items())
    return list(dict.fromkeys(name for name, value in values if is_saturated(name, value)))


def is_saturated(name: str, value: int) -> bool:
    """Return whether a counter, by its file below `ports/<number>`, has its largest value. It counts no more until it is reset."""
    return value in (_LARGEST, largest(name))


def largest(name: str) -> int:
    """Return the largest value of a counter, by its file below `ports/<number>`."""
    return (1 << _PORT_WIDTHS[name]) - 1 if name in _PORT_WIDTHS else _LARGEST
