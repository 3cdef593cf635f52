"""The program `gptx`: its list of commands, one file each.

The commands alone print, and only through gpt/commands/common/console.py. Importing this package
imports neither numpy nor torch: each command imports its modules when it runs.
"""

from __future__ import annotations

import os
import sys

try:
    from collections.abc import Iterable
    from functools import partial
    from importlib import import_module
    from typing import Annotated

    from gpt.signals import raise_first_interrupt

    raise_first_interrupt()  # the modules below take long to load

    import typer

    from gpt.commands.common import console, program
    from gpt.commands.common.options import callback
    from gpt.version import __version__
except KeyboardInterrupt:  # while modules load, there is nothing to save
    os._exit(130)

__all__ = ["COMMANDS", "application", "main"]

#: Command -> its module here, and its class there; in the order of --help.
COMMANDS = {
    "train": ("train", "Train"),
    "sample": ("sample", "Sample"),
    "attn": ("attn", "Attn"),
    "heads": ("heads", "Heads"),
    "next": ("next", "Next"),
    "eval": ("evaluate", "Eval"),
    "live": ("live", "Live"),
    "runs": ("runs", "Runs"),
    "export": ("export", "Export"),
    "import": ("import_model", "Import"),
    "explain": ("explain", "Explain"),
}


def application(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The program with these commands."""
    app = typer.Typer(
        name="gptx",
        help="Train a character-level GPT on any text, sample from it, see what its heads do.",
        pretty_exceptions_enable=False,
    )
    app.callback(invoke_without_command=True)(gptx)
    for name in names:
        module, title = COMMANDS[name]
        command = getattr(import_module(f"gpt.commands.{module}"), title)
        # without a short_help, Typer would cut the sentence in a narrow terminal
        short = command.__doc__.split("\n")[0]
        app.command(name, cls=program.GroupedOptions, short_help=short)(callback(command))
    return app


def gptx(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Runs before every command."""
    if version:
        console.write(f"gptx {__version__}\n")
        raise typer.Exit
    if program.is_follower() and context.invoked_subcommand != "train":
        raise typer.Exit  # with several ranks, only the first one prints


def main() -> None:
    """Runs the command of sys.argv for `gptx`, `python -m gpt` and `python cli.py`.

    Typer is given this command alone, as reading the options of all takes as long as numpy's
    import.
    """
    named = [name for name in sys.argv[1:2] if name in COMMANDS]
    program.run(partial(application, named or COMMANDS))
