"""The CNI_* environment: what must be there, and what it may look like."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni.host.environment import Environment
from cni.host.errors import ENVIRONMENT, CniError

ADD = {
    b"CNI_COMMAND": b"ADD",
    b"CNI_CONTAINERID": b"c0ffee",
    b"CNI_NETNS": b"/run/netns/cni-1",
    b"CNI_IFNAME": b"eth0",
    b"CNI_PATH": b"/opt/cni/bin:/usr/lib/cni",
    b"CNI_ARGS": b"IgnoreUnknown=1;K8S_POD_NAMESPACE=ml;K8S_POD_NAME=train-0;K8S_POD_UID=uid-1",
    b"HOME": b"/",
}


def without(name: bytes, **changes: bytes) -> dict[bytes, bytes]:
    return {key: value for key, value in ADD.items() if key != name} | {k.encode(): v for k, v in changes.items()}


def refusal(raw: dict[bytes, bytes]) -> CniError:
    with pytest.raises(CniError) as raised:
        Environment(raw)
    return raised.value


def test_environment_is_taken_apart() -> None:
    environment = Environment(ADD)

    assert (environment.command, environment.container_id, environment.ifname) == ("ADD", "c0ffee", "eth0")
    assert (environment.netns, environment.path) == ("/run/netns/cni-1", ["/opt/cni/bin", "/usr/lib/cni"])
    assert (environment.pod_namespace(), environment.pod_name(), environment.pod_uid()) == ("ml", "train-0", "uid-1")
    assert environment.key == "c0ffee@eth0"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (b"ADD", "CNI_CONTAINERID"),
        (b"ADD", "CNI_NETNS"),
        (b"ADD", "CNI_IFNAME"),
        (b"ADD", "CNI_PATH"),
        (b"DEL", "CNI_CONTAINERID"),
        (b"DEL", "CNI_IFNAME"),
        (b"DEL", "CNI_PATH"),
    ],
)
@pytest.mark.parametrize("value", [None, b""], ids=["missing", "empty"])
def test_variable_that_is_missing_is_named(command: bytes, name: str, value: bytes | None) -> None:
    raw = without(name.encode(), CNI_COMMAND=command) | ({} if value is None else {name.encode(): value})

    error = refusal(raw)

    assert error.code == ENVIRONMENT
    assert str(error) == f"{command.decode()} needs {name} in its environment"


def test_variables_that_are_missing_are_all_named() -> None:
    error = refusal({b"CNI_COMMAND": b"ADD"})

    assert str(error) == "ADD needs CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME, CNI_PATH in its environment"


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {b"CNI_COMMAND": b""},
        *({**ADD, b"CNI_COMMAND": odd} for odd in (b"add", b"ADD\n", b"RUN", b"\xff")),
    ],
    ids=["missing", "empty", "lower case", "newline", "unknown", "not text"],
)
def test_command_that_is_odd_is_named(raw: dict[bytes, bytes]) -> None:
    error = refusal(raw)

    assert error.code == ENVIRONMENT
    assert "CNI_COMMAND is" in str(error)


def test_del_needs_no_netns() -> None:
    assert Environment(without(b"CNI_NETNS", CNI_COMMAND=b"DEL")).netns == ""


def test_version_needs_nothing_else() -> None:
    assert Environment({b"CNI_COMMAND": b"VERSION"}).command == "VERSION"


@pytest.mark.parametrize("command", [b"GC", b"STATUS"])
def test_gc_and_status_need_the_plugins_folders_and_are_of_no_sandbox(command: bytes) -> None:
    empty = {b"CNI_CONTAINERID": b"", b"CNI_NETNS": b"", b"CNI_IFNAME": b"", b"CNI_ARGS": b""}  # as libcni sends them

    assert str(refusal({b"CNI_COMMAND": command, **empty})).endswith("needs CNI_PATH in its environment")
    assert Environment({b"CNI_COMMAND": command, b"CNI_PATH": b"/opt/cni/bin", **empty}).key == "@"
    assert Environment({**ADD, b"CNI_COMMAND": command}).key == "@"


@pytest.mark.parametrize(
    "value",
    [
        b"a/b",
        b"/a",
        b"..",
        b"../a",
        b".a",
        b"-a",
        b"_a",
        b"a b",
        b"a\n",
        b"a\nb",
        b"a@b",
        b"a:b",
        "ä".encode(),
        "a\N{ARABIC-INDIC DIGIT ONE}".encode(),
        b"a\xff",
        b"a" * 129,
    ],
    ids=lambda value: repr(value[:12]),
)
def test_container_id_is_refused_when_it_is_odd(value: bytes) -> None:
    error = refusal({**ADD, b"CNI_CONTAINERID": value})

    assert error.code == ENVIRONMENT
    assert str(error).startswith("CNI_CONTAINERID '")
    assert "\n" not in str(error)


@pytest.mark.parametrize("value", [b"a", b"0", b"A.b-c_d", b"a..b", b"f" * 64, b"a" * 128], ids=lambda v: repr(v[:12]))
def test_container_id_is_taken_as_it_is(value: bytes) -> None:
    assert Environment({**ADD, b"CNI_CONTAINERID": value}).container_id == value.decode()


@pytest.mark.parametrize(
    "value",
    [
        b"a/b",
        b".",
        b"..",
        b"a:1",
        b"a b",
        b" a",
        b"eth0\n",
        b"a\tb",
        b"a\x01",
        "a\N{NO-BREAK SPACE}b".encode(),
        b"a\xff\xff\xff\xff",
        b"a" * 16,
        "ä".encode() * 8,
    ],
    ids=repr,
)
def test_interface_name_is_refused_when_the_kernel_would(value: bytes) -> None:
    error = refusal({**ADD, b"CNI_IFNAME": value})

    assert error.code == ENVIRONMENT
    assert str(error).startswith("CNI_IFNAME '")


@pytest.mark.parametrize("value", [b"eth0", b"a" * 15, b"a.b-c_d@1", b"...", "ö".encode() * 7], ids=repr)
def test_interface_name_is_taken_as_it_is(value: bytes) -> None:
    assert Environment({**ADD, b"CNI_IFNAME": value}).ifname == value.decode()


def test_refusal_of_a_huge_value_is_short() -> None:
    assert len(str(refusal({**ADD, b"CNI_CONTAINERID": b"a" * 100_000}))) < 400


@pytest.mark.parametrize(
    ("args", "uid"),
    [(b"", ""), (b"K8S_POD_UID=", ""), (b";;K8S_POD_UID=u;x", "u"), (b"K8S_POD_UID=a=b", "a=b"), (b"nonsense", "")],
)
def test_args_are_read_leniently(args: bytes, uid: str) -> None:
    assert Environment({**ADD, b"CNI_ARGS": args}).pod_uid() == uid


def test_path_leaves_empty_folders_out() -> None:
    assert Environment({**ADD, b"CNI_PATH": b":/opt/cni/bin::"}).path == ["/opt/cni/bin"]


def test_delegate_gets_the_runtimes_environment_with_its_command_alone() -> None:
    environment = Environment({**ADD, b"ODD": b"\xff\n"})

    assert environment.for_delegate("DEL") == {**ADD, b"ODD": b"\xff\n", b"CNI_COMMAND": b"DEL"}


@given(st.dictionaries(st.sampled_from(sorted(ADD)), st.binary().filter(lambda value: 0 not in value)))
def test_environment_lets_no_key_through_that_leaves_its_folder(raw: dict[bytes, bytes]) -> None:
    environment = None

    with suppress(CniError):
        environment = Environment({**ADD, **raw})

    assert environment is None or environment.command == "VERSION" or Path(environment.key).name == environment.key
