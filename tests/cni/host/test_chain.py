"""The primary chain, driven by a runner that executes nothing."""

import errno
import json

import pytest

from cni.host.chain import TIMED_OUT, ExecOutput, Primary, add, check, collect, delete, parse, status
from cni.host.errors import (
    CONFIGURATION,
    DELEGATE_BROKE,
    DELEGATE_TIMED_OUT,
    CniError,
    DelegateError,
    NotExecuted,
)
from tests.cni.host.fake_runner import Runner, a_primary, printed

MAPPINGS = {"portMappings": [{"hostPort": 80, "containerPort": 8080}]}
PORTMAP = {"type": "portmap", "capabilities": {"portMappings": True}}
FLANNEL = a_primary({"type": "flannel", "delegate": {"isDefaultGateway": True}}, PORTMAP)
THREE = a_primary("bridge", "tuning", "firewall")
PREVIOUS = {"ips": [{"address": "10.244.3.7/24"}]}
OWN_ERROR = b'{ "code" : 999,"msg": "no lease" , "odd":[]}\n'


def failed(status: int, stdout: bytes = b"", stderr: bytes = b"") -> ExecOutput:
    return ExecOutput(status, stdout, stderr)


EXIT_1 = 1 << 8


# ADD.


def test_add_runs_the_plugins_in_order() -> None:
    runner = Runner()

    runner.drive(add(THREE, {}))

    assert runner.calls == ["ADD bridge", "ADD tuning", "ADD firewall"]


def test_add_gives_each_plugin_its_own_keys_with_name_and_version_of_the_list() -> None:
    runner = Runner()

    runner.drive(add(a_primary({"type": "bridge", "mtu": 9000, "name": "other", "cniVersion": "0.1.0"}), {}))

    assert runner.conf("ADD bridge") == {"type": "bridge", "mtu": 9000, "name": "cbr0", "cniVersion": "1.0.0"}


def test_add_passes_each_result_to_the_next_plugin() -> None:
    runner = Runner({("bridge", "ADD"): printed(PREVIOUS)})

    runner.drive(add(THREE, {}))

    assert [json.loads(step.stdin).get("prevResult") for step in runner.executed] == [None, PREVIOUS, {"by": "tuning"}]


@pytest.mark.parametrize(
    "raw",
    [b'  {"b":1 ,\t"a":[ ]}\r\n\n', b'{"unknown": {"x": 1.50}, "ips": []}', '{"ö": "\\u00f6"}'.encode(), b"{}"],
    ids=repr,
)
def test_add_answers_the_last_plugins_bytes_verbatim(raw: bytes) -> None:
    runner = Runner({("firewall", "ADD"): ExecOutput(0, raw, b"noise")})

    assert runner.drive(add(THREE, {})) == raw


def test_add_passes_runtime_config_only_where_a_plugin_declares_the_capability() -> None:
    declaring = {"type": "bandwidth", "capabilities": {"bandwidth": True, "portMappings": False}}
    runner = Runner()

    runner.drive(
        add(a_primary("bridge", declaring, PORTMAP), {**MAPPINGS, "bandwidth": {"ingressRate": 1}, "mac": "x"})
    )

    assert "runtimeConfig" not in runner.conf("ADD bridge")
    assert runner.conf("ADD bandwidth")["runtimeConfig"] == {"bandwidth": {"ingressRate": 1}}
    assert runner.conf("ADD portmap")["runtimeConfig"] == MAPPINGS


@pytest.mark.parametrize(
    ("primary", "runtime_config", "calls"),
    [
        (FLANNEL, {}, ["ADD flannel"]),
        (FLANNEL, {"portMappings": []}, ["ADD flannel"]),
        (FLANNEL, {"portMappings": None}, ["ADD flannel"]),
        (FLANNEL, MAPPINGS, ["ADD flannel", "ADD portmap"]),
        (a_primary("bridge", "portmap"), MAPPINGS, ["ADD bridge"]),
        (a_primary(PORTMAP, "bridge"), {}, ["ADD portmap", "ADD bridge"]),
        (a_primary("bridge", "portmap2"), {}, ["ADD bridge", "ADD portmap2"]),
    ],
    ids=["no mappings", "empty", "null", "mappings", "undeclared", "first of the chain", "another type"],
)
def test_add_leaves_portmap_out_when_it_would_do_nothing(primary, runtime_config, calls) -> None:
    runner = Runner()

    runner.drive(add(primary, runtime_config))

    assert runner.calls == calls


