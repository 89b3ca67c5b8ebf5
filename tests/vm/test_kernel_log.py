"""The real kernel's log: what a driver says of its device, what a program writes, and what was overwritten before it was read."""

from pathlib import Path

from railnet.fabric.kernel_messages import KernelRecord, parse_record
from railnet.kernel.kernel_log import KernelLog
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.pci_address import PciAddress
from simnode.waiting import wait_until
from tests.vm.guest import Guest, vfs

LOG = Path("/dev/kmsg")
_LIMIT = Path("/proc/sys/kernel/printk_devkmsg")  # of records by programs
SYSFS = Sysfs(Path("/sys"))
_SECONDS = 180.0  # an emulated processor is slow


def read(log: KernelLog) -> list[KernelRecord]:
    parsed = [parse_record(raw) for raw in log.records(10_000)]
    assert None not in parsed
    return [record for record in parsed if record is not None]


def of_driver(records: list[KernelRecord], vf: str) -> list[KernelRecord]:
    return [record for record in records if record.text.startswith(f"igbvf {vf}: ")]


def test_record_of_a_driver_has_the_kernels_facility_and_names_the_device(guest: Guest) -> None:
    vf, records = vfs()[0], list[KernelRecord]()

    def says() -> bool:
        records.extend(read(log))
        return bool(of_driver(records, vf))

    with KernelLog(LOG) as log:
        assert log.records(5) == []  # what was said before it was opened
        SYSFS.unbind(PciAddress.parse(vf), "igbvf")
        SYSFS.bind(PciAddress.parse(vf), "igbvf")
        wait_until(says, _SECONDS, "the driver's message")

    assert {record.facility for record in of_driver(records, vf)} == {0}
    assert {record.fields["DEVICE"] for record in of_driver(records, vf)} == {f"+pci:{vf}"}


def test_program_cannot_write_as_the_kernel(guest: Guest) -> None:
    with KernelLog(LOG) as log:
        LOG.write_text("<3>mlx5_core 0000:03:00.0: Fatal error 3 detected\n")
        (record,) = [record for record in read(log) if "mlx5_core" in record.text]

    assert record.facility == 1


def test_records_that_were_overwritten_are_counted_and_later_ones_are_read(guest: Guest) -> None:
    before = _LIMIT.read_text()
    _LIMIT.write_text("on\n")
    try:
        with KernelLog(LOG) as log, LOG.open("wb", buffering=0) as writer:
            for number in range(20_000):
                writer.write(f"{number:0800}\n".encode())
            records = read(log)
            writer.write(b"the last\n")
            last = read(log)
    finally:
        _LIMIT.write_text(before)

    assert log.lost >= 1
    assert records
    assert [record.text for record in last if record.text == "the last"] == ["the last"]
