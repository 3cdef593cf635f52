"""Writes docs/cli.md: every command of gptx with its arguments and options, from their help texts.

    python docs/commands.py      (make cli-docs)

A test compares the page with what this script would write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from gpt.commands import make_program

PAGE = Path(__file__).with_name("cli.md")
BEGINNING = """# Commands and options

*For looking up every command and option. To begin, read [the first hour](first-hour.md).*

`gptx train --help` shows the options that most trainings need, `gptx train --help-all` shows all.
Data goes to stdout, everything else to stderr. `make cli-docs` writes this page.
"""


#: How an option is spelled, and its help text.
Record = tuple[str, str]


def page() -> str:
    """Returns docs/cli.md as Markdown."""
    program: Any = get_command(make_program())
    contexts = []
    with program.make_context("gptx", ["train"], resilient_parsing=True) as parent:
        for name, command in program.commands.items():
            contexts.append(command.make_context(name, [], parent=parent, resilient_parsing=True))
    uses = Counter(each for context in contexts for each in records(context))
    shared = [record for (group, record), n in uses.items() if n > 2 and group != "Arguments"]
    sections = [section(context, shared) for context in contexts]
    lines = ["## Options of several commands", *table("Options", shared)]
    return "\n".join([BEGINNING, *lines, "", *sections])


def records(context: Any) -> Iterator[tuple[str, Record]]:
    """Yields the arguments and options of a command, each with the title of its group."""
    for parameter in context.command.get_params(context):
        if record := parameter.get_help_record(context):
            group = getattr(parameter, "rich_help_panel", None) or "Options"
            yield (group if parameter.opts[0].startswith("-") else "Arguments"), record


def section(context: Any, shared: list[Record]) -> str:
    """Returns the Markdown of a command: its help text, its usage, a table for each group of its
    own options, and the names of the options that it shares with other commands.
    """
    usage = " ".join(context.command.get_usage(context).removeprefix("Usage: ").split())
    lines = [
        f"## {context.command_path}",
        "",
        *context.command.help.splitlines(),
        "",
        f"    {usage}",
    ]
    groups: dict[str, list[Record]] = {}
    also = []
    for group, record in records(context):
        if record in shared:
            also.append(f"`{record[0].split()[0].rstrip(',')}`")
        else:
            groups.setdefault(group, []).append(record)
    for group, own in groups.items():
        lines += table(group, own)
    if also:
        lines += ["", f"Also {', '.join(also)}."]
    return "\n".join(lines) + "\n"


def table(title: str, rows: list[Record]) -> list[str]:
    """Returns the lines of a table of options."""
    cells = [f"| `{in_cell(spelling)}` | {in_cell(text)} |" for spelling, text in rows]
    return ["", f"| {title} | |", "|---|---|", *cells]


def in_cell(text: str) -> str:
    """Returns a text for a cell of a table: one line, with its bars escaped."""
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
