"""Exceptions are translated to CNI errors and their codes."""

import pytest

from cni.error_translation import as_cni_error
from cni.host.errors import CniError, DelegateError
from railnet.errors import Misconfigured, NoAddress, NotOurs, NotReady, RailnetError, Unusable


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Misconfigured("why"), 7),
        (NotReady("why"), 11),
        (NotOurs("why"), 100),
        (Unusable("why"), 101),
        (NoAddress("why"), 103),
        (OSError(16, "why"), 5),
        (TimeoutError(110, "why"), 5),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_error_keeps_its_words_and_gets_its_code(error: Exception, code: int) -> None:
    translated = as_cni_error(error)

    assert (translated.code, str(translated)) == (code, "why")


@pytest.mark.parametrize("error", [CniError(104, "x"), DelegateError("flannel", 999, "x", b"{}")], ids=["ours", "its"])
def test_cni_error_is_not_changed(error: CniError) -> None:
    assert as_cni_error(error) is error


def test_kernels_refusal_keeps_its_notes() -> None:
    error = OSError(16, "Device or resource busy")
    error.add_note("move of ib0")
    error.add_note("undo failed too")

    assert as_cni_error(error).details == "move of ib0; undo failed too"


def test_refusal_of_a_file_names_it() -> None:
    translated = as_cni_error(OSError(28, "No space left on device", "/run/railnet/journal/c0ffee@eth0.json"))

    assert str(translated) == "/run/railnet/journal/c0ffee@eth0.json: No space left on device"


@pytest.mark.parametrize("error", [ValueError("odd"), RailnetError("odd"), KeyError("odd"), OSError("odd")], ids=repr)
def test_unforeseen_error_keeps_its_own_words(error: Exception) -> None:
    translated = as_cni_error(error)

    assert translated.code == 5
    assert "odd" in str(translated)


def test_every_error_of_railnet_has_a_code_of_its_own() -> None:
    kinds = RailnetError.__subclasses__()

    codes = {as_cni_error(kind("x")).code for kind in kinds}

    assert len(codes) == len(kinds)
    assert 5 not in codes
