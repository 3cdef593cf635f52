"""`gptx doctor`: what it says of the machine, and whether its self-test finds errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from program import Answer, Gptx, answer_of, at_home

from gpt.commands import ClickContext, explain_error
from gpt.config.model import Activation, Norm, Position
from gpt.interface import doctor
from gpt.interface.self_test import CHECKPOINT
from gpt.model import GPT
from gpt.reading.decode import CachedDecoder
from gpt.reading.gpt import Reader

TORCH = ["torch, readable heads", "torch, fused", "torch, fused, with cache"]
NUMPY = ["numpy", "numpy, decoder"]
FORMS = [*TORCH, *NUMPY, "numpy in float64", CHECKPOINT]


@pytest.fixture
def gptx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gptx:
    """Runs the program in an empty folder, in this process."""
    at_home(tmp_path, monkeypatch)
    return lambda *arguments: answer_of(monkeypatch, arguments)


def record_of(answer: Answer) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(answer.out)
    return record


def failed(record: dict[str, Any]) -> set[str]:
    """The forms that the self-test rejects; for each there is one problem."""
    found = {row["form"] for row in record["rows"] if not row["passed"]}
    assert {each.split(": the self-test failed (")[0] for each in record["problems"]} == found
    assert len(record["problems"]) == len(found)
    return found


def test_every_form_computes_what_torch_does_in_float64(gptx: Gptx) -> None:
    answer = gptx("doctor", "--json")
    assert (answer.code, answer.err) == (0, "")
    record = record_of(answer)
    assert [*dict.fromkeys(row["form"] for row in record["rows"])] == FORMS
    assert failed(record) == set()
    for row in record["rows"]:
        limit = 1e-9 if row["form"] == "numpy in float64" else 1e-3
        assert 0 < row["difference"] <= row["allowed"] < limit, row
    models = {row["model"] for row in record["rows"]} - {""}
    for choice in (Position, Norm, Activation):
        assert {*get_args(choice)} <= {word for each in models for word in each.split(", ")}
    assert "rotary, rms, relu2" in models  # the preset default


def test_the_page_has_a_line_for_each_form_and_says_that_all_is_well(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = gptx("doctor").out
    assert out.splitlines()[-1] == "All is well."
    assert [line[:30].strip() for line in out.splitlines() if line.endswith("✓")] == FORMS
    assert f"torch {metadata.version('torch')}" in out
    assert "a pipe or a file" in out
    assert "a terminal" in answer_of(monkeypatch, ("doctor",), terminal=True).out


def of(attention: str) -> Callable[..., bool]:
    return lambda model, *_: model.config.attention == attention


#: What is planted -> the method with the error, when it has it, in which type, and who finds it.
PLANTED: dict[str, tuple[type, str, Callable[..., bool], str, set[str]]] = {
    "heads": (GPT, "forward", of("heads"), "float32", {TORCH[0]}),
    "fused": (GPT, "forward", of("fused"), "float32", {TORCH[1]}),
    "cache": (GPT, "stream", lambda *given: len(given) > 2 and given[2], "float32", {TORCH[2]}),
    "reader": (Reader, "logits", lambda *_: True, "float32", {NUMPY[0], CHECKPOINT}),
    "decoder": (CachedDecoder, "step", lambda *_: True, "float32", {NUMPY[1]}),
    "float64": (Reader, "logits", lambda *_: True, "float64", {FORMS[5]}),
}


@pytest.mark.parametrize("name", PLANTED)
def test_an_error_in_one_form_is_found_in_that_form(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    owner, method, applies, dtype, expected = PLANTED[name]
    right = getattr(owner, method)

    def wrong(*given: Any, **more: Any) -> Any:
        result = right(*given, **more)
        spoiled = applies(*given) and str(result.dtype).endswith(dtype)
        return result * 1.001 if spoiled else result

    monkeypatch.setattr(owner, method, wrong)
    answer = gptx("doctor", "--json")
    assert failed(record_of(answer)) == expected
    assert answer.code == 10
    assert answer.err.startswith(f"gptx: error: {len(expected)} problem")


def test_a_form_that_raises_and_a_disk_that_is_full_are_named(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise OSError(28, "No space\nleft on device")

    monkeypatch.setattr(CachedDecoder, "start", fail)
    monkeypatch.setattr("gpt.storage.files.commit_folder", fail)
    answer = gptx("doctor")
    assert answer.code == 10
    problems = " ".join(answer.out[answer.out.index("problem: ") :].split())
    assert "numpy, decoder: the self-test failed (OSError: [Errno 28] No space" in problems
    assert f"problem: {CHECKPOINT}: the self-test failed (StorageError: cannot save" in problems
    assert "pip install -c constraints.txt -e ." in problems
    assert "All is well" not in answer.out
    assert answer.out.count("✗ FAILED") == answer.out.count("problem: ") == 2


def test_a_device_has_forms_of_its_own(gptx: Gptx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_device", lambda *_: ("cpu:0", "a second name of the CPU"))
    record = record_of(gptx("doctor", "--json"))
    forms = {row["form"] for row in record["rows"]}
    assert forms == {*FORMS, *(f"{each} on cpu:0" for each in TORCH)}
    assert failed(record) == set()


def test_the_device_is_named_with_the_reason(gptx: Gptx, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: str) -> None:
        raise RuntimeError("no kernel image")

    monkeypatch.setattr("gpt.devices.cuda_devices", lambda: 0)
    record = record_of(gptx("doctor", "--json"))
    assert record["device"] == ["cpu: the driver reports no CUDA device"]
    answer = gptx("doctor", "--device", "cuda", "--json")
    assert answer.code == 10
    assert record_of(answer)["problems"] == [
        "--device cuda: no CUDA device found; use --device cpu"
    ]
    monkeypatch.setattr("gpt.devices.cuda_devices", lambda: 1)
    monkeypatch.setattr("gpt.training.step.try_step", fail)
    answer = gptx("doctor", "--json")
    (reason,) = record_of(answer)["device"]
    assert reason.startswith("cpu: torch cannot compute on cuda (RuntimeError: no kernel image)")
    assert (answer.code, answer.err) == (0, "")


def test_no_name_of_the_user_and_no_home_folder_is_shown(
    gptx: Gptx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "zsofia"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GPTX_DATA", str(home / "data"))
    monkeypatch.setattr(doctor, "ROOT", home / "gptx")
    elsewhere = tmp_path / "disk" / "zsofia" / "runs"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_bytes(b"")  # no folder
    answer = gptx("doctor", "--checkpoints", str(elsewhere))
    assert answer.code == 0
    assert "zsofia" not in answer.out
    for shown in ("~/data ·", "GPTX_DATA=~/data", "~/gptx"):
        assert shown in answer.out
    record = gptx("doctor", "--checkpoints", str(elsewhere), "--json").out
    assert "zsofia" not in record
    assert "disk/USER/runs cannot be written" in record  # a line may break in the middle of it


def test_a_folder_that_cannot_be_written_is_a_note(gptx: Gptx, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    answer = gptx("doctor", "--checkpoints", "file/runs", "--json")
    assert (answer.code, answer.err) == (0, "")
    record = record_of(answer)
    assert record["checkpoints"][-1] == "cannot be written"
    assert record["notes"] == [
        "file/runs cannot be written (Not a directory); for gptx train, name another folder with "
        "--checkpoints or in GPTX_CHECKPOINTS"
    ]
    assert "cannot" not in " ".join(record["data"])
    assert {each.name for each in tmp_path.iterdir()} == {"file"}


def test_in_a_narrow_terminal_no_line_is_wider(gptx: Gptx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(ClickContext, "formatter_class", ClickContext.formatter_class)
    lines = gptx("doctor", "--checkpoints", "/dev/null/x", "--ascii").out.splitlines()
    assert max(map(len, lines)) <= 40
    assert sum(line.endswith(" ok") for line in lines) == len(FORMS)


def test_without_torch_the_rest_is_shown(gptx: Gptx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    answer = gptx("doctor", "--json")
    assert answer.code == 10
    record = record_of(answer)
    (problem,) = record["problems"]
    assert problem.startswith("torch cannot be used (ModuleNotFoundError: ")
    assert problem.endswith("in the folder of gptx: pip install -c constraints.txt -e .")
    assert {row["form"] for row in record["rows"] if row["passed"]} == {*NUMPY}
    assert record["judge"] == "numpy in float64, as there is no torch"
    assert record["device"] == ["cpu: numpy reads models without torch"]


def test_missing_and_old_packages_are_problems(gptx: Gptx, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["torch>=2.6", "no-such-package>=1.0", "numpy>=99.1", 'pytest>=999; extra == "dev"']
    monkeypatch.setattr(metadata, "requires", lambda _: lines)
    answer = gptx("doctor", "--json")
    assert answer.code == 10
    assert [each.split(";")[0] for each in record_of(answer)["problems"]] == [
        "no-such-package is not installed, but gptx needs 1.0 or newer",
        f"numpy {metadata.version('numpy')}, but gptx needs 99.1 or newer",
    ]


def test_a_checkout_that_is_not_installed_knows_its_packages(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = [*doctor._packages([])]

    def fail(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", fail)
    assert [*doctor._packages([])] == packages
    assert f"numpy {np.__version__}" in packages  # torch may add "+cu130" to its own


def test_any_command_names_a_package_that_is_missing() -> None:
    error = ImportError("No module named 'blake3'", name="blake3")
    advice = "in the folder of gptx: pip install -c constraints.txt -e ."
    assert explain_error(error) == (10, f"No module named 'blake3'; {advice}")
    assert explain_error(ImportError("cannot import name 'x'", name="gpt.words"))[0] == 1
