"""The page about `railnet train` has the file of ten lines that the tests use, and every key of a job's file."""

import re
from pathlib import Path

import pytest

from railnet.cli.output import Output
from railnet.errors import Misconfigured
from railnet.jobs.train_job.environment import Peers
from railnet.jobs.train_job.train_job import PYTORCH_PORT, TrainingJob
from railnet.train import dry_run, job_file, job_template
from railnet.train.up import read
from tests.railnet.train.jobs import TEXT
from tests.railnet.train.test_top import RAILS

PAGE = (Path(__file__).resolve().parents[3] / "docs/training/train.md").read_text()


def test_page_has_the_file_of_ten_lines() -> None:
    assert f"```yaml\n{TEXT}```\n" in PAGE


def test_page_has_every_key_of_the_file_and_its_default() -> None:
    table = PAGE.partition("### Keys\n")[2].partition("\n### ")[0]
    rows = {
        key: default
        for keys, default in re.findall(r"^\| (`[^|]+`) \| [^|]+ \| ([^|]*) \|$", table, re.MULTILINE)
        for key in re.findall("`(.+?)`", keys)
    }
    job = TrainingJob(name="a", image="b", workers=1)

    assert rows.keys() == {*job_file._REQUIRED, *job_file._FIELDS}
    assert [key for key, default in rows.items() if default == "required"] == ["name", "image", "workers"]
    assert (rows["cpu"], rows["port"], rows["ps"]) == (
        f"`{job.cpu}`, `{job.memory}`",
        f"{job.port}; PyTorch: {PYTORCH_PORT}",
        str(job.ps),
    )
    assert (rows["gpuResource"], rows["kind"]) == (f"`{job.gpu_resource}`", f"`{job.kind}`")
    assert rows["rails"].endswith(f"else {job.rails}")


def test_page_names_every_variable_of_a_pytorch_job() -> None:
    job = job_file.job_of("kind: pytorch\nname: a\nimage: b\nworkers: 1\n", "job.yaml")
    section = PAGE.partition("## PyTorch\n")[2].partition("\n## ")[0]
    (task,) = job.tasks

    assert set(re.findall(r"`((?:PET_|MASTER_|WORLD_|RANK|LOCAL_)\w*)`", section)) == {*Peers.of(job).variables(task)}


def test_page_has_a_pytorch_job_that_is_taken() -> None:
    text = PAGE.partition("## PyTorch\n")[2].partition("```yaml\n")[2].partition("```")[0]

    assert job_file.job_of(text, "job.yaml").rails == "auto"


def test_page_has_an_mpi_job_that_is_taken() -> None:
    text = PAGE.partition("## MPI\n")[2].partition("```yaml\n")[2].partition("```")[0]

    assert job_file.job_of(text, "job.yaml").rails == "auto"


def test_page_has_what_a_broken_file_is_answered() -> None:
    text = TEXT.replace("workers: 3", "workers: three").replace("gpus:", "gpu:")
    with pytest.raises(Misconfigured) as caught:
        job_file.job_of(text, "job.yaml")

    assert f"$ railnet train up -f job.yaml\nrailnet: {caught.value}\n```" in PAGE


def test_page_has_what_init_and_a_dry_run_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    job_template.write("pytorch", "resnet", "job.yaml", force=False)
    written = capsys.readouterr().out
    dry_run.client(read("job.yaml"), Output())

    assert f"$ railnet train init pytorch job.yaml --name resnet\n{written}" in PAGE
    assert f"$ railnet train up -f job.yaml --dry-run=client\n{capsys.readouterr().out}```" in PAGE


def test_page_names_the_resource_of_rails() -> None:
    assert all(f"`{resource}`" in PAGE for resource in RAILS)
