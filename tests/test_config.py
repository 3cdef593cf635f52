"""Configs: errors name the option, TOML round trips, presets are valid."""

from __future__ import annotations

import math
import pickle
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from gpt.config import ModelConfig, SampleConfig, TrainConfig
from gpt.config.fields import error_with_flags, field_help, field_types, only_fields
from gpt.config.presets import PRESETS, preset
from gpt.errors import ConfigError, TextError
from gpt.storage.config_file import from_toml, to_toml

CONFIGS: tuple[type, ...] = (ModelConfig, TrainConfig, SampleConfig)
NOT_OF_TYPE: dict[Any, list[Any]] = {
    int: [1.0, True, "1", None],
    float: [math.nan, math.inf, -math.inf, True, "1", None],
    bool: [0, 1, "true", None],
    str: [1, True, None, b"last"],
}


def config_of(config: type, **values: Any) -> Any:
    """The config with these values; a model also needs a vocabulary."""
    return config(**({"vocab_size": 7} if config is ModelConfig else {}) | values)


def of_wrong_type() -> list[tuple[type, str, Any]]:
    """Every required option with values of wrong types."""
    return [
        (config, name, value)
        for config in CONFIGS
        for name, kind in field_types(config).items()
        for value in NOT_OF_TYPE.get(kind, ["other", "", None] if get_origin(kind) else [])
        if get_origin(kind) in (None, Literal)
    ]


@pytest.mark.parametrize(("config", "name", "value"), of_wrong_type())
def test_error_names_an_option_with_a_wrong_type(config: type, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: "):
        config_of(config, **{name: value})


@pytest.mark.parametrize(
    ("config", "name", "values"),
    [
        *[
            (ModelConfig, name, (0, -1))
            for name in ("vocab_size", "block_size", "n_layer", "n_head", "n_embd")
        ],
        (ModelConfig, "n_embd", (6, 127)),
        (ModelConfig, "n_layer", (501, 10**9)),
        (ModelConfig, "block_size", (2**20 + 1, 10**9)),
        (ModelConfig, "position", ("rotary",)),
        (ModelConfig, "dropout", (-0.1, 1.0, 2)),
        *[(TrainConfig, name, (0, -1)) for name in ("steps", "batch_size")],
        (TrainConfig, "steps", (10**12,)),
        (TrainConfig, "learning_rate", (0, -1)),
        (TrainConfig, "min_lr", (1.0,)),
        *[
            (TrainConfig, name, (-1,))
            for name in ("min_lr", "warmup_steps", "weight_decay", "grad_clip", "eval_interval")
        ],
        *[(TrainConfig, name, (-1,)) for name in ("eval_chars", "patience")],
        *[(TrainConfig, name, (-0.1, 1.0)) for name in ("beta1", "beta2")],
        (TrainConfig, "val_fraction", (0.0, 1.0, -0.5)),
        (TrainConfig, "split", ("", "-", "every:0", "every:1", "every 1", "a\nb", "\udce9.txt")),
        (TrainConfig, "separator", ("\\", "\\q", "\\ud800", "\\U00110000", "\\u12", "\udce9")),
        *[(config, "seed", (-1, 2**63)) for config in (TrainConfig, SampleConfig)],
        *[(SampleConfig, name, (-1,)) for name in ("length", "n", "temperature")],
        (SampleConfig, "n", (0,)),
        (SampleConfig, "length", (10**12 + 1, 10**20)),
        (SampleConfig, "top_k", (0, -3)),
        (SampleConfig, "top_p", (0.0, -0.1, 2.0, math.nan, math.inf)),
        (SampleConfig, "min_p", (-0.1, 1.1, math.nan)),
    ],
)
def test_error_names_an_option_out_of_range(
    config: type, name: str, values: tuple[Any, ...]
) -> None:
    odd_heads = {"n_embd": 12, "n_head": 4} if name == "position" else {}
    for value in values:
        with pytest.raises(ConfigError, match=f"^{name}: ") as caught:
            config_of(config, **odd_heads, **{name: value})
        assert caught.value.exit_code == 2


def test_limits_of_every_range_are_valid() -> None:
    ModelConfig(vocab_size=1, block_size=1, n_layer=1, n_head=1, n_embd=2, dropout=0)
    ModelConfig(vocab_size=1, n_head=1, n_embd=1, position="learned")
    TrainConfig(steps=1, warmup_steps=0, grad_clip=0, beta1=0, beta2=0, seed=2**63 - 1)
    TrainConfig(separator="", split="every:2")
    SampleConfig(length=0, temperature=0, top_k=1, top_p=1, min_p=0, seed=0)
    SampleConfig(min_p=1)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("\\n", "\n"),
        (r"\n\n--\t\r\f\v\0", "\n\n--\t\r\f\v\0"),
        (r"\x41\u2028\U0001F600é", "A\u2028\U0001f600é"),
        (r"\\n", r"\n"),  # a backslash, then an n
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
    assert (config.every, config.validation) == (every, validation)


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_contain_only_valid_options(name: str, device: str) -> None:
    values = preset(name, device)
    model, train = only_fields(ModelConfig, values), only_fields(TrainConfig, values)
    assert model | train == values
    assert vars(ModelConfig(vocab_size=65, **model)).items() >= model.items()
    assert vars(TrainConfig(**train)).items() >= train.items()


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_presets_count_on_every_device(device: str) -> None:
    counting = {name: preset(name, device).get("counting", 0) for name in PRESETS}
    assert counting == {"default": 8, "best": 8, "classic": 0}


def test_changing_a_preset_does_not_change_the_original() -> None:
    preset("default", "cuda")["n_layer"] = 99
    assert preset("default", "cuda")["n_layer"] == 6


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^preset: 'worst' is not one of default, best, classic$"
    ):
        preset("worst", "cpu")