def test_add_passes_the_result_over_a_plugin_that_is_left_out() -> None:
    runner = Runner({("flannel", "ADD"): printed(PREVIOUS)})

    runner.drive(add(a_primary("flannel", PORTMAP, "tuning"), {}))

    assert runner.conf("ADD tuning")["prevResult"] == PREVIOUS


def test_add_answers_the_bytes_before_a_last_plugin_that_is_left_out() -> None:
    raw = b'{ "ips":[ ] }\n'
    runner = Runner({("flannel", "ADD"): ExecOutput(0, raw, b"")})

    assert runner.drive(add(FLANNEL, {})) == raw


# A delegate that fails.


def test_add_undoes_what_ran_when_a_plugin_fails_that_one_included() -> None:
    runner = Runner({("tuning", "ADD"): failed(EXIT_1)})

    with pytest.raises(CniError):
        runner.drive(add(THREE, {}))

    assert runner.calls == ["ADD bridge", "ADD tuning", "DEL tuning", "DEL bridge"]


def test_add_that_the_first_plugin_refuses_removes_nothing() -> None:
    """bridge refuses if the container has the interface already: a DEL would remove what an earlier ADD made."""
    runner = Runner({("bridge", "ADD"): failed(EXIT_1, OWN_ERROR)})

    with pytest.raises(DelegateError, match="no lease"):
        runner.drive(add(THREE, {}))

    assert runner.calls == ["ADD bridge"]


def test_add_that_cannot_execute_the_first_plugin_removes_nothing() -> None:
    runner = Runner({("bridge", "ADD"): failed(-2)})

    with pytest.raises(NotExecuted):
        runner.drive(add(THREE, {}))

    assert runner.calls == ["ADD bridge"]


def test_add_undoes_a_first_plugin_that_died() -> None:
    runner = Runner({("bridge", "ADD"): failed(9)})

    with pytest.raises(CniError):
        runner.drive(add(THREE, {}))

    assert runner.calls == ["ADD bridge", "DEL bridge"]


@pytest.mark.parametrize(("plugin", "calls"), [("bridge", []), ("tuning", ["ADD tuning", "DEL bridge"])])
def test_add_does_not_run_a_plugin_again_that_took_too_long(plugin: str, calls: list[str]) -> None:
    runner = Runner({(plugin, "ADD"): failed(TIMED_OUT)})

    with pytest.raises(CniError, match="took longer"):
        runner.drive(add(THREE, {}))

    assert runner.calls == ["ADD bridge", *calls]


def test_add_undoes_all_when_one_undo_fails_too() -> None:
    runner = Runner({("tuning", "ADD"): failed(EXIT_1, OWN_ERROR), ("tuning", "DEL"): failed(9)})

    with pytest.raises(DelegateError, match="no lease"):
        runner.drive(add(THREE, {}))

    assert runner.calls[-1] == "DEL bridge"


def test_add_undoes_with_the_runtime_config_it_was_given() -> None:
    runner = Runner({("portmap", "ADD"): failed(EXIT_1)})

    with pytest.raises(CniError):
        runner.drive(add(FLANNEL, MAPPINGS))

    assert runner.conf("DEL portmap")["runtimeConfig"] == MAPPINGS


@pytest.mark.parametrize("status", [EXIT_1, 2 << 8, 9], ids=["status 1", "status 2", "signal 9"])
def test_delegates_own_error_passes_byte_for_byte(status: int) -> None:
    runner = Runner({("bridge", "ADD"): failed(status, OWN_ERROR)})

    with pytest.raises(DelegateError, match="no lease") as raised:
        runner.drive(add(THREE, {}))

    assert raised.value.code == 999
    assert raised.value.stdout("0.3.1") == OWN_ERROR


