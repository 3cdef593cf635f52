"""The program `gptx`: its list of commands, its standard streams, exit codes and signals.

Each command has a file in this folder. Only commands print, and only through console.py. A command
imports numpy and torch only when it runs.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys

try:
    import signal
    import traceback
    from collections.abc import Callable, Iterable, Sequence
    from importlib import import_module
    from typing import Annotated, Any

    from gpt.errors import exit_on_interrupt, raise_first_interrupt

    raise_first_interrupt()  # the modules below take long to load

    import typer
    from typer.core import TyperCommand, TyperGroup

    from gpt.commands import console
    from gpt.devices import limit_blas_threads
    from gpt.errors import GptxError, InstallationError
    from gpt.words import INSTALL, pluralize
except KeyboardInterrupt:  # while modules load, there is nothing to save
    os._exit(130)
except ModuleNotFoundError as missing:  # before any command can report errors
    from gpt.errors import InstallationError
    from gpt.words import INSTALL

    advice = f"activate the environment that has gptx, or install it, {INSTALL}"
    print(f"gptx: error: there is no package {missing.name}; {advice}", file=sys.stderr)
    sys.exit(InstallationError.exit_code)

__all__ = ["COMMANDS", "GROUPS", "main", "make_program"]

#: Group of commands -> command -> the first sentence of its help, in the order of --help.
GROUPS = {
    "Start": {
        "train": "Train a model on a text; keep its best checkpoint and the two newest.",
        "sample": "Continue a prompt, character by character.",
        "attn": "Show what attention heads do with a text, stage by stage, and check every number.",
    },
    "Look further": {
        "heads": "Show what every head looks at, and what the model loses without it.",
        "why": "Show how much each part of the model adds to the next character's logit.",
        "next": "Show what the model expects next, and what temperature and filters change.",
        "eval": "Measure how well a model predicts a text: nats and bits per character, "
        "perplexity.",
    },
    "Keep and share": {
        "runs": "List the runs, or show one run's losses and samples.",
        "live": "Write the model into an HTML page that shows what every head does as you type.",
        "import": "Turn a character model that nanoGPT has trained into a run.",
        "export": "Write a model for other programs: a folder that Hugging Face's transformers "
        "opens.",
    },
}
COMMANDS = {name: help for group in GROUPS.values() for name, help in group.items()}
#: Commands whose module has another name.
MODULES = {"eval": "evaluate", "import": "import_model"}
#: The number of new objects after which Python looks for unused cycles. With Python's own number,
#: which is below 2,000, importing torch takes a fifth longer (benchmarks/LOG.md).
COLLECT_AFTER = 100_000
#: Command -> the model and training options that --help shows, in this order. --help-all shows all.
FIRST = {
    "train": (
        *("n_layer", "n_head", "n_embd", "block_size", "dropout", "batch_size", "learning_rate"),
        *("steps", "min_lr", "warmup_steps", "weight_decay", "precision", "eval_interval"),
        *("seed", "keep_all"),
    )
}
HELP_ALL = "gptx.help_all"  # key in the meta of click's context: whether --help-all was typed

# The base class of usage errors. Typer 0.26 and later contains its own click; older versions use
# the installed click.
ClickException: type[Exception] = typer.BadParameter.__mro__[2]


def make_program(names: Iterable[str] = COMMANDS, *, only_listed: bool = False) -> typer.Typer:
    """Makes the program with these commands. only_listed: without their options, for a list."""
    app = typer.Typer(
        name="gptx",
        cls=ProgramWithGroupedHelp,
        help="Train a character-level GPT on any text, sample from it, see what its heads do.",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # rich's tables would cut the names of options
    )
    app.callback(invoke_without_command=True)(gptx)
    for name in names:
        function: Callable[..., None] = lambda: None  # noqa: E731
        if not only_listed:
            from gpt.commands.options import make_callback

            module = import_module(f"gpt.commands.{MODULES.get(name, name)}")
            function = make_callback(module.command)
        app.command(
            name,
            cls=CommandWithGroupedHelp,
            short_help=COMMANDS[name],  # without it, a narrow terminal would cut the sentence
            context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},
        )(function)
    return app


def gptx(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show versions, device and threads.")
    ] = False,
) -> None:
    """Runs before every command."""
    if version:
        console.write(version_text())
        raise typer.Exit
    if is_later_rank() and context.invoked_subcommand != "train":
        raise typer.Exit  # only the first rank prints
    if context.invoked_subcommand is None:
        show_help(context)


def version_text() -> str:
    """The versions, the device and the threads, for a bug report. It contains nothing personal."""
    import platform
    from importlib import metadata

    import gpt
    from gpt.devices import cores, cuda_device_count, has_mps

    device = "cpu; --device mps uses the Apple GPU" if has_mps() else "cpu"
    if gpus := cuda_device_count():
        device = f"cuda ({pluralize(gpus, 'GPU')})"
    lines = (
        f"gptx {gpt.__version__}",
        f"Python {platform.python_version()}, {platform.platform()}",
        f"torch {metadata.version('torch')}, numpy {metadata.version('numpy')}",
        f"device: {device}",
        f"threads: {cores()} of {pluralize(os.cpu_count() or 1, 'core')}",
    )
    return "".join(f"{line}\n" for line in lines)


def main() -> None:
    """Runs the command in sys.argv, and exits with its exit code. `gptx`, `python -m gpt` and
    `python cli.py` call this. An error is one line on stderr; GPTX_DEBUG=1 adds its traceback.
    """
    gc.set_threshold(COLLECT_AFTER)
    atexit.register(gc.freeze)  # spares Python the search for unused cycles at exit
    try:
        code = _code_of(_program(sys.argv[1:]))
        exit_on_interrupt()
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    raise SystemExit(code)


def _program(words: Sequence[str]) -> typer.Typer:
    """Makes the program for these words or, without words, for the line that a shell completes. If
    the first word is a command, makes only this command, because all commands take long to load.
    """
    if not words:
        line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
        words = line.split()[1:]
    if words[:1] and words[0] in COMMANDS:
        return make_program(words[:1])
    return make_program(only_listed=COMMANDS.keys().isdisjoint(words))


def _code_of(app: typer.Typer) -> int:
    """Runs the program and returns its exit code."""
    limit_blas_threads()
    _reopen_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # text is UTF-8 in every locale
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(sys.argv[1:], standalone_mode=False) or 0
        with console.convert_output_errors():
            sys.stdout.flush()
    except console.OutputClosed:
        code = 128 + 13  # SIGPIPE's number; Windows has no such signal
    except Exception as error:
        code, message = exit_code_and_message(error)
        if message and not (is_later_rank() and isinstance(error, ClickException)):
            console.say_error(message)
    return int(code)


def show_help(context: typer.Context, _: Any = None, value: bool = True) -> None:
    """The callback of --help: if `value` is true, prints the help and ends the command. click's own
    callback has other exit codes if stdout is closed or full.
    """
    if value and not context.resilient_parsing:
        console.write(f"{context.get_help()}\n")
        raise typer.Exit


class PrintsHelp:
    """A command or a group that prints its help through gpt/commands/console.py."""

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)  # type: ignore[misc]
        option.callback = show_help
        return option


class ProgramWithGroupedHelp(PrintsHelp, TyperGroup):
    """The program; its help lists the commands in groups."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([*group.items()])


