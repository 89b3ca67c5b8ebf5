"""What a netdev must be given so that it is as before a pod had it."""

import json

import pytest

from railnet.vf import restored_link_settings
from railnet.vf.restored_link_settings import SETTINGS, changes, decode, to_record

BEFORE = {"mtu": 4092, "group": 0, "alias": "rack 7", "altnames": ("ibp1s0v0",), "flags": 0x1000, "xdp": 0}


@pytest.mark.parametrize(
    ("name", "value"), [("mtu", 1400), ("group", 7), ("alias", "evil"), ("altnames", ("evil",)), ("flags", 0x80)]
)
def test_changed_setting_gets_its_value_before_the_attach(name: str, value: restored_link_settings.Value) -> None:
    assert changes({**BEFORE, name: value}, BEFORE) == {name: BEFORE[name]}


def test_unchanged_netdev_is_left_alone() -> None:
    assert changes(BEFORE, to_record(BEFORE)) == {}


def test_what_a_program_on_the_node_had_done_is_not_returned_to() -> None:
    assert changes({"xdp": 2, "master": 5, "promiscuity": 1}, {"xdp": 2, "master": 5, "promiscuity": 1}) == {
        "xdp": 0,
        "master": 0,
        "promiscuity": 0,
    }


def test_without_a_record_the_settings_without_a_normal_value_stay() -> None:
    found = {"mtu": 1400, "altnames": ("evil",), "alias": "evil", "group": 7, "mode": 1}

    assert changes(found, {}) == {"altnames": (), "alias": "", "group": 0, "mode": 0}


def test_setting_that_the_kernel_does_not_report_is_left_out() -> None:
    assert changes({}, BEFORE) == {}


def test_settings_of_a_record_are_read_as_they_were_written() -> None:
    assert decode(json.loads(json.dumps(to_record(BEFORE)))) == to_record(BEFORE)


@pytest.mark.parametrize("value", [None, 1.5, True, {"a": 1}, [1]])
def test_setting_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="where a setting should be"):
        decode({"mtu": value})


def test_each_setting_is_in_the_table_once() -> None:
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)
