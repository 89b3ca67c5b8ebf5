"""Railnet's own configuration on stdin: parsed once, refused in words."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni.host.environment import CHECK, GC, STATUS
from cni.host.errors import CONFIGURATION, DECODE, INCOMPATIBLE_VERSION, CniError
from cni.host.netconf import SUPPORTED_VERSIONS, NetConf, parse

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
        conf.conflist,
        conf.device_plugins,
        conf.seconds,
        conf.runtime_config,
        conf.prev_result,
    )


def test_configuration_has_defaults() -> None:
    seconds = {"daemon": 5.0, "delegate": 30.0}

    assert facts(parse(a_conf())) == (
        "0.3.1",
        PRIMARY,
        ["rdma/ib_vf"],
        "/etc/cni/net.d/00-railnet.conflist",
        "/var/lib/kubelet/device-plugins",
        seconds,
        {},
        None,
    )


def test_configuration_takes_every_key() -> None:
    conf = parse(
        a_conf(
            resources=["a/b", "c/d"],
            conflist="/c",
            devicePlugins="/k",
            seconds={"daemon": 1, "delegate": 0.5},
            runtimeConfig={"portMappings": []},
            prevResult={"ips": []},
            unknown={},
        )
    )

    seconds = {"daemon": 1, "delegate": 0.5}
    assert facts(conf)[2:] == (["a/b", "c/d"], "/c", "/k", seconds, {"portMappings": []}, {"ips": []})


@pytest.mark.parametrize(
    ("runtime_config", "annotations"),
    [
        ({}, {}),
        ({"io.kubernetes.cri.pod-annotations": None}, {}),
        ({"io.kubernetes.cri.pod-annotations": {"railnet.io/network": "fast"}}, {"railnet.io/network": "fast"}),
    ],
)
def test_pods_annotations_are_what_the_runtime_passed(runtime_config: object, annotations: object) -> None:
    assert parse(a_conf(runtimeConfig=runtime_config)).annotations == annotations


def test_seconds_not_given_keep_their_default() -> None:
    assert parse(a_conf(seconds={"daemon": 1})).seconds == {"daemon": 1, "delegate": 30.0}


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_version_is_kept_when_railnet_speaks_it(version: str) -> None:
    assert parse(a_conf(cniVersion=version)).version == version


@pytest.mark.parametrize("version", ["0.2.0", "0.3.2", "1.2.0", "2.0.0", "", "1.0", None, 1, [], {}], ids=repr)
def test_version_is_incompatible_when_railnet_does_not_speak_it(version: object) -> None:
    error = refusal(a_conf(cniVersion=version))

    assert error.code == INCOMPATIBLE_VERSION
    assert f"cniVersion {version!r} is not supported" in str(error)
    assert error.details == "Railnet speaks 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"


def test_version_that_is_missing_is_the_specifications_oldest() -> None:
    assert "'0.1.0' is not supported" in str(refusal(b'{"primary": "/x"}'))


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        (b"", "is not JSON"),
        (b" \n", "is not JSON"),
        (b"{", "is not JSON"),
        (a_conf()[:-1], "is not JSON"),
        (a_conf() + b"}", "is not JSON"),
        (b"\xff\xfe\xfd", "is not JSON"),
        (b"{'a': 1}", "is not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not JSON"),
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
        ("conflist", None),
        ("conflist", ["/x"]),
        ("devicePlugins", None),
        ("devicePlugins", {}),
        ("seconds", 5),
        ("seconds", {"daemon": "5s"}),
        ("seconds", {"daemon": 0}),
        ("seconds", {"delegate": -1}),
        ("seconds", {"daemon": True}),
        ("seconds", {"other": 1}),
        ("seconds", None),
        ("runtimeConfig", [1]),
        ("runtimeConfig", "x"),
        ("runtimeConfig", {"io.kubernetes.cri.pod-annotations": ["railnet.io/network"]}),
        ("runtimeConfig", {"io.kubernetes.cri.pod-annotations": {"railnet.io/network": 1}}),
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


@given(st.binary() | st.dictionaries(st.text(), st.none() | st.text()).map(lambda conf: json.dumps(conf).encode()))
@pytest.mark.slow
def test_parse_raises_nothing_but_cni_errors(stdin: bytes) -> None:
    with pytest.raises(CniError) as raised:
        parse(stdin)

    assert raised.value.code in (INCOMPATIBLE_VERSION, DECODE, CONFIGURATION)


VALID = "cni.dev/valid-attachments"


def a_gc(**changes: object) -> bytes:
    return a_conf(cniVersion="1.1.0", **changes)


@pytest.mark.parametrize(
    ("listed", "valid"),
    [
        ([{"containerID": "a", "ifname": "eth0"}, {"containerID": "b", "ifname": "x"}], {"a@eth0", "b@x"}),
        ([{"containerID": "a", "ifname": "eth0", "more": 1}], {"a@eth0"}),
        ([], set()),
        (None, set()),
    ],
    ids=["two", "with more", "empty", "Go's empty list"],
)
def test_gc_says_which_attachments_live(listed: object, valid: set[str]) -> None:
    conf = parse(a_gc(**{VALID: listed, "cni.dev/attachments": listed}), GC)

    assert conf.valid == valid
    assert conf.attachments == {VALID: listed, "cni.dev/attachments": listed}


@pytest.mark.parametrize(
    "listed",
    ["a", {}, 0, ["a"], [{}], [{"containerID": "a"}], [{"containerID": 1, "ifname": "eth0"}], [None], [[]]],
    ids=repr,
)
def test_gc_refuses_a_list_that_it_does_not_understand_whole(listed: object) -> None:
    with pytest.raises(CniError, match=r"'cni\.dev/valid-attachments' is .* should be a list of objects") as raised:
        parse(a_gc(**{VALID: listed}), GC)

    assert raised.value.code == CONFIGURATION


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["containerID", "ifname", "x"]), inner),
)


@pytest.mark.slow
@given(JSON)
def test_gc_of_any_list_is_understood_or_refused(listed: object) -> None:
    conf = None

    with suppress(CniError):
        conf = parse(a_gc(**{VALID: listed}), GC)

    assert conf is None or len(conf.valid) <= len(conf.attachments[VALID] or [])


def test_gc_without_a_list_is_refused_as_it_would_collect_everything() -> None:
    with pytest.raises(CniError, match=r"GC needs 'cni\.dev/valid-attachments'") as raised:
        parse(a_gc(**{"cni.dev/attachments": []}), GC)

    assert raised.value.code == CONFIGURATION


@pytest.mark.parametrize("command", [GC, STATUS])
@pytest.mark.parametrize("version", ["0.3.0", "0.3.1", "0.4.0", "1.0.0"])
def test_gc_and_status_in_a_version_without_them_are_code_1(command: str, version: str) -> None:
    with pytest.raises(CniError, match=f"cniVersion {version} has no {command}") as raised:
        parse(a_conf(cniVersion=version, **{VALID: []}), command)

    assert raised.value.code == INCOMPATIBLE_VERSION


@pytest.mark.parametrize("version", ["0.4.0", "1.0.0", "1.1.0"])
def test_check_is_a_command_from_version_0_4_0_on(version: str) -> None:
    assert parse(a_conf(cniVersion=version), CHECK).version == version


def test_check_in_a_version_without_it_is_code_1() -> None:
    with pytest.raises(CniError, match=r"cniVersion 0\.3\.1 has no CHECK") as raised:
        parse(a_conf(), CHECK)

    assert raised.value.code == INCOMPATIBLE_VERSION
