"""Commands as classes whose annotations are options, and --config files that set options.

Importing this imports neither numpy nor torch.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from gpt.commands import console
from gpt.config import ModelConfig, SampleConfig, TrainConfig
from gpt.config.fields import (
    KINDS,
    Range,
    check_size,
    field_notes,
    field_types,
    flag_of,
    with_flags,
)
from gpt.config.train import Checkpoints
from gpt.errors import ConfigError, TextError
from gpt.words import short_repr

KEYWORD_ONLY, REQUIRED = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty

#: Configurations whose options form a group in the help -> the group's title.
PANELS = {
    ModelConfig: "Model options",
    TrainConfig: "Train options",
    SampleConfig: "Sample options",
}
#: Options that an environment variable can set as well.
ENVIRONMENT = {"checkpoints": "GPTX_CHECKPOINTS", "data": "GPTX_DATA"}

#: Type of an option -> types of its value in TOML; for other types, those of a text.
TOML: dict[Any, tuple[type, ...]] = {bool: (bool,), int: (int,), float: (int, float)}


def use_config_file(context: typer.Context, path: Path | None) -> Path | None:
    """--config: the file's values become the command's defaults.

    The names in the file are those of --help without the leading dashes: n_layer and n-layer are
    --n-layer, json is --json. Raises ConfigError for any other name and for a value of the wrong
    type. `train` also accepts what a run records (RECORDED).
    """
    if path is None or context.resilient_parsing:
        return path
    from gpt.storage.config_file import LONGEST_FILE, RECORDED, from_toml

    kinds = get_type_hints(inspect.unwrap(context.command.callback))  # type: ignore[arg-type]
    names = {
        python_name(spelling): parameter.name
        for parameter in context.command.params
        for spelling in parameter.opts
        if parameter.name in kinds and parameter.name != "config"
    }
    try:
        text = console.read_text(os.path.abspath(path), LONGEST_FILE)
        stored = from_toml(text, str(path))
    except TextError as error:
        raise ConfigError(f"--config: {error}") from None
    values = {}
    for spelling, value in stored.items():
        recorded = spelling in RECORDED and context.info_name == "train"
        name = spelling if recorded else names.get(python_name(spelling))
        if name is None:
            raise ConfigError(f"--config {path}: there is no option {short_repr(spelling)}")
        kind = RECORDED[spelling][0] if recorded else kinds[name]
        values[name] = _of_kind(value, kind, f"--config {path}: {spelling}")
    context.default_map = values
    return path


def python_name(spelling: str) -> str:
    """The name of an option in config files and Python: n_layer."""
    return spelling.lstrip("-").replace("-", "_")


def _of_kind(value: object, kind: Any, where: str) -> object:
    """Converts a TOML value for an option of this type; a text ("--step") may be a whole number.
    Raises ConfigError for a value of the wrong type.
    """
    if type(None) in get_args(kind):
        kind = get_args(kind)[0]
    if get_origin(kind) is list:
        texts: Any = value if isinstance(value, list) else [None]
        fits, expected = all(isinstance(each, str) for each in texts), "a list of texts"
    else:
        kinds, expected = TOML.get(kind, (str, int)), KINDS.get(kind, "a text")
        fits = type(value) in kinds
        value = str(value) if fits and str in kinds else value
    if not fits:
        raise ConfigError(f"{where} = {short_repr(value)} is not {expected}")
    if kind is Path and "\0" in str(value):
        raise ConfigError(f"{where} = {short_repr(value)}: a file's name has no NUL character")
    return value


class Command:
    """Base of commands: annotations are options, the docstring is the help, `execute` does the
    work.

    An attribute of type `Annotated[kind, about]` is an option. about: the help of an option with
    the attribute's name. If the help shows another default, that is a third argument, and the Range
    of a number is the last one. Or about is the result of typer.Option or typer.Argument; or of
    options_of(…): the attribute then holds the options that the user has set, except those that are
    attributes themselves. An attribute without a default is required.
    """

    context: typer.Context
    checkpoints: Checkpoints = Path("checkpoints")
    config: Annotated[
        Path | None,
        typer.Option(
            is_eager=True,
            callback=use_config_file,
            help="TOML file with values for any of these options.",
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False

    def execute(self) -> None:
        raise NotImplementedError


def options_of(
    *configs: type, defaults: Mapping[str, Any] | None = None, only: Collection[str] | None = None
) -> dict[str, inspect.Parameter]:
    """Options for the documented fields of configurations. The value of an option is None if the
    user does not set it.

    The help shows the default of the configuration's field, or the one in `defaults`. only: the
    names of the fields that become options of this command; None: all.
    """
    parameters = {}
    for config in configs:
        kinds, notes, panel = field_types(config), field_notes(config), PANELS.get(config)
        for field in fields(config):
            name = field.name
            if name in (notes if only is None else only):
                help, *shown = notes[name]
                default = (defaults or {}).get(name, shown[0] if shown else field.default)
                hidden = default in (None, "") or (default is False and not panel)
                option = _option(name, kinds[name], help, not hidden and str(default), panel)
                parameters[name] = _parameter(name, kinds[name] | None, option, None)
    return parameters


def _option(name: str, kind: Any, help: str, show: bool | str, panel: str | None = None) -> Any:
    """Makes an option of Typer. show: whether the help shows its default, or what to show as the
    default. panel: the title of its group; in a group, an option that is on or off has a flag for
    each.
    """
    flag = flag_of(name)
    return typer.Option(
        f"{flag}/--no-{flag[2:]}" if panel and kind is bool else flag,
        help=with_flags(help),
        envvar=ENVIRONMENT.get(name),
        rich_help_panel=panel,
        show_default=with_flags(show) if isinstance(show, str) else show,
    )


def make_callback(command: type[Command]) -> Callable[..., None]:
    """The function that Typer calls for a command; the options of its base classes come last."""

    def call(**values: Any) -> None:
        for name, value in values.items():
            check_size(name, value)
            if name in ranges and value is not None:
                ranges[name].check(name, value)
        for name, options in groups.items():
            taken = {option: values.pop(option) for option in options}
            values[name] = {name: value for name, value in taken.items() if value is not None}
        made = command()
        vars(made).update(values)
        made.execute()

    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, dict[str, inspect.Parameter]] = {}
    ranges: dict[str, Range] = {}
    names = (name for each in command.__mro__ for name in inspect.get_annotations(each))
    for name in dict.fromkeys(names):
        kind = hints[name]
        if get_origin(kind) is Annotated:
            kind, about, *more = get_args(kind)
            if more and isinstance(more[-1], Range):
                ranges[name] = more.pop()
            if isinstance(about, dict):
                groups[name] = {each: it for each, it in about.items() if each not in hints}
                parameters += groups[name].values()
                continue
            default = getattr(command, name, REQUIRED)
            if isinstance(about, str):
                about = _option(name, kind, about, more[0] if more else True)
            parameters.append(_parameter(name, kind, about, default))
    context = inspect.Parameter("context", KEYWORD_ONLY, annotation=typer.Context)
    # Typer reads the signature of some functions and the annotations of others.
    call.__annotations__ = {each.name: each.annotation for each in (context, *parameters)}
    call.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
    call.__doc__ = command.__doc__
    return call


def _parameter(name: str, kind: Any, about: Any, default: Any) -> inspect.Parameter:
    annotation: Any = Annotated[kind, about]
    return inspect.Parameter(name, KEYWORD_ONLY, default=default, annotation=annotation)
