"""Installation: the wheel, its packages and Python versions, one version everywhere, advice."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
from conftest import TEXT
from program import TINY

from gpt import __version__
from gpt.words import EXTRAS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OTHER = "owner = 'another distribution'\n"


#: What a wheel is built from, besides gpt/.
SOURCES = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")


def pip(*arguments: str | Path) -> None:
    """Runs pip without network; if it fails, the test fails with pip's output."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the sources, built with the installed setuptools."""
    copy, folder = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "gpt", copy / "gpt", ignore=shutil.ignore_patterns("__pycache__"))
    pip("wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", folder, copy)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with gptx beside another distribution's module `cli`."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "cli.py").write_text(OTHER, encoding="utf-8")
    pip("install", "--no-deps", "--no-index", "--target", folder, wheel)
    return folder


def test_wheel_contains_one_package_with_all_files_one_script_and_the_licence(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        about = {Path(name).name: name for name in names if ".dist-info/" in name}
        scripts = archive.read(about["entry_points.txt"]).decode().split()
        metadata = archive.read(about["METADATA"]).decode()
    paths = (path for path in (ROOT / "gpt").rglob("*.*") if "__pycache__" not in path.parts)
    here = {path.relative_to(ROOT).as_posix() for path in paths if path.name != "deno.json"}
    assert names - {*about.values()} == here
    assert scripts == ["[console_scripts]", "gptx", "=", "gpt.commands:main"]
    assert f"\nVersion: {__version__}\n" in metadata
    assert "LICENSE" in about


def test_gptx_imports_only_packages_that_it_declares() -> None:
    declared = [*PROJECT["project"]["dependencies"], "matplotlib", "tensorboardX", "pandas"]
    known = {re.split(r"[>=]", name)[0].replace("-", "_") for name in declared}
    assert "prompt_toolkit" in known
    found = {}
    for path in (ROOT / "gpt").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            found |= {name.partition(".")[0]: path for name in names}
    foreign = found.keys() - {*sys.stdlib_module_names, "gpt"}
    assert "torch" in foreign
    assert {name: found[name] for name in foreign - known} == {}


def test_changelog_citation_and_package_have_one_version_and_date() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", changes, re.MULTILINE)
    assert newest is not None
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert newest[1] == __version__
    assert {f"version: {__version__}", f"date-released: {newest[2]}"} <= {*cited}


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


def test_errors_about_optional_packages_name_the_extras_of_the_project() -> None:
    groups = PROJECT["project"]["optional-dependencies"]
    assert {*EXTRAS.values()} == groups.keys() - {"dev"}
    for package, extra in EXTRAS.items():
        assert [line.split(">=")[0] for line in groups[extra]] == [package]
