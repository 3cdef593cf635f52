"""Makes options for Typer and for --config files from the fields of option classes. Translates
command lines of similar programs, such as nanoGPT, for error messages.

Importing this imports neither numpy nor torch.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from msgspec import Meta

from gpt.commands import COMMANDS, HELP_ALL, MODULES, console, show_help
from gpt.config import ModelConfig, SampleConfig, TrainConfig
from gpt.config.fields import (
    Field,
    fields_of,
    flag_of,
    only_fields,
    options_of,
    suggest,
    with_flags,
)
from gpt.config.train import DEFAULTS, from_toml
from gpt.errors import ConfigError, TextError
from gpt.words import short_repr

#: Classes whose options form a group in the help -> the group's title.
PANELS: Mapping[type, str] = {
    ModelConfig: "Model options",
    TrainConfig: "Train options",
    SampleConfig: "Sample options",
}
#: Options that an environment variable can set as well.
ENVIRONMENT = {"checkpoints": "GPTX_CHECKPOINTS", "data": "GPTX_DATA"}
#: Typed option -> the option in a --config file that it replaces.
INSTEAD = {"steps": "minutes", "minutes": "steps"}
SHORT = {"output": "-o", "interactive": "-i"}
USER_SOURCES = ("COMMANDLINE", "ENVIRONMENT")  # click's names of where users set options
KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
#: gptx's command -> its names in other programs.
THEIR_COMMANDS = {
    "train": "finetune fit train_from_file",
    "sample": "generate complete",
    "attn": "visualize",
    "eval": "evaluate perplexity",
}
#: gptx's option -> its names in other programs. "-": names of options that gptx does not need.
THEIR_OPTIONS = {
    "batch_size": "n_batch",
    "block_size": "seq_length context_length max_length",
    "checkpoints": "out_dir checkpoint_dir save_dir",
    "corpus": "input_txt input_file data_dir dataset file_name",
    "eval_interval": "checkpoint_every eval_val_every",
    "learning_rate": "lr",
    "length": "max_new_tokens max_gen_length max_length num_tokens",
    "n": "num_samples nsamples",
    "n_embd": "rnn_size hidden_size",
    "n_head": "n_heads num_heads",
    "n_layer": "num_layers rnn_layers n_layers",
    "precision": "dtype",
    "prompt": "start prefix primetext prime_text start_text",
    "repetition": "repetition_penalty",
    "run": "checkpoint run_name wandb_run_name",
    "steps": "max_iters max_steps num_steps",
    "temperature": "temp",
    "warmup_steps": "warmup_iters",
    "-": "always_save_checkpoint backend decay_lr dtype eval_iters gradient_accumulation_steps "
    "init_from log_interval lr_decay_iters print_every wandb_log wandb_project",
}
#: An option, and its value if it has one: --lr=1, --n 3, or -temperature 1 as in Lua Torch.
_OPTION = re.compile(r"(--?[A-Za-z][\w-]+|--n)(?:=(.*))?", re.DOTALL)
_SWITCH = re.compile(r"0|1|true|false", re.IGNORECASE)
_VALUE = re.compile(r"(?!--).*", re.DOTALL)


def show_all_options(context: typer.Context, value: bool) -> None:
    """The callback of --help-all: if `value` is true, prints all options and ends the command."""
    context.meta[HELP_ALL] = value
    show_help(context, None, value)


ConfigFile = Annotated[
    Path | None, typer.Option(help="TOML file with values for any of these options.")
]
HelpAll = Annotated[
    bool,
    typer.Option("--help-all", is_eager=True, callback=show_all_options, help="Show every option."),
]


def argument(help: str, shown: str = "") -> Meta:
    """Makes a field an argument, which has no flag. shown: the default that the help shows."""
    return Meta(description=help, extra={"argument": True, "shown": shown})


def make_callback(command: Callable[..., None]) -> Callable[..., None]:
    """Makes the function that Typer calls for a command. It makes an object of every option
    class, and calls the command with these objects.

    A command may set defaults itself. Its parameter then has a type such as `Annotated[dict[str,
    Any], ModelConfig, TrainConfig]`, and gets the options of these classes that the user has set.
    """
    hints = get_type_hints(command, include_extras=True)
    del hints["return"]
    owners = classes_of_options(command)
    options = {name: options_of(kind)[name] for name, kind in owners.items()}
    sets_defaults = any(get_origin(hint) is Annotated for hint in hints.values())

    def call(
        context: typer.Context, config: Path | None, help_all: bool = False, **values: Any
    ) -> None:
        typed = {
            name: options[name].checked(value)
            for name, value in values.items()
            if (source := context.get_parameter_source(name)) and source.name in USER_SOURCES
        }
        set_options = read_config(config, options) if config else {}
        for name in typed:
            set_options.pop(INSTEAD.get(name, name), None)
        set_options |= typed
        arguments: dict[str, Any] = {}
        for name, hint in hints.items():
            if get_origin(hint) is Annotated:
                kinds = get_args(hint)[1:]
                arguments[name] = {n: v for n, v in set_options.items() if owners[n] in kinds}
            else:
                arguments[name] = hint(**only_fields(hint, set_options))
        with console.print_logged_notes():
            command(**arguments)

    parameters = [
        inspect.Parameter("context", KEYWORD_ONLY, annotation=typer.Context),
        *(typer_parameter(options[name], kind) for name, kind in owners.items()),
        inspect.Parameter("config", KEYWORD_ONLY, annotation=ConfigFile, default=None),
    ]
    if sets_defaults:
        parameters.append(
            inspect.Parameter("help_all", KEYWORD_ONLY, annotation=HelpAll, default=False)
        )
    # Typer reads the signature of some functions and the annotations of others.
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__doc__ = command.__doc__
    return call


def classes_of_options(command: Callable[..., None]) -> dict[str, type]:
    """Option -> its class, for all options of a command. The options of base classes come last."""
    owners = dict[str, type]()
    for parameter, hint in get_type_hints(command, include_extras=True).items():
        kinds = get_args(hint)[1:] if get_origin(hint) is Annotated else (hint,)
        for kind in kinds if parameter != "return" else ():
            names = [name for base in kind.__mro__ for name in inspect.get_annotations(base)]
            owners |= {name: kind for name in names if name in options_of(kind)}
    return owners


def typer_parameter(field: Field, kind: type) -> inspect.Parameter:
    """Makes a parameter for Typer from a field of an option class."""
    several = field.type == tuple[str, ...]
    default = None if several else field.default
    shown = str(DEFAULTS[field.name]) if field.name in DEFAULTS else field.shown
    has_negative = kind in PANELS and field.type is bool
    hidden = default in (None, "") or (default is False and not has_negative)
    show_default = with_flags(shown) if shown else not hidden
    texts: dict[str, Any] = {"help": with_flags(field.help), "show_default": show_default}
    about: Any
    if any(note.extra and "argument" in note.extra for note in field.notes):
        about = typer.Argument(**texts)
    else:
        flag = flag_of(field.name)
        long = f"{flag}/--no-{flag[2:]}" if has_negative else flag
        names = filter(None, (SHORT.get(field.name), long))
        variable, panel = ENVIRONMENT.get(field.name), PANELS.get(kind)
        about = typer.Option(*names, envvar=variable, rich_help_panel=panel, **texts)
    annotation = list[str] if several else field.type
    if default is None:
        annotation = annotation | None
    return inspect.Parameter(
        field.name,
        KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is MISSING else default,
        annotation=Annotated[annotation, about],
    )


def read_config(path: Path, options: Mapping[str, Field]) -> dict[str, Any]:
    """Reads a --config file: option -> value.

    The file names options as --help does, without the dashes in front: n_layer or n-layer for
    --n-layer. Raises ConfigError for an unknown name and for a value that the option refuses.
    """
    where = f"--config {path}"
    try:
        stored = from_toml(console.read_text(os.path.abspath(path)), str(path))
    except TextError as error:
        raise ConfigError(f"--config: {error}") from None
    values = {}
    for spelling, value in stored.items():
        name = spelling.replace("-", "_")
        if name not in options:
            advice = suggest(name, options)
            raise ConfigError(f"{where}: there is no option {short_repr(spelling)}{advice}")
        if options[name].type is str and type(value) is int:
            value = str(value)  # the number of a step, a layer or a head
        try:
            values[name] = options[name].checked(value)
        except ConfigError as error:
            raise ConfigError(f"{where}: {spelling}: {error.reason}") from None
    return values


def translate_command_line(words: Sequence[str]) -> str | None:
    """Translates a command line of nanoGPT, char-rnn, textgenrnn, gpt-2-simple or a similar program
    into one of gptx. None if no name in it is another program's, or if a name is unknown.
    """
    first, *left = words or [""]
    theirs = first.replace("-", "_")
    command = next(
        (name for name, names in THEIR_COMMANDS.items() if theirs in names.split()), first
    )
    if command not in COMMANDS:
        return None
    module = import_module(f"gpt.commands.{MODULES.get(command, command)}")
    classes = classes_of_options(module.command)
    ours, has_theirs = ["gptx", command], command != first
    while left:
        word = left.pop(0)
        option = _OPTION.fullmatch(word)
        name = option[1].strip("-").replace("-", "_") if option else ""
        if not option or name.removeprefix("no_") in classes.keys() - {name}:
            ours.append(word)
            continue
        if name not in classes:
            names = (
                ours
                for ours, theirs in THEIR_OPTIONS.items()
                if name in theirs.split() and (ours in classes or ours == "-")
            )
            name = next(names, "")
            if not name:
                return None
        flag, value = flag_of(name), option[2]
        field = fields_of(classes[name])[name] if name in classes else None
        is_switch = field is None or field.type is bool
        has_theirs |= option[1].replace("_", "-") != flag or (is_switch and value is not None)
        has_value = _SWITCH if field and is_switch else _VALUE
        if value is None and left and has_value.fullmatch(left[0]):
            value = left.pop(0)
        if field and not is_switch:
            ours += [value or ""] if name == "corpus" else [flag, value or ""]
        elif field and str(value).lower() not in ("false", "0"):
            ours.append(flag)
        elif field and classes[name] in PANELS:
            ours.append(f"--no-{flag[2:]}")
    return shlex.join(ours) if has_theirs else None
