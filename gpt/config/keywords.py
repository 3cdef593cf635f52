"""Turns options into keywords of Python functions: typed, shown by help() and completed by
editors.

A function takes `**options: Unpack[SampleOptions]`. Type checkers and editors read that type in
typed.pyi, which `make typed` writes from KEYWORDS; `takes_options` gives the function the same
keywords at run time, with the defaults and help texts of the configurations.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from gpt.checks import checks_arguments
from gpt.config import (
    AttnConfig,
    EvalConfig,
    HeadsConfig,
    ModelConfig,
    RunConfig,
    SampleConfig,
    TrainConfig,
    WhyConfig,
)
from gpt.config.fields import field_help, field_types
from gpt.config.sample import DISTRIBUTION_OPTIONS
from gpt.config.train import CHANGEABLE

Function = TypeVar("Function", bound=Callable[..., Any])

#: The name of a keyword type -> its configurations; with ALL of their options, or those named.
ALL: tuple[str, ...] = ()
KEYWORDS: Mapping[str, Mapping[type, Collection[str]]] = {
    "SampleOptions": {SampleConfig: ("length", *DISTRIBUTION_OPTIONS, "seed", "only")},
    "ShapingOptions": {SampleConfig: (*DISTRIBUTION_OPTIONS, "only")},
    "AttnOptions": {AttnConfig: ALL},
    "HeadsOptions": {HeadsConfig: ALL},
    "WhyOptions": {WhyConfig: ALL},
    "EvalOptions": {EvalConfig: ALL},
    "TrainOptions": {RunConfig: ALL, ModelConfig: ALL, TrainConfig: ALL},
    "ResumeOptions": {RunConfig: ("minutes", "data", "device", "log"), TrainConfig: CHANGEABLE},
}
#: Keywords for which Python accepts more types than the command line.
_PATH = "str | PathLike[str]"
_WIDER = {"init_from": f"TrainedGPT | {_PATH} | None"}


class Unquoted(str):
    """A text that help() shows without quotes."""

    __repr__ = str.__str__


def keywords(name: str, defaults: Mapping[str, Any] | None = None) -> Iterator[inspect.Parameter]:
    """The keywords of a type in the order of their fields, each with its default and its
    annotation. defaults: name -> a default to show in place of the configuration's.
    """
    for config, names in KEYWORDS[name].items():
        kinds, helps = field_types(config), field_help(config)
        for field in fields(config):
            if field.name in (names or helps):
                yield inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=(defaults or {}).get(field.name, field.default),
                    annotation=Unquoted(_WIDER.get(field.name) or _spelled(kinds[field.name])),
                )


def _spelled(kind: Any) -> str:
    """A type as source code. The path of a folder may also be a str."""
    if type(None) in get_args(kind):
        return f"{_spelled(get_args(kind)[0])} | None"
    if get_origin(kind) is Literal:
        return f"Literal[{', '.join(map(json.dumps, get_args(kind)))}]"
    return _PATH if kind is Path else str(kind.__name__)


def takes_options(defaults: Mapping[str, Any] | None = None) -> Callable[[Function], Function]:
    """Decorates a function whose last parameter is `**options: Unpack[NAME]`, NAME in KEYWORDS.

    The function's signature and docstring then list these keywords. defaults: name -> a default to
    show in place of the configuration's. For any other keyword the function raises TypeError, which
    lists the keywords that it takes.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        *own, unpacked = signature.parameters.values()
        name = str(unpacked.annotation).removeprefix("Unpack[").removesuffix("]")
        options = [*keywords(name, defaults)]
        shown = [each.replace(annotation=Unquoted(each.annotation)) for each in own]
        checked = checks_arguments(function, [each.name for each in options])
        result = Unquoted(signature.return_annotation)
        checked.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*shown, *options], return_annotation=result
        )
        helps = {
            each: text
            for config in KEYWORDS[name]
            for each, text in field_help(config, flags=False).items()
        }
        lines = (f"    {each.name}: {helps[each.name]}" for each in options)
        checked.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), "", *lines])
        return checked

    return decorate


def typed_stub() -> str:
    """The text of typed.pyi: a TypedDict for each keyword type."""
    lines = [
        '"""The types of keywords of Python\'s functions. `make typed` writes this file from the',
        'configurations; a test compares both."""',
        "",
        "from os import PathLike",
        "from typing import Literal, TypedDict",
        "",
        "from gpt import TrainedGPT",
    ]
    for name in KEYWORDS:
        options = (f"    {each.name}: {each.annotation}" for each in keywords(name))
        lines += ["", f"class {name}(TypedDict, total=False):", *options]
    return "\n".join(lines) + "\n"
