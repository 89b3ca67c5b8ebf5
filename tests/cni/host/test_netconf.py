"""Railnet's own configuration on stdin: parsed once, refused in words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni.host.errors import CONFIGURATION, DECODE, INCOMPATIBLE_VERSION, CniError
from cni.host.netconf import SUPPORTED_VERSIONS, NetConf, load_object, parse

PRIMARY = "/etc/cni/net.d/10-flannel.conflist"


def a_conf(**changes: object) -> bytes:
    conf = {"cniVersion": "0.3.1", "name": "cbr0", "type": "railnet", "primary": PRIMARY}
    return json.dumps({**conf, **changes}).encode()


def refusal(stdin: bytes) -> CniError:
    with pytest.raises(CniError) as raised:
        parse(stdin)
    return raised.value


def facts(conf: NetConf) -> tuple[object, ...]:
    return (
        conf.version,
        conf.primary,
        conf.resources,
        conf.kubelet,
        conf.seconds,
        conf.runtime_config,
        conf.prev_result,
    )


def test_configuration_has_defaults() -> None:
    seconds = {"daemon": 5.0, "delegate": 30.0}

    assert facts(parse(a_conf())) == ("0.3.1", PRIMARY, ["rdma/ib_vf"], "/var/lib/kubelet", seconds, {}, None)


def test_configuration_takes_every_key() -> None:
    conf = parse(
        a_conf(
            resources=["a/b", "c/d"],
            kubelet="/k",
            seconds={"daemon": 1, "delegate": 0.5},
            runtimeConfig={"portMappings": []},
            prevResult={"ips": []},
            unknown={},
        )
    )

    seconds = {"daemon": 1, "delegate": 0.5}
    assert facts(conf)[2:] == (["a/b", "c/d"], "/k", seconds, {"portMappings": []}, {"ips": []})


def test_seconds_not_given_keep_their_default() -> None:
    assert parse(a_conf(seconds={"daemon": 1})).seconds == {"daemon": 1, "delegate": 30.0}


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_version_is_kept_when_railnet_speaks_it(version: str) -> None:
    assert parse(a_conf(cniVersion=version)).version == version


@pytest.mark.parametrize("version", ["0.2.0", "0.3.0", "1.2.0", "2.0.0", "", "1.0", None, 1, [], {}], ids=repr)
def test_version_is_incompatible_when_railnet_does_not_speak_it(version: object) -> None:
    error = refusal(a_conf(cniVersion=version))

    assert error.code == INCOMPATIBLE_VERSION
    assert f"cniVersion {version!r} is not supported" in str(error)
    assert error.details == "Railnet speaks 0.3.1, 0.4.0, 1.0.0, 1.1.0"


def test_version_that_is_missing_is_the_specifications_oldest() -> None:
    assert "'0.1.0' is not supported" in str(refusal(b'{"primary": "/x"}'))


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        (b"", "is no JSON"),
        (b" \n", "is no JSON"),
        (b"{", "is no JSON"),
        (a_conf()[:-1], "is no JSON"),
        (a_conf() + b"}", "is no JSON"),
        (b"\xff\xfe\xfd", "is no JSON"),
        (b"{'a': 1}", "is no JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is no JSON"),
        (b"[" * 100_000, "is nested too deeply"),
        (b'{"a":' * 100_000, "is nested too deeply"),
        (b"null", "is a JSON NoneType, not an object"),
        (b"[{}]", "is a JSON list, not an object"),
        (b'"x"', "is a JSON str, not an object"),
    ],
    ids=lambda value: repr(value[-16:]),
)
def test_stdin_cannot_be_decoded_when_it_is_no_json_object(stdin: bytes, words: str) -> None:
    error = refusal(stdin)

    assert error.code == DECODE
    assert str(error).startswith("the configuration on stdin")
    assert words in str(error)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("primary", None),
        ("primary", 7),
        ("primary", ["/x"]),
        ("resources", "rdma/ib_vf"),
        ("resources", None),
        ("resources", [1]),
        ("kubelet", None),
        ("kubelet", {}),
        ("seconds", 5),
        ("seconds", {"daemon": "5s"}),
        ("seconds", {"daemon": 0}),
        ("seconds", {"delegate": -1}),
        ("seconds", {"daemon": True}),
        ("seconds", {"other": 1}),
        ("seconds", None),
        ("runtimeConfig", [1]),
        ("runtimeConfig", "x"),
        ("prevResult", [1]),
        ("prevResult", "x"),
    ],
    ids=repr,
)
def test_configuration_is_refused_by_key_when_a_value_is_of_the_wrong_kind(key: str, value: object) -> None:
    error = refusal(a_conf(**{key: value}))

    assert error.code == CONFIGURATION
    assert str(error).startswith(f"{key!r} is ")
    assert "; it should be " in str(error)


def test_configuration_is_refused_when_primary_is_missing() -> None:
    error = refusal(b'{"cniVersion": "1.0.0"}')

    assert error.code == CONFIGURATION
    assert "'primary' is None; it should be the path" in str(error)


@pytest.mark.parametrize("key", ["runtimeConfig", "prevResult"])
def test_null_is_as_good_as_absent(key: str) -> None:
    assert facts(parse(a_conf(**{key: None}))) == facts(parse(a_conf()))


def test_refusal_of_a_huge_value_is_short() -> None:
    assert len(str(refusal(a_conf(resources="x" * 100_000)))) < 300


def test_load_object_raises_the_code_it_is_told() -> None:
    with pytest.raises(CniError, match="a file is no JSON") as raised:
        load_object(b"", "a file", CONFIGURATION)

    assert raised.value.code == CONFIGURATION


@given(st.binary() | st.dictionaries(st.text(), st.none() | st.text()).map(lambda conf: json.dumps(conf).encode()))
def test_parse_raises_nothing_but_cni_errors(stdin: bytes) -> None:
    with pytest.raises(CniError) as raised:
        parse(stdin)

    assert raised.value.code in (INCOMPATIBLE_VERSION, DECODE, CONFIGURATION)