BROKEN = {
    "silent": (failed(EXIT_1), DELEGATE_BROKE, "failed with status 1 and no CNI error"),
    "status 255": (failed(255 << 8), DELEGATE_BROKE, "failed with status 255"),
    "rubbish with a status": (failed(EXIT_1, b"Segmentation"), DELEGATE_BROKE, "no CNI error"),
    "an error without a code": (failed(EXIT_1, b'{"msg": "x"}'), DELEGATE_BROKE, "no CNI error"),
    "an error whose code is text": (failed(EXIT_1, b'{"code": "7", "msg": "x"}'), DELEGATE_BROKE, "no CNI error"),
    "an error whose code is true": (failed(EXIT_1, b'{"code": true, "msg": "x"}'), DELEGATE_BROKE, "no CNI error"),
    "an error without words": (failed(EXIT_1, b'{"code": 7}'), DELEGATE_BROKE, "no CNI error"),
    "killed": (failed(9), DELEGATE_BROKE, "was ended by signal 9"),
    "core dumped": (failed(11 | 0x80), DELEGATE_BROKE, "was ended by signal 11"),
    "rubbish": (failed(0, b"hello"), DELEGATE_BROKE, "what plugin 'bridge' printed is not JSON"),
    "nothing": (failed(0, b""), DELEGATE_BROKE, "is not JSON"),
    "a list": (failed(0, b"[]"), DELEGATE_BROKE, "is a JSON list"),
    "nested deeply": (failed(0, b"[" * 100_000), DELEGATE_BROKE, "nested too deeply"),
    "cut off": (failed(0, b'{"ips": ['), DELEGATE_BROKE, "is not JSON"),
    "not text": (failed(0, b"\xff\xfe\xfd"), DELEGATE_BROKE, "is not JSON"),
    "timed out": (failed(TIMED_OUT), DELEGATE_TIMED_OUT, "took longer than its time limit"),
    "missing": (failed(-errno.ENOENT), CONFIGURATION, "plugin 'bridge' cannot be executed"),
    "not executable": (failed(-errno.EACCES), CONFIGURATION, "cannot be executed"),
}


