"""Reading torchrun's environment, and which run a restarted launch resumes."""

from __future__ import annotations

from pathlib import Path

from conftest import train_tiny

from gpt.storage.run import Run
from gpt.training.launch import MARK, Launch

GIVEN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "TORCHELASTIC_RUN_ID": "job",
    "TORCHELASTIC_RESTART_COUNT": "1",
    "TORCHELASTIC_MAX_RESTARTS": "2",
}


def test_a_launch_reads_its_rank_from_the_environment() -> None:
    assert Launch.here({}) == Launch()
    assert Launch.here({"RANK": "1"}) == Launch()  # half of it is no launch
    launch = Launch.here(GIVEN)
    assert launch == Launch(3, 4, 1, "job", 1, 2)
    assert not launch.first
    assert launch.comes_again
    assert not Launch.here({**GIVEN, "TORCHELASTIC_RESTART_COUNT": "2"}).comes_again
    assert Launch.here({"RANK": "0", "WORLD_SIZE": "1"}) == Launch(name="none")


def test_a_launch_resumes_only_its_own_run(tmp_path: Path) -> None:
    run, root = Run(train_tiny(tmp_path).path.parent), tmp_path / "checkpoints"
    for name in ("job", "none"):
        first, again = Launch(name=name), Launch(name=name, attempt=1)
        assert again.interrupted(root) is None
        first.mark(run)
        assert again.interrupted(root) == run
        assert first.interrupted(root) is None  # the name may only be used again
        assert Launch(name="other", attempt=1).interrupted(root) is None
        assert Launch().interrupted(root) is None
    (run.path / MARK).write_text("elsewhere:1")  # another torchrun without a name
    assert Launch(name="none", attempt=1).interrupted(root) is None


def test_without_torchrun_a_run_is_not_marked(tmp_path: Path) -> None:
    run = Run(tmp_path)
    Launch().mark(run)
    assert not (tmp_path / MARK).exists()