@pytest.mark.parametrize("config", CONFIGS)
def test_every_option_has_help(config: type) -> None:
    help_texts = field_help(config)
    assert set(help_texts) == {field.name for field in fields(config)} - {"vocab_size"}
    assert all(text.endswith(".") and text.isprintable() for text in help_texts.values())


def values_of(config: type) -> SearchStrategy[dict[str, Any]]:
    """Any values of the types of a config's fields."""
    numbers = {float: st.floats(allow_nan=False, allow_infinity=False), int: st.integers()}
    kinds: dict[Any, SearchStrategy[Any]] = {**numbers, bool: st.booleans(), str: st.text()}
    return st.fixed_dictionaries(
        {
            name: kinds[kind] if kind in kinds else st.sampled_from(get_args(kind))
            for name, kind in field_types(config).items()
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
    assert to_toml({"corpus": None, "n_layer": 4}) == "n_layer = 4  # Transformer blocks.\n"
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
    assert (caught.value.field, caught.value.reason) == ("min_lr", str(caught.value)[8:])
    assert error_with_flags(caught.value) == "--min-lr: 1.0 is above --learning-rate 0.5"
    assert (
        error_with_flags(ConfigError("device", "use `device='cpu'`"))
        == "--device: use --device cpu"
    )
    assert (
        error_with_flags(ConfigError("config a_b.toml", "no `step`"))
        == "--config a_b.toml: no --step"
    )
    assert error_with_flags(ConfigError("n", "0")) == "-n: 0"
    assert error_with_flags(ConfigError("n", "`feed_forward=False`")) == "-n: --no-feed-forward"
    assert error_with_flags(TextError("use `block_size=5`")) == "use --block-size 5"
    assert field_help(TrainConfig)["eval_interval"].endswith("0 = use --evaluations.")
    assert field_help(TrainConfig, flags=False)["eval_interval"].endswith("0 = use `evaluations`.")
    alone = ConfigError("RANK: use torchrun")
    assert str(alone) == error_with_flags(alone) == "RANK: use torchrun"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
