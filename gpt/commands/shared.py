"""What several commands share: options, --config files, the checkpoint and the text to work on.

Importing this imports neither numpy nor torch.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import typer

from gpt.commands import console
from gpt.config.fields import field_help, field_types, flag_of
from gpt.devices import Device
from gpt.errors import ConfigError, TextError
from gpt.storage.config_file import from_toml

if TYPE_CHECKING:
    from gpt.loading import Saved
    from gpt.storage.model_file import StoredModel
    from gpt.trained import TrainedGPT

TORCH_PAYS = 10**10  # parameters × characters from which a GPU is worth importing torch for

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
        plain(spelling): parameter.name
        for parameter in context.command.params
        for spelling in parameter.opts
        if parameter.name in kinds and parameter.name != "config"
    }
    try:
        stored = from_toml(console.read_text(os.path.abspath(path)), str(path))
    except TextError as error:
        raise ConfigError(f"--config: {error}") from None
    values = {}
    for spelling, value in stored.items():
        name = names.get(plain(spelling)) or names.get(RENAMED.get(plain(spelling), ""))
        if name is None:
            raise ConfigError(f"--config {path}: there is no option {spelling!a}")
        now = "" if plain(spelling) in names else f" (now {RENAMED[plain(spelling)]})"
        values[name] = _of_kind(value, kinds[name], f"--config {path}: {spelling}{now}")
    context.default_map = values
    return path


def plain(spelling: str) -> str:
    """An option's name as config files and Python spell it: n_layer."""
    return spelling.lstrip("-").replace("-", "_")


#: Type of an option -> types of its value in TOML, and what to call it; all others are texts.
_TOML: dict[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
}


def _of_kind(value: object, kind: Any, where: str) -> object:
    """A TOML value for an option of this type; a whole number is valid as a text ("--step").

    Raises ConfigError for one of another type.
    """
    if type(None) in get_args(kind):
        kind = get_args(kind)[0]
    if get_origin(kind) is list:
        texts: Any = value if isinstance(value, list) else [None]
        fits, expected = all(isinstance(each, str) for each in texts), "a list of texts"
    else:
        kinds, expected = _TOML.get(kind, ((str, int), "a text"))
        fits = type(value) in kinds
        value = str(value) if str in kinds else value
    if not fits:
        raise ConfigError(f"{where} = {value!r} is not {expected}")
    if kind is Path and "\0" in str(value):
        raise ConfigError(f"{where} = {value!r}: a file's name has no NUL character")
    return value


def output_option(help: str) -> Any:
    """-o, --output: a file, or None for stdout, whose name is "-"."""

    def file(path: Path | None) -> Path | None:
        return None if path == Path("-") else path

    return typer.Option("-o", "--output", help=help, callback=file)


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
TextFile = Annotated[Path | None, typer.Option("--file", help="File with the text.")]
Digits = Annotated[int, typer.Option("--digits", help="Digits after the point.", min=0, max=9)]
Ascii = Annotated[bool, typer.Option("--ascii", help="Labels and signs in ASCII.")]
Color = Annotated[Literal["auto", "always", "never"], typer.Option(help="Colours.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        is_eager=True,
        callback=use_config_file,
        help="TOML file with values for any of these options.",
    ),
]


def open_run(
    checkpoints: Path,
    run: str | None,
    step: str,
    device: str = "cpu",
    characters: int = 0,
    check: Callable[[StoredModel], None] | None = None,
) -> Saved:
    """The chosen checkpoint. "auto" takes a GPU only for work longer than importing torch.

    check: may raise a GptxError for input that does not fit the model, before any note is printed.
    """
    from gpt.loading import find
    from gpt.storage.runs import all_runs

    saved = find(checkpoints, run, step)
    if check:
        check(saved.stored)
    if run is None and len(all_runs(checkpoints)) > 1:
        console.say(f"run: {saved.name}, the newest (--run takes another)")
    tell_if_unvouched(saved.stored)
    if device == "auto" and saved.stored.config.parameters() * characters < TORCH_PAYS:
        device = "cpu"
    return replace(saved, device=device)


def tell_if_unvouched(stored: StoredModel) -> None:
    """Prints a note about a model file without a digest, in which damage may go unnoticed."""
    if not stored.vouched:
        console.say(
            f"note: {stored.source} was written by an older gptx and has no digest, so gptx cannot "
            "detect every change in it; if its run still exists, open that: the run has a digest"
        )


def one_text(given: Mapping[str, str | Path | None]) -> str | None:
    """The text that was given in one of several ways, read if it is a file or stdin.

    given: option -> its value. Raises ConfigError for two of them, TextError.
    """
    sources = {name: value for name, value in given.items() if value is not None}
    if len(sources) > 1:
        raise ConfigError(f"{' and '.join(sources)}: give the text once")
    for value in sources.values():
        is_file = isinstance(value, Path) or value == "-"
        return console.read_text(str(value)) if is_file else str(value)
    return None


def known_text(model: TrainedGPT, text: str, unknown: str, name: str = "") -> str:
    """The text without the characters that the model does not know; a note on stderr counts them.

    name: names the text in the note, where there are several. Raises TextError if unknown="error".
    """
    known = model.vocabulary.decode(model.vocabulary.encode(text, unknown))
    if len(known) < len(text):
        from gpt.view.characters import quoted

        names = [quoted(each, not console.speaks_utf8()) for each in model.vocabulary.unknown(text)]
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        of = f"{name}: " if name else ""
        console.say(
            f"note: {of}left out {len(text) - len(known):,} of {len(text):,} characters, which the "
            f"model does not know: {' '.join(names[:8])}{more}"
        )
    return known


def checked_stops(model: TrainedGPT, stops: Sequence[str], name: str = "--stop") -> tuple[str, ...]:
    """The stop texts; notes name those that cannot occur. Raises ConfigError for an empty one."""
    for stop in stops:
        if not stop:
            raise ConfigError(f"{name}: an empty text would stop before anything is written")
        if missing := model.vocabulary.unknown(stop):
            console.say(
                f"note: {name} {stop!r} can never occur: the model does not know {missing[0]!r}"
            )
    return tuple(stops)


def text_or_example(model: TrainedGPT, given: Mapping[str, str | Path | None]) -> str:
    """The given text, or else the validation split's first line, which a note then quotes."""
    text = one_text(given)
    if text is None:
        text = model.example()
        console.say(f'no TEXT given; from the validation split: "{text}"')
    return text
