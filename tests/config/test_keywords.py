"""Keywords of Python functions are the fields of the configurations."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import pytest

from gpt.config import ModelConfig, RunConfig, SampleConfig, TrainConfig, keywords
from gpt.config.fields import field_help
from gpt.config.keywords import KEYWORDS, takes_options, typed_stub
from gpt.config.sample import DISTRIBUTION_OPTIONS
from gpt.interface.trained import TrainedGPT
from gpt.interface.training import resume, train

if TYPE_CHECKING:
    from gpt.config.typed import SampleOptions


def test_the_types_of_keywords_are_current() -> None:
    stub = Path(keywords.__file__).with_name("typed.pyi")
    assert stub.read_text(encoding="utf-8") == typed_stub(), "run: make typed"


def test_the_types_name_wider_arguments_of_python() -> None:
    lines = typed_stub().splitlines()
    assert "    init_from: TrainedGPT | str | PathLike[str] | None" in lines
    assert "    checkpoints: str | PathLike[str]" in lines
    assert '    activation: Literal["gelu", "gelu_erf", "relu", "relu2"]' in lines
    assert "    top_k: int | None" in lines


def test_train_takes_every_option_and_resume_those_that_may_change() -> None:
    options = {*field_help(RunConfig), *field_help(ModelConfig), *field_help(TrainConfig)}
    assert {*inspect.signature(train).parameters} == {"corpus", "text", "progress", *options}
    assert {"minutes", "steps", "device"} <= {*inspect.signature(resume).parameters}
    assert not {"n_layer", "preset"} & {*inspect.signature(resume).parameters}
    assert KEYWORDS["ShapingOptions"] == {SampleConfig: (*DISTRIBUTION_OPTIONS, "only")}


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
    @takes_options({"length": 12})
    def write(text: str, **options: Unpack[SampleOptions]) -> None:
        """Writes."""

    with pytest.raises(
        TypeError, match=r"write\(\) has no keyword 'lenght'; did you mean 'length'."
    ):
        write("a", lenght=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"no keyword 'x'\. It takes: text, length, .*, only$"):
        write("a", x=3)  # type: ignore[call-arg]
    shown = str(inspect.signature(write))
    assert shown.startswith("(text: str, *, length: int = 12, temperature: float = 0.8, ")
    assert shown.endswith('only: Literal["gpt", "counting"] | None = None) -> None')
