"""Configs: errors name the option, TOML round trips, presets are valid."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import error_with_flags, fields_of, only_fields
from gpt.config.train import PRESETS, from_toml, preset_values, to_toml
from gpt.errors import ConfigError, TextError


@pytest.mark.parametrize(
    ("config", "name", "values"),
    [
        (ModelConfig, "n_embd", (6, 127)),
        (ModelConfig, "position", ("rotary",)),
        (TrainConfig, "min_lr", (1.0,)),
        (TrainConfig, "split", ("", "-", "every:0", "every:1", "every 1", "a\nb", "\udce9.txt")),
        (TrainConfig, "separator", ("\udce9",)),
    ],
)
def test_error_names_an_option_that_contradicts_others(
    config: type, name: str, values: tuple[Any, ...]
) -> None:
    others = {"vocab_size": 7} if config is ModelConfig else {}
    if name == "position":
        others |= {"n_embd": 12, "n_head": 4}
    for value in values:
        with pytest.raises(ConfigError, match=f"^{name}: ") as caught:
            config(**others, **{name: value})
        assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("\\n", "\n"),
        (r"\n\n--\t", "\n\n--\t"),
        (r"\\n\\\t", r"\n\\t"),  # one more backslash keeps them
        (r"\q \\ \alpha C:\x", r"\q \\ \alpha C:\x"),  # all others stay
        ("\n", "\n"),  # a newline character
        ("", ""),
    ],
)
def test_separator_accepts_escapes(given: str, meant: str) -> None:
    config = TrainConfig(separator=given)
    assert config.text_separator == meant
    assert from_toml(to_toml(vars(config)), "x")["separator"] == given  # not resolved twice


@pytest.mark.parametrize(
    ("given", "every", "validation"),
    [
        ("last", 0, None),
        ("every:20", 20, None),
        ("every 7", 7, None),
        ("every3", 3, None),
        ("./last", 0, "./last"),
        ("every:3.txt", 0, "every:3.txt"),
        ("könyv.txt", 0, "könyv.txt"),
    ],
)
def test_split_option_is_the_end_every_nth_or_a_file(
    given: str, every: int, validation: str | None
) -> None:
    config = TrainConfig(split=given)
    assert (config.split_period, config.validation_file) == (every, validation)


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_contain_only_valid_options(name: str, device: str) -> None:
    values = preset_values(name, device)
    model, train = only_fields(ModelConfig, values), only_fields(TrainConfig, values)
    assert model | train == values
    assert vars(ModelConfig(vocab_size=65, **model)).items() >= model.items()
    assert vars(TrainConfig(**train)).items() >= train.items()


def values_of(config: type) -> SearchStrategy[dict[str, Any]]:
    """Any values of the types of a config's fields."""
    numbers = {float: st.floats(allow_nan=False, allow_infinity=False), int: st.integers()}
    kinds: dict[Any, SearchStrategy[Any]] = {**numbers, bool: st.booleans(), str: st.text()}
    return st.fixed_dictionaries(
        {
            name: st.sampled_from(each.choices) if each.choices else kinds[each.type]
            for name, each in fields_of(config).items()
        }
    )


@settings(deadline=None, max_examples=50)
@given(values_of(ModelConfig) | values_of(TrainConfig))
def test_toml_round_trips_every_field(values: dict[str, Any]) -> None:
    read = from_toml(to_toml(values), "config.toml")
    assert read == values
    assert [type(value) for value in read.values()] == [type(value) for value in values.values()]


@settings(deadline=None, max_examples=50)
@given(st.text(), st.lists(st.text(), max_size=3))
@example('"\\ \x00\t\n\r\x1f\x7f\x85\u200d\u2028\ufeff\U0001f600é', ["a#b", "'", '"""'])
def test_toml_round_trips_any_text(text: str, texts: list[str]) -> None:
    values = {"run": text, "corpus": texts}
    written = to_toml(values)
    assert from_toml(written, "config.toml") == values
    assert written.count("\n") == len(values)  # a value is one line for any text


def test_toml_contains_the_help_and_omits_unset_fields() -> None:
    assert to_toml({"corpus": None, "n_layer": 4}) == "n_layer = 4\n"
    with pytest.raises(TypeError, match="not JSON serializable"):
        to_toml({"n_layer": object()})


@pytest.mark.parametrize("text", ["steps = ", "steps = 1\nsteps = 2", "= 1", 'a = "\x00"'])
def test_error_for_broken_toml_names_the_file(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^config my\.toml: "):
        from_toml(text, "my.toml")


def test_errors_name_keywords_in_python_and_flags_on_the_command_line() -> None:
    with pytest.raises(ConfigError) as caught:
        TrainConfig(min_lr=1.0, learning_rate=0.5)
    assert str(caught.value) == "min_lr: 1.0 is above `learning_rate=0.5`"
    assert caught.value.field == "min_lr"
    for error, shown in (
        (caught.value, "--min-lr: 1.0 is above --learning-rate 0.5"),
        (ConfigError("config a_b.toml", "no `step`"), "--config a_b.toml: no --step"),
        (ConfigError("n", "`feed_forward=False`"), "-n: --no-feed-forward"),
        (TextError("use `device='cpu'`"), "use --device cpu"),
    ):
        assert error_with_flags(error) == shown
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
