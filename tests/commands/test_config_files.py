"""Options of the commands: their names and values on the command line and in --config files."""

from __future__ import annotations

import json
import math
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from program import Gptx
from wrong_options import wrong_values

from gpt.commands import COMMANDS, MODULES
from gpt.commands.options import classes_of_options, read_config
from gpt.config.fields import Field, flag_of, options_of
from gpt.errors import ConfigError


def options_taken(command: str) -> dict[str, Field]:
    """Name of each option and argument of a command -> its field."""
    module = import_module(f"gpt.commands.{MODULES.get(command, command)}")
    owners = classes_of_options(module.command)
    return {name: options_of(kind)[name] for name, kind in owners.items()}


def is_argument(field: Field) -> bool:
    return any(note.extra and "argument" in note.extra for note in field.notes)


def values_of(command: str, toml: str, folder: Path) -> dict[str, Any]:
    """The options in a file."""
    path = folder / "config.toml"
    path.write_text(toml, encoding="utf-8")
    return read_config(path, options_taken(command))


def in_toml(value: object) -> str | None:
    """A value as TOML writes it; None for one that it cannot write."""
    if value is None or isinstance(value, bytes) or type(value) is object:
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_value_in_a_file_is_an_error_that_names_file_and_option(
    command: str, tmp_path: Path
) -> None:
    for name, field in options_taken(command).items():
        for value in wrong_values(field):
            text = in_toml(value)
            if text is None or (field.type is str and type(value) is int):
                continue  # a step, a layer or a head may be a number
            for spelling in {name, name.replace("_", "-")}:
                with pytest.raises(ConfigError) as caught:
                    values_of(command, f"{spelling} = {text}", tmp_path)
                assert caught.value.exit_code == 2
                message = str(caught.value)
                assert message.startswith(f"--config {tmp_path}/config.toml: {spelling}: "), value
                assert "\n" not in message


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_value_on_the_command_line_is_one_line_that_names_the_option(
    gptx: Gptx, command: str
) -> None:
    needed = {"import": ["ckpt.pt"], "export": ["folder"]}.get(command, [])
    for name, field in options_taken(command).items():
        if is_argument(field) or not (field.choices or field.type in (int, float)):
            continue  # every text is a text
        values = {str(value) for value in wrong_values(field) if isinstance(value, int | float)}
        for value in {*values, "x"} - {"1", "True"}:
            answer = gptx(command, *needed, flag_of(name), value)
            assert (answer.code, answer.out) == (2, "")
            assert answer.err.count("\n") == 1
            assert answer.err.startswith("gptx: error: ")
            assert flag_of(name) in answer.err


def test_a_misspelt_option_names_the_nearest_one(gptx: Gptx, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no option 'n_layers'; did you mean n_layer\?"):
        values_of("train", "n_layers = 1", tmp_path)
    answer = gptx("next", "--temperatures")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "No such option: --temperatures" in answer.err
    assert "Possible options: --temperature)" in answer.err


@pytest.mark.parametrize(
    ("command", "toml", "problem"),
    [
        ("sample", "config = 'x'", "there is no option 'config'"),
        ("sample", "context = 'x'", "there is no option 'context'"),
        ("sample", "threads = 2", "there is no option 'threads'"),
        ("sample", "stop = 'x'", "stop: 'x': Expected array, got str"),
        (
            "attn",
            'checkpoints = "a\\u0000b"',
            "checkpoints: 'a\\x00b': a file's name has no NUL character",
        ),
    ],
)
def test_config_file_refuses_other_names_and_types(
    gptx: Gptx, home: Path, command: str, toml: str, problem: str
) -> None:
    (home / "wrong.toml").write_text(toml, encoding="utf-8")
    answer = gptx(command, "--config", "wrong.toml")
    assert answer.code == 2
    assert f"--config wrong.toml: {problem}" in answer.err


def test_config_file_has_the_names_of_help_and_sets_json_step_and_samples(
    gptx: Gptx, home: Path, tmp_path: Path
) -> None:
    assert values_of("train", "window-order = 'epochs'", tmp_path) == {"window_order": "epochs"}
    assert values_of("heads", "windows = 3", tmp_path) == {"windows": 3}
    assert values_of("next", "all = true", tmp_path) == {"all": True}
    assert values_of("sample", "prompt = 'x'", tmp_path) == {"prompt": "x"}
    assert values_of("attn", "layer = 1", tmp_path) == {"layer": "1"}
    (home / "right.toml").write_text("json = true\nstep = 8\nn = 2\nlength = 3\n", encoding="utf-8")
    answer = gptx("sample", "--config", "right.toml")
    assert answer.code == 0, answer.err
    records = [json.loads(line) for line in answer.out.splitlines()]
    assert [(each["step"], len(each["text"])) for each in records] == [(8, 3), (8, 3)]
    answer = gptx("sample", "--config", "right.toml", "--length", "5", "-n", "1")
    assert [len(json.loads(line)["text"]) for line in answer.out.splitlines()] == [5]


def test_a_typed_time_replaces_the_steps_of_a_file_and_typed_steps_its_time(
    gptx: Gptx, home: Path
) -> None:
    dry = ("train", "corpus.txt", "--dry-run", "--json", "--config")
    for stored, typed in (("steps = 5", ("--minutes", "3")), ("minutes = 3", ("--steps", "5"))):
        (home / "one.toml").write_text(stored, encoding="utf-8")
        answer = gptx(*dry, "one.toml", *typed)
        assert answer.code == 0, answer.err
        is_timed = typed[0] == "--minutes"
        plan = json.loads(answer.out)
        assert (plan.get("minutes") is not None, plan["steps"] == 5) == (is_timed, not is_timed)
