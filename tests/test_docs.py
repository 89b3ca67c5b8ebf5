"""The documents: links and file names lead somewhere, indexes are complete, the prose avoids words that name no subject."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from railnet import VERSION

ROOT = Path(__file__).resolve().parent.parent
DECISIONS = ROOT / "docs/decisions"
MOST_README_LINES = 150
VAGUE = re.compile(r"\b(nobody|somebody|whoever|whomever|by and by)\b", re.IGNORECASE)
CODE_BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def tracked(pattern: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.split()


PAGES = tracked("*.md")


def prose(page: Path) -> str:
    return CODE_BLOCK.sub("", page.read_text())


def links(page: Path) -> Iterator[str]:
    """Yield the targets of a page's relative links."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" not in target:
            yield target


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_nowhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    found = page.parent / path if path else page
    return not found.exists() or bool(anchor and anchor not in anchors(found))


def test_pages_are_found() -> None:
    assert {"README.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md", "docs/README.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_lead_to_a_file_and_a_heading(page: str) -> None:
    assert [target for target in links(ROOT / page) if leads_nowhere(ROOT / page, target)] == []


@pytest.mark.parametrize(
    "target", ["docs/missing.md", "docs/README.md#missing", "#missing"], ids=["file", "heading", "heading of the page"]
)
def test_link_that_leads_nowhere_is_found(target: str) -> None:
    assert leads_nowhere(ROOT / "README.md", target)


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_exist(page: str) -> None:
    folders = "|".join({name.partition("/")[0] for name in tracked("*/*")})
    named = re.findall(rf"`((?:{folders})/[\w./-]+\.(?:py|md|yaml|svg))\b", prose(ROOT / page))

    assert [name for name in named if "NNNN" not in name and not (ROOT / name).exists()] == []


def defined_tests(pattern: str) -> set[str]:
    """Return the names of the tests in files."""
    return {
        name
        for path in tracked(pattern)
        for name in re.findall(r"^def (test_\w+)", (ROOT / path).read_text(), re.MULTILINE)
    }


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CONTRIBUTING.md"])  # it has an example of a name
def test_tests_that_a_page_names_exist(page: str) -> None:
    assert set(re.findall(r"`(test_\w+)`", prose(ROOT / page))) - defined_tests("tests/**/test_*.py") == set()


def test_tests_of_gangs_are_in_the_tier_of_their_column() -> None:
    section = (ROOT / "docs/testing.md").read_text().partition("\n## Tests of gangs\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ") and "`test_" in line]
    unit, control_plane = ({name for row in rows for name in re.findall(r"test_\w+", row[column])} for column in (2, 3))

    assert rows
    assert unit <= defined_tests("tests/railnet/**/test_*.py")
    assert control_plane <= defined_tests("tests/control_plane/test_*.py")
    assert {row[1].strip() for row in rows} == {"gates", "PodGroups", "both"}


def test_tests_beside_other_software_are_in_the_tier_of_their_column() -> None:
    page = (ROOT / "docs/testing.md").read_text()
    section = page.partition("\n## Tests beside other software\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ") and "`test_" in line]
    unit, node = ({name for row in rows for name in re.findall(r"test_\w+", row[column])} for column in (2, 3))
    folders = ("cni", "deviceplugin", "railnet")

    assert rows
    assert unit <= set().union(*(defined_tests(f"tests/{folder}/*test_*.py") for folder in folders))
    assert node <= defined_tests("tests/node/test_*.py")


@pytest.mark.parametrize("page", PAGES)
def test_prose_repeats_the_noun(page: str) -> None:
    assert VAGUE.findall(prose(ROOT / page)) == []


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_README_LINES


def test_index_of_documents_has_every_page() -> None:
    index = ROOT / "docs/README.md"
    indexed = {(index.parent / target).resolve() for target in links(index)}
    written = {path.resolve() for path in (ROOT / "docs").glob("*.md")} - {index.resolve()}

    assert written | {(ROOT / name).resolve() for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")} <= indexed


def test_index_of_decisions_has_every_title() -> None:
    rows = sorted(
        re.findall(r"^\| \[(\d{4})\]\((\S+)\) \| (.+) \|$", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    )
    pages = sorted(DECISIONS.glob("0*.md"))

    assert [f"# {number} {title}" for number, _, title in rows] == [page.read_text().splitlines()[0] for page in pages]
    assert [name for _, name, _ in rows] == [page.name for page in pages]


def test_index_of_decisions_says_why_a_number_has_no_page() -> None:
    pages = {page.name[:4] for page in DECISIONS.glob("0*.md")}
    explained = set(re.findall(r"\b0\d{3}\b", (DECISIONS / "README.md").read_text().partition("##")[0]))
    numbers = {f"{number:04}" for number in range(1, int(max(pages)) + 1)}

    assert numbers - pages == explained - pages
    assert explained & pages <= {"0021"}  # what a number is a part of


def test_decision_that_code_names_exists() -> None:
    named = set()
    for name in tracked("*"):
        path = ROOT / name
        if path.is_file() and path.suffix != ".md":
            named |= set(re.findall(r"docs/decisions/(\d{4})", path.read_text(errors="replace")))

    assert named
    assert named <= {page.name[:4] for page in DECISIONS.glob("0*.md")}


def test_changelog_has_this_version() -> None:
    assert f"\n## [{VERSION}]" in (ROOT / "CHANGELOG.md").read_text()