class CommandWithGroupedHelp(PrintsHelp, TyperCommand):
    """A command whose help shows the options in groups. For a command in FIRST, --help shows those
    model and training options that FIRST names, and --help-all shows all.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        if self.name in FIRST and not ctx.meta.get(HELP_ALL):
            in_groups = {option.name: option for option in self.params if _group_of(option)}
            self.params = [option for option in self.params if option.name not in in_groups]
            self.params += [in_groups[name] for name in FIRST[self.name]]
        super().format_help(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            if record := parameter.get_help_record(ctx):
                groups.setdefault(_group_of(parameter) or kind, []).append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def _group_of(parameter: Any) -> str | None:
    """The title of an option's group in the help; None for an option without a group."""
    return getattr(parameter, "rich_help_panel", None)


def is_later_rank() -> bool:
    """Whether torchrun started this process as a rank that is not the first."""
    return os.environ.get("RANK", "0") != "0" and "WORLD_SIZE" in os.environ


def _reopen_closed_streams() -> None:
    """Opens devnull in place of every standard stream that the shell has closed (`>&-`)."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def exit_code_and_message(error: Exception) -> tuple[int, str]:
    """The exit code and the message for an error. With GPTX_DEBUG=1, prints its traceback."""
    if os.environ.get("GPTX_DEBUG"):
        traceback.print_exc()
    if isinstance(error, GptxError):
        from gpt.config.fields import error_with_flags

        return error.exit_code, error_with_flags(error)
    if isinstance(error, typer.Abort):
        return 128 + signal.SIGINT, ""
    if isinstance(error, ClickException):
        message: str = error.format_message()  # type: ignore[attr-defined]
        context = getattr(error, "ctx", None)
        command = f" {context.info_name}" if context and context.parent else ""
        parameters = context.command.params if context else []
        takes_text = any(parameter.name == "text" for parameter in parameters)
        if message.startswith("Got unexpected extra") and takes_text:
            message = message.rstrip(".") + "; put a text of several words in quotes"
        from gpt.commands.options import translate_command_line

        if line := translate_command_line(sys.argv[1:]):
            return 2, f"{message.split(' (')[0].rstrip('.')}; in gptx: {line}"
        return 2, f"{message} (see gptx{command} --help)"
    if isinstance(error, ImportError) and (error.name or "gpt").split(".")[0] != "gpt":
        return InstallationError.exit_code, f"{error}; {INSTALL}"
    if isinstance(error, MemoryError):
        return 8, "out of memory; try a smaller text, or -n 1"
    return 1, f"{type(error).__name__}: {error} (a bug in gptx; GPTX_DEBUG=1 shows where)"
