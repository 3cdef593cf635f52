"""Options: a class refuses every wrong value of each field, and gives functions its keywords."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from wrong_options import wrong_options

import gpt
from gpt.commands.attn import AttnOptions
from gpt.commands.evaluate import EvalOptions
from gpt.config import (
    ExplanationOptions,
    ModelConfig,
    ModelOptions,
    RunConfig,
    SampleConfig,
    SurveyOptions,
    TrainConfig,
)
from gpt.config.fields import fields_of, keywords_from, options_of
from gpt.config.train import ResumeOptions
from gpt.errors import ConfigError
from gpt.interface.trained import SampleCall

KINDS = (
    ModelOptions,
    TrainConfig,
    RunConfig,
    SampleConfig,
    AttnOptions,
    SurveyOptions,
    ExplanationOptions,
    EvalOptions,
)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_names_every_option_with_a_wrong_value(kind: type) -> None:
    valid: Any = kind()
    for name, value in wrong_options(kind):
        for make in (kind, lambda **values: replace(valid, **values)):
            with pytest.raises(ConfigError) as caught:
                make(**{name: value})
            error = caught.value
            assert error.field == name, value
            assert "\n" not in str(error)
            assert len(str(error)) < 250
            assert error.exit_code == 2


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_has_finite_bounds_and_every_option_has_help(kind: type) -> None:
    for name, option in fields_of(kind).items():
        if option.type in (int, float):
            assert any((note.ge, note.gt) != (None, None) for note in option.notes), name
            assert any((note.le, note.lt) != (None, None) for note in option.notes), name
        assert option.help.endswith("."), name
        assert option.help.isprintable(), name
        if option.default is not None:
            assert option.convert(option.default) == option.default


def test_values_get_the_type_of_their_field() -> None:
    assert type(TrainConfig(learning_rate=1).learning_rate) is float
    assert RunConfig(data="texts").data == Path("texts")  # type: ignore[arg-type]
    assert ModelConfig(vocab_size=3).vocab_size == 3
    with pytest.raises(ConfigError, match=r"^vocab_size: "):
        ModelConfig(vocab_size=0)


def test_train_takes_every_option_and_resume_those_that_may_change() -> None:
    options = {*options_of(RunConfig), *options_of(ModelConfig), *options_of(TrainConfig)}
    trained, resumed = (
        inspect.signature(function).parameters for function in (gpt.train, gpt.resume)
    )
    assert {*trained} == {"corpus", "text", "progress", *options}
    assert {*fields_of(ResumeOptions), "minutes", "device"} <= {*resumed}
    assert not {"n_layer", "preset"} & {*resumed}
    assert str(trained["n_layer"]) == "n_layer: int = fitted"
    assert str(resumed["steps"]) == "steps: int = unchanged"


@dataclass(frozen=True, kw_only=True)
class Asked(SampleConfig):
    prompt: str = field(default="", kw_only=False)


class Writer:
    @keywords_from(Asked)
    def write(self, asked: Asked) -> str:
        """Writes."""
        return asked.prompt * asked.n


def test_a_method_takes_the_fields_of_a_class() -> None:
    assert Writer().write("ab", n=2) == "abab"
    shown = str(inspect.signature(Writer.write))
    assert shown.startswith(
        "(self, prompt: 'str' = '', *, temperature: float = 0.8, top_k: Optional[int]"
    )
    assert "seed: Optional[int] = None, " in shown
    assert "    temperature: Divides the logits" in str(Writer.write.__doc__)
    with pytest.raises(ConfigError, match=r"^n: 0: Expected"):
        Writer().write("ab", n=0)


def test_one_text_is_no_list_of_texts() -> None:
    for wrong in ("ab", [1]):
        with pytest.raises(ConfigError, match=r"^stop: .*: Expected "):
            SampleCall(stop=wrong)  # type: ignore[arg-type]
