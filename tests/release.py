"""Checks that this checkout can be released, step by step; publishes nothing: `make release`.

    python tests/release.py [--from STEP] [--only STEP ...]

The steps, in this order: version (the same everywhere, and in the changelog with its date), clean
(nothing that git does not have), versions (tests under every Python on PATH), fuzz, soak, planted,
all-variants, lessons (at their full length), build (wheel and source archive, in dist/), wheel and
sdist (each is installed in a new environment outside the checkout and tried there without network).
Ends at the first failure with one line; what a step printed is in build/release/.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # this checkout's gpt, not an installed one

from gpt.version import __version__ as VERSION  # noqa: E402

DIST, LOGS = ROOT / "dist", ROOT / "build" / "release"
#: What a wheel is built from, besides gpt/; all of it is in the sdist.
SOURCES = (
    *("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"),
    *("CONTRIBUTING.md", "constraints.txt", "cli.py"),
)
CLOSED = "http://127.0.0.1:9"  # a proxy that answers nothing
PIP = ("-m", "pip", "--disable-pip-version-check")


class Failure(Exception):
    """Why the checkout cannot be released, in one line."""


def require(condition: object, reason: str) -> None:
    """Raises Failure(reason) unless the condition holds."""
    if not condition:
        raise Failure(reason)


def run(
    *command: str | Path,
    folder: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> str:
    """What a command prints, at the end of `log`, too. Raises Failure if it fails."""
    with open(log, "a+") if log else tempfile.TemporaryFile("w+") as out:
        begin = out.seek(0, os.SEEK_END)
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT
        )
        out.seek(begin)
        printed = out.read()
    lines = [line for line in printed.splitlines() if line.strip() and line[:5] != "make:"]
    last = lines[-1] if lines else "no output"
    shown = " ".join(map(str, command[-4:]))
    require(done.returncode == 0, f"{shown}: exit code {done.returncode}: {last:.300}")
    return printed


def check_version(changelog: str, citation: str, version: str = VERSION) -> None:
    """Raises Failure unless the newest section of the changelog and the citation have this version
    and one date.
    """
    sections = re.findall(r"^## (.*)$", changelog, re.MULTILINE)
    newest = re.fullmatch(r"(\S+) \((\d{4}-\d\d-\d\d)\)", sections[0] if sections else "")
    require(newest, "CHANGELOG.md: the newest section is not “VERSION (YYYY-MM-DD)”")
    assert newest
    require(newest[1] == version, f"CHANGELOG.md is of {newest[1]}, gpt/version.py of {version}")
    try:
        datetime.date.fromisoformat(newest[2])
    except ValueError:
        raise Failure(f"CHANGELOG.md: {newest[2]} is no date") from None
    for name, value in (("version", version), ("date-released", newest[2])):
        found = re.findall(rf"^{name}: ['\"]?(.*?)['\"]?$", citation, re.MULTILINE)
        require(found == [value], f"CITATION.cff: {name} is {found}, not {value}")


def build(folder: Path) -> tuple[Path, Path]:
    """Builds a wheel and a source archive from a copy of the sources; needs no network."""
    with tempfile.TemporaryDirectory() as made:
        copy = Path(made)
        for name in SOURCES:
            shutil.copy(ROOT / name, copy)
        shutil.copytree(ROOT / "gpt", copy / "gpt", ignore=shutil.ignore_patterns("__pycache__"))
        make = "import sys; from setuptools import build_meta as to; to.build_sdist(sys.argv[1])"
        run(sys.executable, "-c", make, folder, folder=copy)
        wheel = build_wheel(copy, folder)
    (sdist,) = folder.glob("*.tar.gz")
    return wheel, sdist


def build_wheel(source: Path, folder: Path) -> Path:
    """The wheel of a folder or a source archive, by the setuptools that runs this."""
    alone = ("--no-build-isolation", "--no-deps", "--no-index", "--no-cache-dir")
    run(sys.executable, *PIP, "wheel", *alone, "-w", folder, source, folder=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_wheel(wheel: Path) -> None:
    """Raises Failure unless a wheel has every file of gpt/, the licence, one script, no more."""
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        about = {Path(name).name: name for name in names if ".dist-info/" in name}
        require("LICENSE" in about, f"{wheel.name} has no licence")
        scripts = archive.read(about["entry_points.txt"]).decode().split("\n")
        metadata = archive.read(about["METADATA"]).decode()
    paths = (path for path in (ROOT / "gpt").rglob("*.*") if "__pycache__" not in path.parts)
    here = {path.relative_to(ROOT).as_posix() for path in paths if path.name != "deno.json"}
    missing, foreign = here - names, names - here - {*about.values()}
    require(not missing, f"{wheel.name} lacks {', '.join(sorted(missing)[:3])}")
    require(not foreign, f"{wheel.name} has {', '.join(sorted(foreign)[:3])}, too")
    entries = [line for line in scripts if line]
    expected = ["[console_scripts]", "gptx = gpt.commands:main"]
    require(entries == expected, f"{wheel.name} has the scripts {entries}")
    require(f"\nVersion: {VERSION}\n" in metadata, f"{wheel.name} is of another version")


def check_sdist(sdist: Path) -> None:
    """Raises Failure unless a source archive has what its wheel is made from."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    require({*SOURCES} <= names, f"{sdist.name} lacks {', '.join(sorted({*SOURCES} - names))}")


