"""Defines the option classes that several commands share. Makes Typer's options from the fields of
option classes, and reads --config files. Translates command lines of similar programs, such as
nanoGPT, for error messages.

Importing this module imports neither numpy nor torch.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from importlib import import_module
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
from msgspec import Meta

from gpt.commands import COMMANDS, HELP_ALL, MODULES, console, show_help
from gpt.config import ModelConfig, SampleConfig, TrainConfig
from gpt.config.fields import (
    Field,
    Options,
    fields_of,
    flag_of,
    only_fields,
    option,
    options_of,
    suggest,
    with_flags,
)
from gpt.config.model import OnUnknown
from gpt.config.train import DEFAULTS, ESCAPES, Checkpoints, OnDevice, from_toml, unescaped
from gpt.devices import driver_lists_gpu
from gpt.errors import ConfigError, NumericsError, TextError
from gpt.words import short_repr

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT
    from gpt.show.result import Check, Result
    from gpt.show.terminal import Screen

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
Form = TypeVar("Form", bound=str)

TORCH_PAYS = 10**10  # parameters × characters, above which a GPU is worth importing torch
PAGE_MARK = b"gptx</title>"  # in the first bytes of a page that gptx wrote
UTF_8 = ("utf-8", "utf8", "cp65001")  # names that stdout's encoding may have
STDOUT = Path("-")  # the value of -o for stdout


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


@dataclass(frozen=True, kw_only=True)
class TextOptions(Options):
    text: Annotated[
        str | None, argument(f"Text to read; - reads stdin. {ESCAPES}", "a validation excerpt")
    ] = None
    file: Annotated[Path | None, option("File with the text.")] = None

    def read(self, encoding: str) -> str | None:
        """The text, or None if neither option is set. Raises ConfigError, TextError."""
        return read_one_text({"TEXT": self.text, "--file": self.file}, encoding)


@dataclass(frozen=True, kw_only=True)
class OutputOptions(Options):
    """How to write a result, and to which file. Only a field with a help text is an option. A
    subclass can give a help text to any of the fields.
    """

    json: Annotated[bool, option("JSON on stdout.")] = False
    ascii: bool = False
    color: Literal["auto", "always", "never"] = "auto"
    output: Path | None = None

    @property
    def path(self) -> Path | None:
        """The file to write; None for stdout."""
        return None if self.output == STDOUT else self.output

    def output_format(self, forms: Sequence[Form]) -> Form | Literal["json"]:
        """The format of the output: "json" with --json, otherwise the format that the ending of
        --output names; "text" without an ending. Raises ConfigError for an unknown ending.
        """
        if self.json:
            return "json"
        endings = {".txt" if form == "text" else f".{form}": form for form in forms}
        ending = self.path.suffix.lower() if self.path else ""
        if ending not in ("", *endings):
            raise ConfigError("output", f"{ending} is not one of {', '.join(endings)}")
        return endings[ending or ".txt"]

    def screen(self, all: bool = False) -> Screen:
        """A screen as wide as the terminal, with the signs that the terminal's encoding has. A file
        may have any width and any signs. all: shows the long form of a result.
        """
        from gpt.show.terminal import Screen

        signs = self.ascii or not (self.path or str(sys.stdout.encoding).lower() in UTF_8)
        width = None if self.path else console.terminal_width(sys.stdout)
        color = "never" if self.path and self.color == "auto" else self.color
        return Screen(width, signs, color, all)

    def write_result(
        self, result: Result, origin: Mapping[str, Any] | None = None, all: bool = False
    ) -> None:
        """Writes a drawing of a result or, with --json, one line with the result and its origin."""
        if self.json:
            from gpt.show.result import to_json

            text = to_json(result, origin)
        else:
            from gpt.show.terminal import draw

            text = draw(result, self.screen(all))
        console.write_bytes(text.encode(), self.path)


@dataclass(frozen=True, kw_only=True)
class DrawingOptions(OutputOptions):
    ascii: Annotated[bool, option("Draw labels and signs in ASCII.")] = False
    color: Annotated[Literal["auto", "always", "never"], option("Colours.")] = "auto"


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions(Options):
    run: Annotated[
        str | None,
        option(
            "A run's name, or the path of a run or a model file.",
            "the pinned run, or else the newest",
        ),
    ] = None
    step: Annotated[str, option("best, last, or the number of a saved step.")] = "best"
    checkpoints: Checkpoints = Path("checkpoints")

    def open(self) -> TrainedGPT:
        """Opens the checkpoint. If there are several runs and --run names none, prints the name of
        the run. Raises CheckpointError, ConfigError.
        """
        from gpt.interface.trained import find_model
        from gpt.storage.run import all_runs, pinned_run

        model = find_model(self.checkpoints, self.run, self.step)
        if self.run is None and len(all_runs(self.checkpoints)) > 1:
            how = "the newest" if pinned_run(self.checkpoints) is None else "pinned"
            console.say(f"run: {model.name}, {how} (--run NAME opens another)")
        return model


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(CheckpointOptions):
    """The checkpoint that reads a text, and how it reads the text."""

    unknown: OnUnknown = "fold"
    encoding: Annotated[
        str,
        option("Encoding of a file that is not UTF-8 and has no byte order mark, such as cp1252."),
    ] = "utf-8"

    def text_for_model(self, model: TrainedGPT, text: str | None, truncate: bool = False) -> str:
        """The text in characters that the model knows. If the text is None, takes an example and
        quotes it in a note. truncate: keeps only the last block_size characters. Raises TextError.
        """
        model.check_probe()  # raises an error before a note is printed
        text = model.text_or_example(text, name="TEXT")
        return model.known_text(text, self.unknown, truncate)


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(ReadingOptions):
    """The checkpoint that reads a text, and the device that computes."""

    device: OnDevice = "auto"

    def open_on_device(self, windows: int = 1, characters: int = 0) -> TrainedGPT:
        """Opens the checkpoint on the device of --device. "auto" takes the fastest device for this
        number of windows or characters. If there is a GPU, a line says whether it computes.
        """
        model = self.open()
        if self.device != "auto":
            return model.on(self.device)
        characters = characters or windows * model.config.block_size
        if model.config.parameters() * characters < TORCH_PAYS:
            if driver_lists_gpu():
                why = "for so little work, faster than the GPU; --device cuda uses the GPU"
                console.say(f"device: cpu ({why})")
            return model
        model = model.on("auto")
        if model.device != "cpu":
            console.say(f"device: {model.device} (--device cpu computes with numpy)")
        return model


def note_on_counting(model: TrainedGPT) -> None:
    """Prints that the output shows the GPT alone, if the model also uses counting."""
    if model.config.counting:
        console.say("note: this is the GPT alone; sample, next and eval also use counting")


def default_page_path(name: str, option: str) -> Path:
    """The path of the page that a command writes without -o. Raises ConfigError if another program
    wrote the file at this path.
    """
    path = Path(name)
    is_page = os.path.isfile(path) and PAGE_MARK in path.read_bytes()[:4096]
    message = f"{option}: {path} is not a page of gptx; name another file with -o"
    refuse_if(os.path.lexists(path) and not is_page, message)
    return path


def open_in_browser(path: Path) -> None:
    """Opens a page in the browser, and prints its path on stderr."""
    import webbrowser

    is_open = webbrowser.open(path.resolve().as_uri())
    console.say(f"page: {path}" + ("" if is_open else " (no browser found to open it)"))


def refuse_if(wrong: bool, message: str) -> None:
    """Raises ConfigError with this message if `wrong` is true."""
    if wrong:
        raise ConfigError(message)


def require_passed_checks(checks: Iterable[Check]) -> None:
    """Raises NumericsError if a check has failed."""
    if names := ", ".join(sorted({check.name for check in checks if not check.passed})):
        raise NumericsError(f"a check failed: {names}; do not trust these numbers")


def read_one_text(texts: Mapping[str, str | Path | None], encoding: str) -> str | None:
    """Reads the text of the only option that has a value. A Path names a file, and "-" means
    standard input. Any other value is the text itself; escapes such as \\n are resolved.

    texts: option -> its value. encoding: that of the file. Raises ConfigError, TextError.
    """
    sources = {name: value for name, value in texts.items() if value is not None}
    refuse_if(len(sources) > 1, f"{' and '.join(sources)}: give the text once")
    source = next(iter(sources.values()), None)
    if isinstance(source, Path) or source == "-":
        return console.read_text(str(source), encoding=encoding)
    if source is not None and os.path.isfile(source):
        console.say(f"note: the text is “{source}” itself; --file reads the file")
    return None if source is None else unescaped(source)


def stops_for_model(model: TrainedGPT, stops: Sequence[str]) -> tuple[str, ...]:
    """Resolves the escapes in stop texts, and folds the texts. Raises ConfigError, TextError."""
    refuse_if("" in stops, "--stop: an empty text would stop before anything is written")
    return tuple(model.known_text(unescaped(stop)) for stop in stops)


def make_callback(command: Callable[..., None]) -> Callable[..., None]:
    """Makes the function that Typer calls for a command. This function makes an object of every
    option class, and calls the command with these objects.

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
            name: options[name].convert(value)
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
            values[name] = options[name].convert(value)
        except ConfigError as error:
            raise ConfigError(f"{where}: {spelling}: {error.reason}") from None
    return values


def translate_command_line(words: Sequence[str]) -> str | None:
    """Translates a command line of nanoGPT, char-rnn, textgenrnn, gpt-2-simple or a similar program
    into one of gptx. Returns None if gptx has every name in the line, or if a name is unknown.
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
