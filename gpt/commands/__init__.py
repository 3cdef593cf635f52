"""The program `gptx`: its list of commands, one file each.

The commands alone print, and only through gpt/commands/console.py. Importing this package imports
neither numpy nor torch: each command imports what it works with when it runs.
"""

from __future__ import annotations

from typing import Annotated

try:
    import typer

    from gpt.commands import (
        attn,
        console,
        evaluate,
        explain,
        heads,
        next,
        program,
        runs,
        sample,
        train,
    )
    from gpt.version import __version__
except KeyboardInterrupt:  # while modules load, there is nothing to save
    raise SystemExit(130) from None

__all__ = ["app", "main"]

app = typer.Typer(
    name="gptx",
    help="Train a character-level GPT on any text, sample from it, see what its heads do.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def gptx(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """What `gptx` does before any command."""
    if version:
        console.write(f"gptx {__version__}\n")
        raise typer.Exit
    if program.is_follower() and context.invoked_subcommand != "train":
        raise typer.Exit  # with several ranks, only the first one answers


app.command()(train.train)
app.command()(sample.sample)
app.command()(attn.attn)
app.command()(heads.heads)
app.command("next")(next.following)
app.command("eval")(evaluate.evaluate)
app.command()(runs.runs)
app.command()(explain.explain)


def main() -> None:
    """Runs the command of sys.argv: what `gptx`, `python -m gpt` and `python cli.py` start."""
    program.run(app)
