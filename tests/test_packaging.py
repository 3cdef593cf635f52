"""What pyproject.toml and the messages promise about installing."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import versions

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_oldest_python_is_the_same_for_pip_ruff_and_mypy() -> None:
    oldest = f"3.{versions.oldest()}"
    assert PROJECT["project"]["requires-python"] == f">={oldest}"
    assert PROJECT["tool"]["mypy"]["python_version"] == oldest
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    assert f"Python {oldest} or newer" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_nothing_tells_people_to_install_a_package_of_our_names_from_an_index() -> None:
    texts = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("gpt/**/*.py")]
    assert len(texts) > 50
    install = re.compile(r"pip install[^\n]*?[ '\"](gptx|gpt|cli)(?![\w.-])")
    assert install.search("pip install 'gptx[plot]'")
    assert not {path for path in texts if install.search(path.read_text(encoding="utf-8"))}


def test_every_python_that_is_allowed_and_runs_is_found_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exits = {"first/python3.10": 0, "first/python3.11": 0, "first/python3.12": 127}
    exits |= {"second/python3.11": 0, "second/python3.12": 0, "pyenv/versions/a/bin/python3.13": 0}
    for name, code in exits.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\nexit {code}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'first'}:{tmp_path / 'second'}:{tmp_path / 'none'}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    expected = ("first/python3.11", "second/python3.12", "pyenv/versions/a/bin/python3.13")
    assert list(versions.interpreters().values()) == [tmp_path / name for name in expected]
