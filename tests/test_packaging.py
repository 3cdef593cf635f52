"""Installation: the wheel, its packages and Python versions, one version everywhere, advice."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import pytest
import release
from conftest import TEXT
from program import TINY

from gpt.version import __version__
from gpt.words import EXTRAS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OTHER = "owner = 'another distribution'\n"


def pip(*arguments: str | Path) -> None:
    """Runs pip without network; if it fails, the test fails with pip's output."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built with the installed setuptools."""
    return release.build(tmp_path_factory.mktemp("wheel"))[0]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with gptx beside another distribution's module `cli`."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "cli.py").write_text(OTHER, encoding="utf-8")
    pip("install", "--no-deps", "--no-index", "--target", folder, wheel)
    return folder


def test_wheel_contains_one_package_with_all_files_and_one_script(wheel: Path) -> None:
    release.check_wheel(wheel)
    release.check_sdist(next(wheel.parent.glob("*.tar.gz")))


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"gpt/py.typed": None}, "lacks gpt/py.typed$"),
        ({"gpt/view/page/assets/page.js": None}, "lacks gpt/view/page/assets/page.js$"),
        ({"cli.py": b""}, "has cli.py, too$"),
        ({"licenses/LICENSE": None}, "has no licence$"),
        ({"METADATA": b"Name: gptx\nVersion: 0.1\n"}, "is of another version$"),
        ({"entry_points.txt": b"[gui_scripts]\n"}, "has the scripts"),
    ],
)
def test_a_wheel_that_lacks_or_adds_something_is_refused(
    wheel: Path, tmp_path: Path, changed: dict[str, bytes | None], problem: str
) -> None:
    ((name, data),) = changed.items()
    with ZipFile(wheel) as archive, ZipFile(tmp_path / wheel.name, "w") as other:
        kept = [each for each in archive.namelist() if not each.endswith(name)]
        for each in kept:
            other.writestr(each, archive.read(each))
        if data is not None:
            (whole,) = {*archive.namelist()} - {*kept} or {name}
            other.writestr(whole, data)
    with pytest.raises(release.Failure, match=problem):
        release.check_wheel(tmp_path / wheel.name)


def test_gptx_imports_only_packages_that_it_declares() -> None:
    declared = [*PROJECT["project"]["dependencies"], "matplotlib", "tensorboardX", "pandas"]
    known = {re.split(r"[>=]", each)[0].replace("-", "_") for each in declared}
    assert "prompt_toolkit" in known
    found = {}
    for path in (ROOT / "gpt").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            found |= {name.partition(".")[0]: path for name in names}
    foreign = found.keys() - {*sys.stdlib_module_names, "gpt"}
    assert "torch" in foreign
    assert {name: found[name] for name in foreign - known} == {}


CHANGES = f"# Changelog\n\n## {__version__} (2026-11-26)\n\n## 0.2.0 (2026-11-21)\n"
CITED = f"cff-version: 1.2.0\nversion: {__version__}\ndate-released: 2026-11-26\n"


def test_changelog_citation_and_package_have_one_version() -> None:
    release.check_version(CHANGES, CITED)
    release.version(ROOT)
    for changes, cited, problem in (
        (CHANGES.replace(__version__, "1.2"), CITED, "CHANGELOG.md is of 1.2, gpt/version.py of"),
        (CHANGES.replace("11-26", "11-31"), CITED, "2026-11-31 is no date"),
        (CHANGES.replace(" (2026-11-26)", ""), CITED, "is not “VERSION"),
        ("", CITED, "is not “VERSION"),
        (CHANGES, CITED.replace(__version__, "1.2"), "CITATION.cff: version is"),
        (CHANGES, CITED.replace("11-26", "11-25"), "CITATION.cff: date-released is"),
    ):
        with pytest.raises(release.Failure, match=problem):
            release.check_version(changes, cited)


def test_a_release_ends_at_the_first_failure_with_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fail = partial(release.run, sys.executable, "-c", "print('some'); exit('a reason')")
    steps = {"version": release.version, "fuzz": lambda log: fail(log=log), "build": release.built}
    monkeypatch.setattr(release, "STEPS", steps)
    monkeypatch.setattr(release, "LOGS", tmp_path)
    with pytest.raises(SystemExit, match=r"^FAILED  fuzz: .*: exit code 1: a reason  \(more in .*"):
        release.main([])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["version"]
    assert (tmp_path / "fuzz.log").read_text().split("\n")[0] == "some"
    assert not [*tmp_path.glob("build*")]


def test_installed_wheel_works_beside_another_cli_module(installed: Path, tmp_path: Path) -> None:
    def run(*command: str | Path) -> str:
        place = {name: value for name, value in os.environ.items() if "GPTX" not in name}
        place |= {"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, cwd=tmp_path, env=place, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    gptx, python = installed / "bin" / "gptx", sys.executable
    (tmp_path / "corpus.txt").write_text(TEXT, encoding="utf-8")
    where = run(python, "-c", "import gpt, cli; print(gpt.__file__, cli.owner, sep='\\n')")
    assert where.splitlines() == [str(installed / "gpt/__init__.py"), "another distribution"]
    version = run(gptx, "--version")
    assert version.startswith(f"gptx {__version__}\n")
    run(python, "-m", "gpt", "train", "corpus.txt", *TINY)
    assert run(gptx, "attn", "the cat", "-o", "-", "--format", "html").startswith("<!doctype html>")
    assert (installed / "cli.py").read_text(encoding="utf-8") == OTHER


def test_checkout_and_installed_program_are_the_same() -> None:
    import cli
    from gpt import commands

    assert cli.main == commands.main
    assert PROJECT["project"]["scripts"] == {"gptx": f"{commands.__name__}:main"}
    command = [sys.executable, ROOT / "cli.py", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("gptx ")


def test_pip_ruff_and_mypy_have_the_same_oldest_python() -> None:
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert PROJECT["tool"]["mypy"]["python_version"] == oldest
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    assert f"Python {oldest} or newer" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_errors_about_optional_packages_name_the_extras_of_the_project() -> None:
    groups = PROJECT["project"]["optional-dependencies"]
    assert {*EXTRAS.values()} == groups.keys() - {"dev"}
    for package, extra in EXTRAS.items():
        assert [line.split(">=")[0] for line in groups[extra]] == [package]


def test_no_document_says_to_install_gptx_from_an_index() -> None:
    texts = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("gpt/**/*.py")]
    assert len(texts) > 50
    install = re.compile(r"pip install[^\n]*?[ '\"](gptx|gpt|cli)(?![\w.-])")
    assert install.search("pip install 'gptx[plot]'")
    assert not {path for path in texts if install.search(path.read_text(encoding="utf-8"))}