@cache
def environment() -> Path:
    """A new environment outside the checkout, with the packages that gptx needs, but without it."""
    folder = Path(tempfile.mkdtemp(prefix="gptx-release-"))
    venv.create(folder / "venv", with_pip=True)
    python, log = folder / "venv" / "bin" / "python", LOGS / "pip.log"
    wheel = next(DIST.glob("*.whl"))
    run(python, *PIP, "install", "-c", ROOT / "constraints.txt", wheel, folder=folder, log=log)
    run(python, *PIP, "uninstall", "--yes", "gptx", folder=folder, log=log)
    return folder


def alone() -> list[str]:
    """The beginning of a command that runs without network, where the system has such a command."""
    command = ["unshare", "--net", "--map-root-user"]
    try:
        done = subprocess.run([*command, "true"], capture_output=True)
    except OSError:
        return []
    return command if done.returncode == 0 else []


def try_out(wheel: Path, log: Path) -> None:
    """Installs a wheel in the environment, and follows the README in an empty folder: offline."""
    folder = environment()
    python, gptx = (folder / "venv" / "bin" / name for name in ("python", "gptx"))
    install = ("install", "--no-deps", "--no-index", "--force-reinstall", wheel)
    run(python, *PIP, *install, folder=folder, log=log)
    offline, proxies = alone(), ("http_proxy", "https_proxy", "all_proxy")
    home = Path(tempfile.mkdtemp(dir=folder))
    place = {"PATH": f"{gptx.parent}:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"}
    place |= dict.fromkeys(proxies, CLOSED)

    def answer(*command: str | Path) -> str:
        return run(*offline, *command, folder=home, environment=place, log=log)

    reach = "import urllib.request as it; it.urlopen('https://pypi.org', timeout=9)"
    try:
        answer(python, "-c", reach)
    except Failure:
        pass
    else:
        raise Failure("the environment has network, so this would prove nothing")
    where = answer(python, "-c", "import gpt; print(gpt.__file__)").splitlines()[-1]
    require(Path(where).is_relative_to(folder), f"gpt comes from {where}, not from the wheel")
    version = answer(gptx, "--version").splitlines()[0]
    require(version == f"gptx {VERSION}", f"gptx --version prints {version!r}")
    answer(gptx, "train", "--steps", "50")
    sample = answer(gptx, "sample", "--prompt", "The ", "--length", "100")
    require("The " in sample and len(sample) >= 104, f"gptx sample writes {sample!r:.100}")
    answer(gptx, "attn", "The value")
    for name, command in {"attn": ["The value"], "live": []}.items():
        answer(gptx, name, *command, "-o", f"{name}.html")
        page = (home / f"{name}.html").read_text(encoding="utf-8")
        require(page.startswith("<!doctype html>"), f"gptx {name} -o {name}.html wrote no page")
    shutil.rmtree(home)


