"""Runs: valid names, complete checkpoints, the newest undamaged one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import TEXT, corpus_of, resume
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt.errors import CheckpointError, ConfigError, RunInUseError
from gpt.storage import files
from gpt.storage.checkpoint_files import Manifest, pack
from gpt.storage.run import MANIFEST, MODEL, STATE, Checkpoint, Run, all_runs, find_run, new_run

BYTES: Mapping[str, bytes] = {MODEL: pack({}, {}), STATE: pack({}, {})}


def saved(run: Run, start: Manifest, *steps: int, best: int | None = None, **values: Any) -> Run:
    """The run with these steps committed, in their order."""
    run.path.mkdir(parents=True, exist_ok=True)
    for step in steps:
        run.commit(replace(start, step=step, best_step=best, **values), BYTES)
    return run


def kept(run: Run) -> list[int]:
    """The steps that a run keeps."""
    return [int(path.name[5:]) for path in run.step_paths()]


def tree(folder: Path) -> dict[str, bytes]:
    """Every file under a folder, including hidden ones."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    "name",
    [
        *("", "..", "../x", "/abs", "a\\b", ".hidden", "-x", "a b"),
        *("a\n", "a\0", "\x1b[2J", "\udce9", "a" * 101),
    ],
)
def test_run_name_with_a_path_is_refused_and_creates_nothing(tmp_path: Path, name: str) -> None:
    root = tmp_path / "checkpoints"
    for use in (find_run, lambda root, name: new_run(root, "stem", name)):
        with pytest.raises(ConfigError, match="invalid run name") as caught:
            use(root, name)
        assert caught.value.exit_code == 2
        assert str(caught.value).isprintable()
    assert [path for path in tmp_path.rglob("*") if path != root] == []


