"""The options of the commands: those that several share, and those that the dataclasses give."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import typer

from gpt.commands.console import read_text
from gpt.config.fields import field_help, field_types, flag_of
from gpt.devices import Device
from gpt.errors import ConfigError, TextError
from gpt.storage.config_file import from_toml

#: Former name -> name of an option. Config files may have the former one.
RENAMED = {
    "precision": "digits",
    "prompt_file": "file",
    "window": "truncate",
    "windows": "window_order",
}
Command = TypeVar("Command", bound=Callable[..., Any])


def options_from(
    *configs: type,
    defaults: Mapping[str, Any] | None = None,
    only: Collection[str] | None = None,
) -> Callable[[Command], Command]:
    """Gives a command `**given` an option for every documented field of the dataclasses.

    An option that is not given is None, so that presets and config files can stand behind it. The
    help shows what it then is: the field's own default, or that in `defaults`. `only`: of these
    fields.
    """

    def decorate(command: Command) -> Command:
        hints = get_type_hints(command, include_extras=True)
        signature = inspect.signature(command)
        parameters = [
            parameter.replace(annotation=hints[name])
            for name, parameter in signature.parameters.items()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        for config in configs:
            panel = config.__name__.replace("Config", " options")
            kinds, helps = field_types(config), field_help(config)
            names = helps if only is None else only
            for field in (field for field in fields(config) if field.name in names):
                flag = flag_of(field.name)
                default = (defaults or {}).get(field.name, field.default)
                option = typer.Option(
                    f"{flag}/--no-{flag[2:]}" if kinds[field.name] is bool else flag,
                    help=helps[field.name],
                    rich_help_panel=panel,
                    show_default=False if default is None else str(default),
                )
                annotation: Any = Annotated[kinds[field.name] | None, option]
                kind = inspect.Parameter.KEYWORD_ONLY
                parameters.append(
                    inspect.Parameter(field.name, kind, default=None, annotation=annotation)
                )
        # Typer reads the signature of some functions and the annotations of others.
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return decorate


def only_given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that the user, or a config file, has set."""
    return {name: value for name, value in options.items() if value is not None}


def typed(context: typer.Context) -> dict[str, Any]:
    """The options that stand on the command line itself, not in a config file."""
    return {
        name: value
        for name, value in context.params.items()
        if (source := context.get_parameter_source(name)) and source.name == "COMMANDLINE"
    }


def use_config_file(context: typer.Context, path: Path | None) -> Path | None:
    """--config: the file's values become the command's defaults.

    Its names are those of --help without the leading dashes: n_layer and n-layer are --n-layer,
    json is --json; former names are read, too. Raises ConfigError for any other name, and for a
    value of another type.
    """
    if path is None or context.resilient_parsing:
        return path
    kinds = get_type_hints(inspect.unwrap(context.command.callback))  # type: ignore[arg-type]
    names = {
        _plain(spelling): parameter.name
        for parameter in context.command.params
        for spelling in parameter.opts
        if parameter.name in kinds and parameter.name != "config"
    }
    values = {}
    for spelling, value in _read_toml(path).items():
        plain = _plain(spelling)
        name = names.get(plain) or names.get(RENAMED.get(plain, ""))
        if name is None:
            raise ConfigError(f"--config {path}: there is no option {spelling!a}")
        values[name] = _of_kind(value, kinds[name], f"--config {path}: {spelling}")
    context.default_map = values
    return path


def renamed(spelling: str, command: Any) -> str:
    """The option of the command that had this name formerly, or ""."""
    new = flag_of(RENAMED.get(_plain(spelling), ""))
    return new if any(new in each.opts for each in command.params) else ""


def _plain(spelling: str) -> str:
    return spelling.lstrip("-").replace("-", "_")


def _of_kind(value: object, kind: Any, where: str) -> object:
    """A TOML value for an option of this type; a whole number is valid as a text ("--step").

    Raises ConfigError for one of another type.
    """
    if type(None) in get_args(kind):
        kind = get_args(kind)[0]
    if get_origin(kind) is list:
        fits, expected = isinstance(value, list), "a list of texts"
        fits = fits and all(isinstance(each, str) for each in value)  # type: ignore[attr-defined]
    elif kind is bool:
        fits, expected = isinstance(value, bool), "true or false"
    elif kind is int:
        fits, expected = type(value) is int, "a whole number"
    elif kind is float:
        fits, expected = type(value) in (int, float), "a number"
    else:
        fits, expected = type(value) in (str, int), "a text"
        value = str(value)
    if not fits:
        raise ConfigError(f"{where} = {value!r} is not {expected}")
    if kind is Path and "\0" in str(value):
        raise ConfigError(f"{where} = {value!r}: a file's name has no NUL character")
    return value


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return from_toml(read_text(os.path.abspath(path)), str(path))
    except TextError as error:
        raise ConfigError(f"--config: {error}") from None


Checkpoints = Annotated[
    Path, typer.Option("--checkpoints", envvar="GPTX_CHECKPOINTS", help="Folder of the runs.")
]
Data = Annotated[Path, typer.Option("--data", envvar="GPTX_DATA", help="Folder of the corpora.")]
RunName = Annotated[
    str | None,
    typer.Option(
        "--run", help="A run's name, or the path of a run or a model file.", show_default="newest"
    ),
]
Step = Annotated[str, typer.Option(help="best, last, or a kept step's number.")]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]
OnDevice = Annotated[Device, typer.Option(help="Where to compute.")]
Unknown = Annotated[
    Literal["error", "skip"], typer.Option(help="Characters that the model does not know.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        is_eager=True,
        callback=use_config_file,
        help="TOML file with values for any of these options.",
    ),
]
