"""gptx on the command line: the program and its commands, which live in gpt/commands/."""

from __future__ import annotations

from typing import Annotated

try:
    import typer

    from gpt.commands import console
    from gpt.commands.attn import attn
    from gpt.commands.evaluate import evaluate
    from gpt.commands.explain import explain
    from gpt.commands.heads import heads
    from gpt.commands.next import following
    from gpt.commands.runs import runs
    from gpt.commands.sample import sample
    from gpt.commands.train import train
    from gpt.version import __version__
except KeyboardInterrupt:  # while modules load: nothing to tell, nothing to save
    raise SystemExit(130) from None

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
    if console.is_follower() and context.invoked_subcommand != "train":
        raise typer.Exit  # one of several ranks answers for all


app.command()(train)
app.command()(sample)
app.command()(attn)
app.command()(heads)
app.command("next")(following)
app.command("eval")(evaluate)
app.command()(runs)
app.command()(explain)


def main() -> None:
    """The entry point of the `gptx` script and of `python -m cli`."""
    console.run(app)


if __name__ == "__main__":
    main()
