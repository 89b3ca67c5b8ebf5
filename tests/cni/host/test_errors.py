"""CNI errors, in the specification's JSON."""

import json

from cni.host.errors import CniError, DelegateError


def test_error_is_spelled_as_the_specification_says() -> None:
    stdout = CniError(7, 'a "name" is\nodd', "look there").stdout("0.3.1")

    assert json.loads(stdout) == {"cniVersion": "0.3.1", "code": 7, "msg": 'a "name" is\nodd', "details": "look there"}
    assert stdout.endswith(b"}\n")


def test_error_leaves_empty_details_out() -> None:
    assert json.loads(CniError(4, "odd").stdout()) == {"cniVersion": "1.0.0", "code": 4, "msg": "odd"}


def test_error_is_ascii_whatever_its_words() -> None:
    assert CniError(7, "\udcff ö").stdout().isascii()


def test_delegates_error_is_its_own_bytes_in_its_own_version() -> None:
    raw = b'{ "code" : 11 ,\n\t"msg":"x", "odd" : [ ] }  '

    assert DelegateError("flannel", 11, "x", raw).stdout("1.1.0") == raw


def test_long_messages_are_shortened() -> None:
    error = CniError(7, "x" * 100_000, "\0" * 100_000)

    assert len(error.stdout()) < 20_000
    assert str(error).endswith("x…")
