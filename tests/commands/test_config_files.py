"""--config files accept the names and types that --help shows, and nothing else."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import torch
from program import Gptx
from typer.main import get_command

from gpt import commands
from gpt.commands.options import use_config_file
from gpt.errors import ConfigError

PROGRAM = get_command(commands.make_program())
EXAMPLES = {"a whole number": "3", "a number": "0.5", "true or false": "true", "a text": "'a'"}
EXAMPLES["a list of texts"] = "['a']"


def values_of(command: str, toml: str, folder: Path) -> dict[str, object]:
    """The options in a file, with the command's names for them."""
    path = folder / "config.toml"
    path.write_text(toml, encoding="utf-8")
    with PROGRAM.make_context("gptx", [command], resilient_parsing=True) as parent:
        made = PROGRAM.commands[command].make_context(  # type: ignore[attr-defined]
            command, [], parent=parent, resilient_parsing=True
        )
    made.resilient_parsing = False
    use_config_file(made, path)
    return dict(made.default_map)


def spellings() -> dict[str, str]:
    """Each name of an option in the help of the commands that have --config, with a command."""
    found = {}
    for command, made in PROGRAM.commands.items():  # type: ignore[attr-defined]
        options = [name for each in made.params for name in each.opts if name.startswith("--")]
        if "--config" in options:
            found |= {name[2:]: command for name in options if name != "--config"}
    return found


@pytest.mark.parametrize(("name", "command"), spellings().items())
def test_config_file_accepts_names_and_types_from_help_only(
    command: str, name: str, tmp_path: Path
) -> None:
    taken, refused = set(), []
    for kind, example in EXAMPLES.items():
        try:
            values = values_of(command, f"{name} = {example}", tmp_path)
        except ConfigError as error:
            refused.append(str(error))
        else:
            taken.add(kind)
            assert values == values_of(command, f"{name.replace('-', '_')} = {example}", tmp_path)
    for message in refused:
        assert re.fullmatch(rf".*: {name} = .* is not [a-z ]+", message)
    assert taken in (
        {"a whole number"},
        {"a whole number", "a number"},
        {"a whole number", "a text"},
        {"true or false"},
        {"a list of texts"},
    )


@pytest.mark.parametrize(
    ("command", "toml", "problem"),
    [
        ("sample", "as_json = true", "there is no option 'as_json'"),
        ("attn", "show = true", "there is no option 'show'"),
        ("attn", "ascii_only = true", "there is no option 'ascii_only'"),
        ("heads", "every = true", "there is no option 'every'"),
        ("sample", "config = 'x'", "there is no option 'config'"),
        ("sample", "context = 'x'", "there is no option 'context'"),
        ("sample", f"prompt{'.a' * 900} = 1", "prompt = {'a': {'a': {...}}} is not a text"),
        ("sample", f"prompt{'.a' * 3000} = 1", "more than 1,000 dots in names"),
        ("sample", f"{'x' * 300} = 1", "there is no option 'xxx"),
        ("sample", f"{'x' * 9999} = 1", "a name or number has 400 characters or more"),
        ("sample", "length = true", "length = True is not a whole number"),
        ("sample", "length = 1.0", "length = 1.0 is not a whole number"),
        ("sample", "temperature = '1'", "temperature = '1' is not a number"),
        ("sample", "json = 1", "json = 1 is not true or false"),
        ("sample", "stop = 'x'", "stop = 'x' is not a list of texts"),
        ("attn", 'checkpoints = "a\\u0000b"', "checkpoints = 'a\\x00b': a file's name has no NUL"),
        ("attn", "truncate = 'last'", "truncate = 'last' is not true or false"),
        ("train", "corpus = [1]", "corpus = [1] is not a list of texts"),
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
    assert values_of("next", "show = 2", tmp_path) == {"show": 2}
    assert values_of("sample", "prompt = 'x'", tmp_path) == {"prompt": "x"}
    (home / "right.toml").write_text("json = true\nstep = 8\nn = 2\nlength = 3\n", encoding="utf-8")
    answer = gptx("sample", "--config", "right.toml")
    assert answer.code == 0, answer.err
    records = [json.loads(line) for line in answer.out.splitlines()]
    assert [(each["step"], len(each["text"])) for each in records] == [(8, 3), (8, 3)]


def test_a_config_repeated_with_other_threads_or_another_torch_warns(
    gptx: Gptx, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("the cat sat on the mat. " * 40)
    tiny = ("--steps", "1", "--n-embd", "8", "--n-head", "1", "--n-layer", "1", "--block-size", "8")
    folder = ("--checkpoints", str(tmp_path / "runs"), "--data", str(tmp_path / "data"))
    first = gptx("train", str(tmp_path / "text"), *tiny, "--run", "first", *folder)
    assert first.code == 0, first.err
    config = tmp_path / "runs/first/config.toml"
    text = config.read_text()
    threads = tomllib.loads(text)["threads"]
    assert f'\ntorch = "{torch.__version__}" ' in text
    other = re.sub(r"(?m)^threads = \d+", f"threads = {threads + 1}", text)
    other = re.sub(r"(?m)^torch = .*", 'torch = "2.0.0"', other)
    (tmp_path / "other.toml").write_text(other)
    warned = []
    for path in (config, tmp_path / "other.toml"):
        answer = gptx("train", "--config", str(path), "--dry-run", *folder)
        assert answer.code == 0, answer.err
        warned += [line for line in answer.err.splitlines() if "not bit-exact" in line]
    assert warned == [
        f"warning: not bit-exact: the run of this config had {before}, now it is {now}: other "
        "weights are possible"
        for before, now in ((f"threads {threads + 1}", threads), ("torch 2.0.0", torch.__version__))
    ]
    (tmp_path / "other.toml").write_text("threads = 'a'")
    bad = gptx("train", "--config", str(tmp_path / "other.toml"), "--dry-run", *folder)
    assert (bad.code, bad.err.count("\n")) == (2, 1)
    with pytest.raises(ConfigError, match="no option 'threads'"):
        values_of("sample", "threads = 2", tmp_path)