def make(target: str) -> Callable[[Path], None]:
    """A step that is a target of the Makefile; prints which Pythons were not tested."""

    def step(log: Path) -> None:
        for line in run("make", target, log=log).splitlines():
            if line.endswith("not tested"):
                print(line)

    return step


def version(log: Path) -> None:
    """CHANGELOG.md, CITATION.cff and the package have one version."""
    texts = ((ROOT / name).read_text(encoding="utf-8") for name in ("CHANGELOG.md", "CITATION.cff"))
    check_version(*texts)


def clean(log: Path) -> None:
    """Git has every file, as it is here."""
    changed = run("git", "status", "--porcelain").splitlines()
    first = "".join(changed[:1])[3:]
    require(not changed, f"git: {len(changed)} changed or unknown files, such as {first}")


def lessons(log: Path) -> None:
    """The lessons at their full length."""
    shutil.rmtree(ROOT / "build" / "lessons", ignore_errors=True)
    run("make", "lessons", log=log)


def built(log: Path) -> None:
    """Wheel and source archive, with all that they need."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    wheel, sdist = build(DIST)
    check_wheel(wheel)
    check_sdist(sdist)
    log.write_text(f"{wheel}\n{sdist}\n")


def wheel(log: Path) -> None:
    """The installed wheel works without network."""
    try_out(*DIST.glob("*.whl"), log)


def sdist(log: Path) -> None:
    """So does the wheel that is built from the source archive alone."""
    with tempfile.TemporaryDirectory() as made:
        (archive,) = DIST.glob("*.tar.gz")
        again = build_wheel(archive, Path(made))
        check_wheel(again)
        try_out(again, log)


STEPS: dict[str, Callable[[Path], None]] = {
    "version": version,
    "clean": clean,
    **{name: make(name) for name in ("versions", "fuzz", "soak", "planted", "all-variants")},
    "lessons": lessons,
    "build": built,
    "wheel": wheel,
    "sdist": sdist,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Checks that this checkout can be released.")
    parser.add_argument("--from", dest="first", choices=STEPS, default="version")
    parser.add_argument("--only", nargs="+", choices=STEPS, metavar="STEP", help=", ".join(STEPS))
    options = parser.parse_args(arguments)
    names = [*STEPS][[*STEPS].index(options.first) :]
    names = [name for name in names if name in (options.only or names)]
    if "wheel" in names or "sdist" in names:
        names = [name for name in STEPS if name in names or name == "build"]
    LOGS.mkdir(parents=True, exist_ok=True)
    try:
        for name in names:
            log, began = LOGS / f"{name}.log", time.perf_counter()
            log.unlink(missing_ok=True)
            try:
                STEPS[name](log)
            except Failure as failure:
                sys.exit(f"FAILED  {name}: {failure}  (more in {log})")
            print(f"{name:14}{time.perf_counter() - began:8.1f} s", flush=True)
    finally:
        if environment.cache_info().currsize:
            shutil.rmtree(environment())
    if names == [*STEPS]:
        print(
            f"gptx {VERSION} can be released. Nothing is published yet; to publish it:\n"
            f'  git tag -a v{VERSION} -m "gptx {VERSION}" && git push origin v{VERSION}\n'
            f"  gh release create v{VERSION} --verify-tag {'--prerelease ' * ('rc' in VERSION)}"
            f"--notes-file CHANGELOG.md dist/gptx-{VERSION}*"
        )


if __name__ == "__main__":
    main()
