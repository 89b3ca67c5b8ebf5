"""`railnet train init` writes a file that a person can read and `railnet train up` takes."""

import re
from pathlib import Path

import pytest

from railnet.admission.offline import Explained, explain
from railnet.configuration import Configuration
from railnet.errors import Misconfigured
from railnet.train import job_template
from railnet.train.creation import JobFile
from railnet.train.failure import TrainFailed
from railnet.train.job_file import job_of
from railnet.train.job_template import KINDS, text_of, write
from railnet.train.ssh_keys import ssh_keys
from railnet.webhook.explain_command import policy

_OPTION = re.compile(r"^# ( *[A-Za-z]+:.*)$", re.MULTILINE)


@pytest.mark.parametrize("kind", KINDS)
def test_file_of_each_kind_is_a_job(kind: str) -> None:
    job = job_of(text_of(kind, "cifar"), "job.yaml")

    assert (job.kind, job.name, job.workers > 1) == (kind, "cifar", True)


def let_in(text: str, kind: str) -> list[Explained]:
    """Return what the admission helper of a default installation says of the job's pods."""
    made = JobFile(text, job_of(text, "job.yaml"), None, ssh_keys() if kind == "mpi" else None).objects
    return list(explain(made, policy(Configuration())))


@pytest.mark.parametrize("kind", KINDS)
def test_pods_of_the_file_get_a_rail_on_a_default_installation(kind: str) -> None:
    explained = let_in(text_of(kind), kind)

    assert [pod for pod in explained if not pod.allowed] == []
    assert any("rdma/ib_vf" in line for pod in explained for line in pod.lines)


@pytest.mark.parametrize("kind", ["pytorch", "mpi"])
def test_rails_auto_on_a_default_installation_is_refused_with_all_that_may_be_changed(kind: str) -> None:
    text = text_of(kind).replace("rails: 1 ", "rails: auto ")
    refused = [line for pod in let_in(text, kind) if not pod.allowed for line in pod.lines]

    assert refused
    for words in ("such as rails: 1", "node.yaml", "'rails' as a list", "'ipam.rails' of network default"):
        assert words in refused[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_each_command_in_the_file_creates_the_job_of_the_file(kind: str) -> None:
    text = text_of(kind)
    commands = re.findall(r"railnet train up (.*?-f job\.yaml)", text)

    assert len(commands) >= 2
    for command in commands:
        made_as = command.removesuffix("-f job.yaml").removeprefix("--as ").strip() or None
        assert job_of(text, "job.yaml", made_as).kind == kind


@pytest.mark.parametrize("kind", KINDS)
def test_every_line_that_is_a_comment_may_be_a_key(kind: str) -> None:
    text = _OPTION.sub(r"\1", text_of(kind))
    job = job_of(text, "job.yaml")

    assert len(_OPTION.findall(text_of(kind))) > 10
    assert (job.namespace, job.gang, job.restart, set(job.volumes)) == (
        "ml",
        True,
        "OnFailure",
        {"checkpoints", "scratch"},
    )


@pytest.mark.parametrize("kind", KINDS)
def test_lines_fit_a_screen(kind: str) -> None:
    assert max(map(len, text_of(kind).splitlines())) <= 140


def test_file_is_printed_without_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    write("pytorch", "mnist", None, force=False)

    assert capsys.readouterr().out == text_of("pytorch")


def test_file_that_exists_is_replaced_only_by_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    write("pytorch", "mnist", str(path), force=False)
    assert path.read_text() == text_of("pytorch")
    assert capsys.readouterr().out.endswith(f"railnet train up -f {path}\n")

    with pytest.raises(TrainFailed, match=r"job.yaml exists and stays as it is; .*--force"):
        write("tensorflow", "mnist", str(path), force=False)
    assert path.read_text() == text_of("pytorch")

    write("tensorflow", "mnist", str(path), force=True)
    assert path.read_text() == text_of("tensorflow")


def test_file_that_cannot_be_written_and_a_name_that_is_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        Misconfigured, match="cannot be written: No such file or directory; name a file in a folder that exists"
    ):
        write("pytorch", "mnist", str(tmp_path / "missing/job.yaml"), force=False)
    with pytest.raises(Misconfigured, match="cannot be written: Is a directory"):
        write("pytorch", "mnist", str(tmp_path), force=True)
    for name in ("Mnist", "1a", "a_b", "a" * 60, ""):
        with pytest.raises(TrainFailed, match="it should have lower-case letters"):
            write("pytorch", name, None, force=False)


def test_name_is_the_default_of_the_command() -> None:
    assert job_of(text_of("pytorch"), "job.yaml").name == job_template.NAME
