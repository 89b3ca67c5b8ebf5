"""What the kernel's log says of cards: records as /dev/kmsg gives them, which messages mean something, and how long."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from railnet.fabric.kernel_messages import (
    KINDS,
    CardMessage,
    KernelIncident,
    KernelRecord,
    errors,
    lasting,
    noted,
    parse_record,
    recognised,
)
from railnet.fabric.rails_condition import Moment

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PCI = "0000:5c:00.0"
FIELDS = f"\n SUBSYSTEM=pci\n DEVICE=+pci:{PCI}\n"
RECOVERY = 600.0


def record(text: str, fields: str = FIELDS, priority: int = 3) -> bytes:
    return f"{priority},339,5140900,-;{text}{fields}".encode()


def message(text: str, fields: str = FIELDS, priority: int = 3) -> CardMessage | None:
    parsed = parse_record(record(text, fields, priority))
    assert parsed is not None
    return recognised(parsed)


def certain(text: str) -> CardMessage:
    found = message(text)
    assert found is not None
    return found


def at(second: float) -> Moment:
    return Moment(second, NOON)


# Each text as the kernel of its source writes it.
SAID = {
    f"mlx5_core {PCI}: poll_health:825:(pid 0): device's health compromised - reached miss count": "firmware-silent",
    f"mlx5_core {PCI}: poll_health:1151:(pid 0): Fatal error 3 detected": "firmware-fatal",
    f"mlx5_core {PCI}: print_health_info:431:(pid 0): Health issue observed, firmware internal error, severity(3) ERROR:": "firmware-fault",
    f"mlx5_core {PCI}: synd 0x8: unrecoverable hardware error": "firmware-fault",
    f"mlx5_core {PCI}: print_health_info:424:(pid 9): PCI slot is unavailable": "pci-gone",
    f"mlx5_core {PCI}: mlx5_health_try_recover:330:(pid 9): health recovery failed": "firmware-recovery-failed",
    f"mlx5_core {PCI}: mlx5_health_try_recover:340:(pid 9): health recovery flow aborted, PCI reads still not working": "firmware-recovery-failed",
    f"mlx5_core {PCI}: wait_func:1195:(pid 1967079): ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource": "command-timeout",
    f"mlx5_core {PCI}: cb_timeout_handler:979:(pid 7): cmd[3]: 2ERR_QP(0x507) Async, timeout. Will cause a leak of a command resource": "command-timeout",
    f"mlx5_core {PCI}: wait_func:1189:(pid 72061): ACCESS_REG(0x805) timeout. Will cause a leak of a command resource": "command-timeout-of-tools",
    f"mlx5_core {PCI}: wait_func:1155:(pid 1967079): TEARDOWN_HCA(0x103) timeout. Will cause a leak of a command resource": "command-timeout-of-tools",
    f"mlx5_core {PCI}: temp_warn:181:(pid 0): High temperature on sensors with bit set 0 1": "high-temperature",
    f"mlx5_core {PCI}: Port module event[error]: module 0, Cable error, High Temperature": "high-temperature",
    f"mlx5_core {PCI}: Port module event[error]: module 0, Cable error, Bad or shorted cable/module": "cable-fault",
}
SEVERE = {
    "firmware-silent",
    "firmware-fatal",
    "firmware-fault",
    "pci-gone",
    "firmware-recovery-failed",
    "command-timeout",
}


@pytest.mark.parametrize(
    ("text", "kind"), SAID.items(), ids=[f"{number} {kind}" for number, kind in enumerate(SAID.values())]
)
def test_messages_of_the_driver_are_recognised(text: str, kind: str) -> None:
    found = certain(text)

    assert (found.kind.name, found.pci, found.kind.effect == "severe") == (kind, PCI, kind in SEVERE)
    assert f"mlx5_core {PCI}: {found.text}" == text[: len(f"mlx5_core {PCI}: ") + 160]


def test_each_row_of_the_table_has_its_source_and_a_message() -> None:
    texts = {
        *SAID.values(),
        "firmware-recovered",
        "driver-loaded",
        "slot-power",
        "register-refused",
        "port-query-failed",
    }

    assert {kind.name for kind in KINDS} == texts
    assert all(kind.source.startswith("drivers/") and ", " in kind.source for kind in KINDS)
    assert all(kind.remedy for kind in KINDS if kind.effect in ("severe", "slight"))


def test_message_of_ib_core_names_the_rdma_device() -> None:
    found = message(
        "infiniband mlx5_3: ib_query_port failed (-5)", "\n SUBSYSTEM=infiniband\n DEVICE=+infiniband:mlx5_3\n"
    )

    assert found is not None
    assert (found.kind.name, found.pci, found.rdma) == ("port-query-failed", None, "mlx5_3")


@pytest.mark.parametrize(
    "text",
    [
        f"mlx5_core {PCI}: Port module event: module 0, Cable unplugged",
        f"mlx5_core {PCI}: Port module event: module 0, Cable plugged",
        f"mlx5_core {PCI}: mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the PCIe slot (27W).",
        f"mlx5_core {PCI}: mlx5_cmd_out_err:838:(pid 1441871): ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2)",
        f"mlx5_core {PCI}: print_health_info:431:(pid 0): Health issue observed, unrecognized error, severity(6) INFO:",
        f"mlx5_core {PCI}: firmware version: 65535.65535.65535",
        f"mlx5_core {PCI}: mlx5_fw_tracer: the firmware version: 28.39.1002",
        "nvidia 0000:5c:00.0: Fatal error 3 detected",
        "Fatal error 3 detected",
        "mlx5_core: device's health compromised - reached miss count",
        "",
    ],
)
def test_other_messages_say_nothing(text: str) -> None:
    assert message(text) is None


def test_program_that_writes_into_the_log_says_nothing() -> None:
    """A pod that may write /dev/kmsg gets the facility 1 at least (Documentation/ABI/testing/dev-kmsg)."""
    text = f"mlx5_core {PCI}: Fatal error 3 detected"

    assert message(text, priority=(1 << 3) | 3) is None
    assert message(text) is not None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b";",
        b"6,1,2",
        b"6,1,2;text",
        b"x,1,2,-;text",
        b"99999,1,2,-;text",
        b"6,1,2,-",
        b"6,-1,2,-;t",
        b"\xff,1,2,-;t",
    ],
)
def test_record_of_another_form_is_none(raw: bytes) -> None:
    assert parse_record(raw) is None


def test_record_keeps_text_fields_and_what_it_does_not_know() -> None:
    raw = b"6,339,5140900,c,future=1;one;two\n SUBSYSTEM=pci\nnonsense\n DEVICE=+pci:0000:5c:00.0\n =\n"

    assert parse_record(raw) == KernelRecord(0, 339, "one;two", {"SUBSYSTEM": "pci", "DEVICE": "+pci:0000:5c:00.0"})


def test_words_of_an_incident_stay_and_are_printable() -> None:
    first = noted({}, certain(f"mlx5_core {PCI}: Fatal error 3 detected\x1b[2J" + "x" * 500), at(0))
    second = noted(first, certain(f"mlx5_core {PCI}: Fatal error 9 detected"), at(5))
    (error,), (again,) = errors(first), errors(second)

    assert error == again
    assert (error.reason, error.name, error.severe) == ("KernelErrors", "firmware-fatal", True)
    assert error.text.startswith("the kernel says since 2026-01-01T12:00:00Z: 'Fatal error 3 detected?[2J")
    assert len(error.text) < 400


def test_severe_incident_lasts_an_hour_after_the_last_message_and_a_slight_one_the_recovery() -> None:
    incidents = noted({}, certain(f"mlx5_core {PCI}: Fatal error 3 detected"), at(0))
    incidents = noted(
        incidents, certain(f"mlx5_core {PCI}: Port module event[error]: module 0, Cable error, Unknown status"), at(0)
    )
    incidents = noted(incidents, certain(f"mlx5_core {PCI}: Fatal error 3 detected"), at(100))

    assert set(lasting(incidents, RECOVERY, at(599))) == {"firmware-fatal", "cable-fault"}
    assert set(lasting(incidents, RECOVERY, at(3699))) == {"firmware-fatal"}
    assert lasting(incidents, RECOVERY, at(3700)) == {}


def test_card_that_the_driver_has_recovered_is_believed_after_the_recovery_time() -> None:
    incidents: dict[str, KernelIncident] = {}
    for text in ("Fatal error 3 detected", "Port module event[error]: module 0, Cable error, High Temperature"):
        incidents = noted(incidents, certain(f"mlx5_core {PCI}: {text}"), at(0))
    recovered = certain(f"mlx5_core {PCI}: mlx5_health_try_recover:344:(pid 9): health recovery succeeded")

    recovering = noted(incidents, recovered, at(1000))
    again = noted(recovering, certain(f"mlx5_core {PCI}: Fatal error 3 detected"), at(1100))

    assert set(lasting(recovering, RECOVERY, at(1599))) == {"firmware-fatal"}
    assert lasting(recovering, RECOVERY, at(1600)) == {}
    assert set(lasting(again, RECOVERY, at(4000))) == {"firmware-fatal"}


@pytest.mark.parametrize("prefix", ["", "mlx5_function_setup:917:(pid 5): "])
def test_card_whose_driver_was_loaded_anew_is_believed_unless_its_recovery_fails(prefix: str) -> None:
    """Who does what the message says, and resets the card, has nothing recovered by the driver itself."""
    fatal = noted({}, certain(f"mlx5_core {PCI}: Fatal error 3 detected"), at(0))
    loaded = noted(fatal, certain(f"mlx5_core {PCI}: {prefix}firmware version: 28.39.1002"), at(60))
    failed = noted(
        loaded, certain(f"mlx5_core {PCI}: mlx5_health_try_recover:330:(pid 9): health recovery failed"), at(70)
    )

    assert set(lasting(loaded, RECOVERY, at(659))) == {"firmware-fatal"}
    assert lasting(loaded, RECOVERY, at(660)) == {}
    assert set(lasting(failed, RECOVERY, at(3600))) == {"firmware-recovery-failed"}


def test_flood_of_messages_makes_one_incident_of_each_kind() -> None:
    incidents: dict[str, KernelIncident] = {}
    for number in range(10_000):
        incidents = noted(incidents, certain(f"mlx5_core {PCI}: Fatal error {number} detected"), at(number / 1000))

    assert list(incidents) == ["firmware-fatal"]


def test_table_of_the_page_has_each_kind_with_its_effect() -> None:
    page = (Path(__file__).parents[3] / "docs/operations.md").read_text()
    words = {"severe": "False", "slight": "stays True", "over": "ends what is False", "nothing": "nothing"}
    rows = re.findall(
        r"^\| `([a-z-]+)` \| .* \| (False|stays True|ends what is False|nothing) \| ([^|]*) \|$", page, re.MULTILINE
    )

    core = "drivers/net/ethernet/mellanox/mlx5/core/"
    assert rows == [(kind.name, words[kind.effect], kind.source.removeprefix(core)) for kind in KINDS]
