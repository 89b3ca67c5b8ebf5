"""The page about `railnet train` has the file of ten lines that the tests use, and every key of a job's file."""

import re
from pathlib import Path

from railnet.jobs.train_job_objects import TrainingJob
from railnet.train import job_file
from tests.railnet.train.jobs import TEXT
from tests.railnet.train.test_top import RAILS

PAGE = (Path(__file__).resolve().parents[3] / "docs/training/train.md").read_text()


def test_page_has_the_file_of_ten_lines() -> None:
    assert f"```yaml\n{TEXT}```\n" in PAGE


def test_page_has_every_key_of_the_file_and_its_default() -> None:
    rows = {
        key: default
        for keys, default in re.findall(r"^\| (`[^|]+`) \| [^|]+ \| ([^|]*) \|$", PAGE, re.MULTILINE)
        for key in re.findall("`(.+?)`", keys)
    }
    job = TrainingJob(name="a", image="b", workers=1)

    assert rows.keys() == {*job_file._REQUIRED, *job_file._FIELDS}
    assert [key for key, default in rows.items() if default == "required"] == ["name", "image", "workers"]
    assert (rows["cpu"], rows["port"], rows["ps"]) == (f"`{job.cpu}`, `{job.memory}`", str(job.port), str(job.ps))
    assert (rows["gpuResource"], rows["rails"]) == (f"`{job.gpu_resource}`", str(job.rails))


def test_page_names_the_resource_of_rails() -> None:
    assert all(f"`{resource}`" in PAGE for resource in RAILS)
