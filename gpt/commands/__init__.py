"""The program `gptx`: its list of commands, one file each.

The commands alone print, and only through gpt/commands/common/console.py. Importing this package
imports neither numpy nor torch: each command imports its modules when it runs.
"""

from __future__ import annotations

from typing import Annotated

try:
    import typer

    from gpt.commands.attn import Attn
    from gpt.commands.common import console, program
    from gpt.commands.common.options import callback
    from gpt.commands.evaluate import Eval
    from gpt.commands.explain import Explain
    from gpt.commands.export import Export
    from gpt.commands.heads import Heads
    from gpt.commands.import_model import Import
    from gpt.commands.live import Live
    from gpt.commands.next import Next
    from gpt.commands.runs import Runs
    from gpt.commands.sample import Sample
    from gpt.commands.train import Train
    from gpt.version import __version__
except KeyboardInterrupt:  # while modules load, there is nothing to save
    raise SystemExit(130) from None

__all__ = ["app", "main"]

app = typer.Typer(
    name="gptx",
    help="Train a character-level GPT on any text, sample from it, see what its heads do.",
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
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


for command in (Train, Sample, Attn, Heads, Next, Eval, Live, Runs, Export, Import, Explain):
    # without a short_help, Typer would cut the sentence in a narrow terminal
    app.command(command.__name__.lower(), short_help=(command.__doc__ or "").split("\n")[0])(
        callback(command)
    )


def main() -> None:
    """Runs the command of sys.argv for `gptx`, `python -m gpt` and `python cli.py`."""
    program.run(app)
