"""Installation: the wheel, Python versions, advice to install packages."""

from __future__ import annotations

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
    """The wheel of this checkout, built from a copy with the installed setuptools."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE", "cli.py"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    shutil.copytree(ROOT / "gpt", folder / "gpt", ignore=shutil.ignore_patterns("__pycache__"))
    pip("wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", folder / "dist", folder)
    (built,) = (folder / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with gptx beside another distribution's module `cli`."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "cli.py").write_text(OTHER, encoding="utf-8")
    pip("install", "--no-deps", "--no-index", "--target", folder, wheel)
    return folder


def test_wheel_contains_one_package_with_all_files_and_one_script(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (entries,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
        scripts = archive.read(entries).decode().splitlines()
    assert {name.split("/")[0] for name in names} == {"gpt"}
    here = {path.relative_to(ROOT).as_posix() for path in (ROOT / "gpt").rglob("*.*")}
    kept = {name for name in here if "__pycache__" not in name and not name.endswith("deno.json")}
    assert len(kept) > 100
    assert kept <= names
    assert [line for line in scripts if line] == ["[console_scripts]", "gptx = gpt.commands:main"]


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
    assert version == f"gptx {__version__}\n"
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
