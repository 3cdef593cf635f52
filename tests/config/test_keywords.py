"""Keywords of Python functions are the fields of the configurations."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import get_type_hints

import pytest

from gpt.config import ModelConfig, SampleConfig, TrainConfig
from gpt.config.fields import field_help, field_types
from gpt.config.keywords import ResumeOptions, SampleOptions, ShapingOptions, TrainOptions, takes
from gpt.config.sample import SHAPING
from gpt.interface.trained import TrainedGPT
from gpt.training.plan import CHANGEABLE


@pytest.mark.parametrize(
    ("typed", "configs"),
    [
        (SampleOptions, (SampleConfig,)),
        (ShapingOptions, (SampleConfig,)),
        (TrainOptions, (ModelConfig, TrainConfig)),
        (ResumeOptions, (TrainConfig,)),
    ],
)
def test_typed_keywords_have_the_types_of_the_fields(
    typed: type, configs: tuple[type, ...]
) -> None:
    types = {name: kind for config in configs for name, kind in field_types(config).items()}
    for name, kind in get_type_hints(typed).items():
        assert kind == types[name], name


def test_every_option_is_a_typed_keyword() -> None:
    trained = {*field_help(ModelConfig), *field_help(TrainConfig)}
    assert {*TrainOptions.__annotations__} == trained
    assert {*ResumeOptions.__annotations__} == CHANGEABLE
    assert {*ShapingOptions.__annotations__} == {*SHAPING, "only"}
    assert {*SampleOptions.__annotations__} == {*field_help(SampleConfig)} - {"n"}


@pytest.mark.parametrize("method", [TrainedGPT.sample, TrainedGPT.next])
def test_signature_shows_the_defaults_of_the_dataclass(method: object) -> None:
    shown = inspect.signature(method).parameters  # type: ignore[arg-type]
    defaults = {field.name: field.default for field in fields(SampleConfig)}
    assert {"temperature", "top_k"} <= shown.keys()
    for name in shown.keys() & defaults.keys():
        assert shown[name].default == defaults[name], name
    help_text = str(method.__doc__)
    assert "temperature: Divides the logits" in help_text


def test_unknown_keyword_is_refused_with_the_nearest_name() -> None:
    @takes(["length"], SampleConfig)
    def write(text: str, **options: object) -> None:
        """Writes."""

    with pytest.raises(
        TypeError, match=r"write\(\) has no keyword 'lenght'; did you mean 'length'."
    ):
        write("a", lenght=3)
    with pytest.raises(TypeError, match=r"no keyword 'x'\. It takes: text, length$"):
        write("a", x=3)
    assert str(inspect.signature(write)) == "(text: str, *, length: int = 500) -> None"