@pytest.mark.parametrize(("output", "code", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_add_tells_what_a_broken_delegate_did(output: ExecOutput, code: int, words: str) -> None:
    with pytest.raises(CniError, match=words) as raised:
        Runner({("bridge", "ADD"): output}).drive(add(THREE, {}))

    assert raised.value.code == code
    assert "'bridge'" in str(raised.value)


@pytest.mark.parametrize(
    ("output", "details"),
    [
        (failed(EXIT_1, b"out", b"panic: \xff\n"), "panic: \\xff"),
        (failed(EXIT_1, b"out"), "out"),
        (failed(TIMED_OUT, b"", b"waiting"), "waiting"),
        (failed(0, b"rubbish"), "rubbish"),
        (failed(-2, b"", b"no folder has it"), "no folder has it"),
    ],
    ids=["stderr", "stdout where stderr is empty", "timed out", "rubbish", "not executed"],
)
def test_error_has_the_delegates_last_words_in_its_details(output: ExecOutput, details: str) -> None:
    with pytest.raises(CniError) as raised:
        Runner({("bridge", "ADD"): output}).drive(add(THREE, {}))

    assert raised.value.details == details


def test_error_keeps_only_the_end_of_a_long_stderr() -> None:
    output = failed(EXIT_1, b"", b"x" * 60_000 + b"the end")

    with pytest.raises(CniError) as raised:
        Runner({("bridge", "ADD"): output}).drive(add(THREE, {}))

    assert len(raised.value.details) == 2000
    assert raised.value.details.endswith("the end")


# DEL.


def test_delete_runs_the_plugins_last_first() -> None:
    runner = Runner()

    runner.drive(delete(THREE, {}, None))

    assert runner.calls == ["DEL firewall", "DEL tuning", "DEL bridge"]


def test_delete_takes_silence_for_success() -> None:
    Runner({("bridge", "DEL"): failed(0, b"")}).drive(delete(THREE, {}, None))


@pytest.mark.parametrize(
    ("version", "passed"),
    [("0.3.1", False), ("0.4.0", True), ("1.0.0", True), ("1.1.0", True), ("0.10.0", True), ("odd", False)],
)
def test_delete_passes_the_cached_result_to_every_plugin_where_the_version_has_it(version: str, passed: bool) -> None:
    runner = Runner()

    runner.drive(delete(a_primary("bridge", "tuning", cniVersion=version), {}, PREVIOUS))

    assert [json.loads(step.stdin).get("prevResult") == PREVIOUS for step in runner.executed] == [passed, passed]


@pytest.mark.parametrize(
    ("runtime_config", "calls"),
    [({}, ["DEL flannel"]), (MAPPINGS, ["DEL portmap", "DEL flannel"])],
    ids=["no mappings", "mappings"],
)
@pytest.mark.parametrize("previous", [None, PREVIOUS], ids=["no result", "cached result"])
def test_delete_leaves_portmap_out_when_add_did(runtime_config, calls, previous) -> None:
    runner = Runner()

    runner.drive(delete(FLANNEL, runtime_config, previous))

    assert runner.calls == calls


def test_delete_runs_portmap_when_it_is_the_first_of_the_chain() -> None:
    runner = Runner()

    runner.drive(delete(a_primary(PORTMAP, "bridge"), {}, PREVIOUS))

    assert runner.calls == ["DEL bridge", "DEL portmap"]


def test_delete_goes_on_after_a_failure_and_raises_the_first() -> None:
    runner = Runner({("firewall", "DEL"): failed(EXIT_1, OWN_ERROR), ("tuning", "DEL"): failed(9)})

    with pytest.raises(DelegateError, match="no lease"):
        runner.drive(delete(THREE, {}, None))

    assert runner.calls == ["DEL firewall", "DEL tuning", "DEL bridge"]


@pytest.mark.parametrize(
    ("output", "code"),
    [(failed(9), DELEGATE_BROKE), (failed(TIMED_OUT), DELEGATE_TIMED_OUT), (failed(-2), CONFIGURATION)],
)
def test_delete_tells_what_a_broken_delegate_did(output: ExecOutput, code: int) -> None:
    with pytest.raises(CniError) as raised:
        Runner({("bridge", "DEL"): output}).drive(delete(THREE, {}, None))

    assert raised.value.code == code


# CHECK.


def test_check_runs_in_the_order_of_add_and_gives_each_plugin_adds_result() -> None:
    runner = Runner()

    runner.drive(check(THREE, {}, PREVIOUS))

    assert runner.calls == [f"CHECK {plugin['type']}" for plugin in THREE.plugins]
    assert [json.loads(step.stdin)["prevResult"] for step in runner.executed] == [PREVIOUS] * 3


def test_check_ends_at_the_first_failure_with_the_plugins_own_error() -> None:
    runner = Runner({("tuning", "CHECK"): failed(EXIT_1, OWN_ERROR)})

    with pytest.raises(DelegateError, match="no lease"):
        runner.drive(check(THREE, {}, PREVIOUS))

    assert runner.calls == ["CHECK bridge", "CHECK tuning"]


@pytest.mark.parametrize(
    ("runtime_config", "previous", "calls"),
    [
        ({}, PREVIOUS, ["CHECK flannel"]),
        (MAPPINGS, PREVIOUS, ["CHECK flannel", "CHECK portmap"]),
        ({}, None, ["CHECK flannel", "CHECK portmap"]),
    ],
    ids=["no mappings", "mappings", "no result, at which portmap fails"],
)
def test_check_leaves_portmap_out_only_where_it_would_say_yes(runtime_config, previous, calls) -> None:
    runner = Runner()

    runner.drive(check(FLANNEL, runtime_config, previous))

    assert runner.calls == calls


@pytest.mark.parametrize(("disable", "calls"), [(True, []), ("true", []), (False, ["CHECK bridge"])], ids=repr)
def test_check_runs_nothing_where_the_primarys_author_disabled_it(disable: object, calls: list[str]) -> None:
    runner = Runner()

    runner.drive(check(a_primary("bridge", disableCheck=disable), {}, PREVIOUS))

    assert runner.calls == calls


def test_disable_check_in_a_single_plugins_configuration_means_nothing() -> None:
    single = parse(b'{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "disableCheck": true}', "/p")

    assert not single.disable_check


def test_check_runs_no_plugin_of_a_primary_whose_version_has_no_check() -> None:
    runner = Runner()

    runner.drive(check(a_primary("bridge", cniVersion="0.3.1"), {}, PREVIOUS))

    assert runner.calls == []


# A result that the runtime passes in its request's version.

NEWER = {
    "cniVersion": "1.1.0",
    "interfaces": [{"name": "eth0", "mtu": 1450}],
    "ips": [{"address": "10.244.3.7/24", "interface": 0}, {"address": "fd00::7/64"}],
}


@pytest.mark.parametrize("verb", [check, delete], ids=["CHECK", "DEL"])
@pytest.mark.parametrize(
    ("version", "ips"),
    [
        ("0.4.0", [{**NEWER["ips"][0], "version": "4"}, {"address": "fd00::7/64", "version": "6"}]),
        ("1.0.0", NEWER["ips"]),
    ],
)
def test_plugins_get_the_result_in_the_primarys_version(verb, version, ips) -> None:
    runner = Runner()

    runner.drive(verb(a_primary("bridge", cniVersion=version), {}, NEWER))

    assert json.loads(runner.executed[0].stdin)["prevResult"] == {**NEWER, "cniVersion": version, "ips": ips}


# STATUS and GC.

LIST = {"cni.dev/valid-attachments": [{"containerID": "c0ffee", "ifname": "eth0"}]}
VERBS = [pytest.param(status, "STATUS", id="STATUS"), pytest.param(lambda p: collect(p, LIST), "GC", id="GC")]


def newest(*plugins: str, **changes: object) -> Primary:
    conf = {"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": plugin} for plugin in plugins], **changes}
    return parse(json.dumps(conf).encode(), "/p", "1.1.0")