def test_new_run_gets_the_next_free_number_or_its_given_name(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "checkpoints"
    stems = ["book", "book", "My book (2nd)", "...", "x" * 90, "été"]
    names = [new_run(root, stem).name for stem in stems]
    assert names == ["book-1", "book-2", "My-book-2nd-1", "run-1", "x" * 60 + "-1", "été-1"]
    for name in ("mine", "run_2.b+c", "a" * 100):
        assert new_run(root, "book", name).path == root / name


def test_run_name_is_in_use_after_the_first_checkpoint(tmp_path: Path, tiny: Checkpoint) -> None:
    run = new_run(tmp_path, "book", "mine")
    run.write("config.toml", "")
    (run.path / f"{files.TEMPORARY}0").mkdir()  # killed during a save
    with run.lock():
        pass
    with pytest.raises(CheckpointError, match="no run 'mine'"):
        find_run(tmp_path, "mine")
    assert new_run(tmp_path, "book", "mine") == run
    saved(run, tiny.manifest, 0)
    with pytest.raises(ConfigError, match=r"'mine' exists already; .*: `resume` `run='mine'`"):
        new_run(tmp_path, "book", "mine")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "novel.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"texts exists already and is not a run"):
        new_run(tmp_path, "book", "texts")
    with pytest.raises(CheckpointError, match="no run 'texts'"):
        find_run(tmp_path, "texts")


def test_run_keeps_the_newest_two_and_the_best_checkpoints(
    tmp_path: Path, tiny: Checkpoint
) -> None:
    run = Run(tmp_path / "run")
    assert kept(saved(run, tiny.manifest, 0)) == [0]
    assert kept(saved(run, tiny.manifest, 6, 12, best=6)) == [6, 12]
    assert kept(saved(run, tiny.manifest, 18, 24, 30, best=6)) == [6, 24, 30]
    assert kept(saved(run, tiny.manifest, 36, best=36)) == [30, 36]
    keeping = replace(tiny.manifest, train=replace(tiny.manifest.train, keep_all=True))
    assert kept(saved(run, keeping, 42, 48, 54, best=42)) == [30, 36, 42, 48, 54]
    assert kept(saved(run, tiny.manifest, 60, best=42)) == [42, 54, 60]
    assert sorted(path.name for path in run.path.iterdir()) == [
        f"step-000000{step}" for step in (42, 54, 60)
    ]


def test_step_last_best_or_number_selects_a_checkpoint(tmp_path: Path, tiny: Checkpoint) -> None:
    run = saved(Run(tmp_path / "run"), tiny.manifest, 0, 5)
    assert run.at().manifest.step == 5  # without evaluations, the newest is the best
    for step, val_loss in ((6, 1.5), (12, 1.7), (13, None)):
        saved(run, tiny.manifest, step, best=6, val_loss=val_loss)
    assert [run.at(which).manifest.step for which in ("best", "last", "12")] == [6, 13, 12]
    with pytest.raises(CheckpointError, match="run has no step 7; it keeps 6, 12, 13"):
        run.at("7")
    with pytest.raises(ConfigError, match="'worst' is neither best, last nor a step's number"):
        run.at("worst")


@pytest.mark.parametrize("name", [MODEL, STATE, MANIFEST])
def test_resume_uses_the_newest_whole_checkpoint(fresh_run: Run, name: str) -> None:
    newest, older = (fresh_run.path / f"step-{step:08d}" for step in (12, 6))
    assert fresh_run.last_undamaged()[0].manifest.step == 12
    (newest / name).write_bytes((newest / name).read_bytes()[:-1])
    commit, warnings = fresh_run.last_undamaged()
    assert (commit.manifest.step, len(warnings)) == (6, 1)
    assert warnings[0].startswith("damaged")
    assert str(newest / name) in warnings[0]
    assert "; trying the previous checkpoint" in warnings[0]
    (older / name).unlink()
    with pytest.raises(
        CheckpointError, match=r"(?s)step-00000012.*step-00000006.*no undamaged check"
    ):
        fresh_run.last_undamaged()


def test_newest_run_and_named_run_are_found(tmp_path: Path, tiny: Checkpoint) -> None:
    for age, name in enumerate(("b", "a", "c")):
        run = saved(Run(tmp_path / name), tiny.manifest, 0)
        os.utime(run.step_paths()[-1], ns=(0, 10**18 - age))
    saved(Run(tmp_path / ".hidden"), tiny.manifest, 0)
    (tmp_path / "empty").mkdir()
    assert [run.name for run in all_runs(tmp_path)] == ["c", "a", "b"]
    assert (find_run(tmp_path).name, find_run(tmp_path, "a").name) == ("b", "a")
    for name in ("empty", "d"):
        with pytest.raises(CheckpointError, match=f"^no run '{name}' in .*; there are: c, a, b$"):
            find_run(tmp_path, name)
    for name in (None, "a"):
        with pytest.raises(CheckpointError, match=r"^no .*; train one with: gptx train"):
            find_run(tmp_path / "missing", name)


def test_lock_works_between_processes_and_ends_with_its_owner(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from gpt.storage.run import Run\n"
    code += "with Run(Path(sys.argv[1])).lock(): print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, cwd=Path(__file__).parents[2]) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(RunInUseError, match="in use by another training"), Run(tmp_path).lock():
            pass
        other.kill()
        other.wait()
    with Run(tmp_path).lock():
        pass


@pytest.mark.parametrize(
    "line",
    [
        *(b"null", b"[" * 100_000, b"\xff\xfe", b"{}", b'{"step": 2'),
        b'{"step": 2, "train_loss": 1, "val_loss": NaN}',
    ],
    ids=lambda line: repr(line[:50]),
)
def test_damaged_log_line_is_left_out_and_removed_at_resume(line: bytes, tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.records("samples") == []
    run.append("metrics", {"step": 1, "train_loss": 2, "val_loss": 1.5, "new": 7})
    run.append("samples", {"step": 1, "text": "é\u2028\n"})
    before = tree(tmp_path)
    for name in ("metrics.jsonl", "samples.jsonl"):
        with open(tmp_path / name, "ab") as log:
            log.write(line)
    assert run.records("metrics") == [{"step": 1, "train_loss": 2, "val_loss": 1.5, "new": 7}]
    assert run.records("samples") == [{"step": 1, "text": "é\u2028\n"}]
    run.cut_logs_after(2)
    assert tree(tmp_path) == before


def test_resume_drops_log_lines_after_the_checkpoint(tmp_path: Path) -> None:
    run = Run(tmp_path)
    losses = {"train_loss": 2.0, "val_loss": 1.5}
    for step in (6, 12, 18):
        run.append("metrics", {"step": step, **losses})
        run.append("samples", {"step": step, "text": "é"})
    run.cut_logs_after(12)
    for log in ("metrics", "samples"):
        assert [line["step"] for line in run.records(log)] == [6, 12]
    with pytest.raises(ValueError, match="not JSON compliant"):
        run.append("metrics", {"step": 4, "train_loss": float("nan")})


STATES = ("whole", "empty", "no manifest", "cut manifest", "cut model", "no model", "a file")


def put_step(run: Run, start: Manifest, step: int, state: str) -> None:
    """Puts a step into the run's folder, as a crash, a copy or a disk may leave it."""
    folder = run.path / f"step-{step:08d}"
    if state == "a file":
        folder.write_bytes(b"x")
    elif state == "empty":
        folder.mkdir()
    else:
        keeping = replace(start.train, keep_all=True)
        run.commit(replace(start, step=step, train=keeping), BYTES)
        damaged = folder / (MANIFEST if "manifest" in state else MODEL)
        if "no" in state:
            damaged.unlink()
        elif "cut" in state:
            damaged.write_bytes(damaged.read_bytes()[:-1])


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(st.integers(0, 12), st.sampled_from(STATES), max_size=6),
    st.integers(0, 12),
    st.integers(0, 12),
)
def test_save_keeps_itself_the_newest_whole_step_and_later_ones(
    tiny: Checkpoint, states: dict[int, str], step: int, best: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        states.pop(step, None)
        for number, state in states.items():
            put_step(run, tiny.manifest, number, state)
        before = tree(run.path)
        saved(run, tiny.manifest, step, best=best)
        assert Checkpoint.open(run.path / f"step-{step:08d}").manifest.step == step
        earlier = [n for n, state in states.items() if state == "whole" and n < step]
        later = [n for n in states if n > step]
        best_whole = [best] if best != step and states.get(best) == "whole" else []
        after = tree(run.path)
        for number in (*sorted(earlier)[-1:], *later, *best_whole):
            name = f"step-{number:08d}"
            for path, data in before.items():
                if path.startswith(name):
                    assert after[path] == data, path
            assert os.path.lexists(run.path / name)


@pytest.mark.parametrize("state", ["empty", "cut manifest", "cut model"])
def test_resume_beside_damaged_later_steps_loses_nothing(fresh_run: Run, state: str) -> None:
    corpus = corpus_of(TEXT, fresh_run.path.parent.parent)
    for step in (100, 101):
        put_step(fresh_run, fresh_run.at(12).manifest, step, state)
    checkpoint, warnings = fresh_run.last_undamaged()
    assert checkpoint.manifest.step == 12
    for warning, name in zip(warnings, ("step-00000101", "step-00000100"), strict=True):
        assert f"(training renames the damaged one to damaged-{name})" in warning
    for _ in resume(fresh_run, corpus, checkpoint, steps=18).events():
        pass
    assert fresh_run.last().manifest.step == 18
    assert kept(fresh_run)[-2:] == [12, 18]
    aside = {"damaged-step-00000100", "damaged-step-00000101"}
    assert {path.name for path in fresh_run.path.glob("damaged-*")} == aside
    fresh_run.path.joinpath("step-00000100").mkdir()
    fresh_run.rename_damaged_after(18)
    assert (fresh_run.path / "damaged-step-00000100-again").is_dir()


def test_next_trainer_removes_what_a_killed_one_left(fresh_run: Run) -> None:
    before = tree(fresh_run.path)
    shutil.copytree(fresh_run.last().path, fresh_run.path / f"{files.TEMPORARY}1")
    (fresh_run.path / f"{files.TEMPORARY}2").write_bytes(b"half a file")
    with fresh_run.lock():
        assert {*tree(fresh_run.path)} - {*before} <= {".lock"}
    assert {name: tree(fresh_run.path)[name] for name in before} == before