@pytest.mark.parametrize(("verb", "command"), VERBS)
def test_status_and_gc_ask_every_plugin_in_order(verb, command: str) -> None:
    runner = Runner()

    runner.drive(verb(newest("bridge", "portmap")))

    assert runner.calls == [f"{command} bridge", f"{command} portmap"]


@pytest.mark.parametrize(("verb", "command"), VERBS)
@pytest.mark.parametrize("version", ["0.3.1", "1.0.0"])
def test_status_and_gc_run_no_plugin_of_a_primary_whose_version_has_neither(verb, command: str, version: str) -> None:
    runner = Runner()

    runner.drive(verb(newest("bridge", cniVersion=version)))

    assert runner.calls == []


def test_gc_passes_name_and_list_on_as_they_are() -> None:
    runner = Runner()

    runner.drive(collect(newest("bridge"), LIST))

    assert runner.conf("GC bridge") == {"type": "bridge", "name": "n", "cniVersion": "1.1.0", **LIST}


def test_gc_of_a_primary_that_disables_it_runs_no_plugin() -> None:
    runner = Runner()

    runner.drive(collect(newest("bridge", disableGC=True), LIST))

    assert runner.calls == []


def test_status_ends_at_the_first_failure_and_gc_goes_on() -> None:
    for verb, asked in ((status, ["STATUS bridge"]), (lambda p: collect(p, LIST), ["GC bridge", "GC tuning"])):
        runner = Runner({("bridge", asked[0].split()[0]): failed(EXIT_1, OWN_ERROR)})

        with pytest.raises(DelegateError, match="no lease"):
            runner.drive(verb(newest("bridge", "tuning")))

        assert runner.calls == asked
