"""Writes docs/cli.md: every command of gptx with its arguments and options, as --help tells them.

    python docs/commands.py      (make cli-docs)

A test compares the page with what this script would write.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.main import get_command

from gpt.commands import make_program

PAGE = Path(__file__).with_name("cli.md")
BEGINNING = """# Commands and options

*For looking up every command and option. To begin, read [the first hour](first-hour.md).*

`gptx train --help` shows the options that most trainings need, `gptx train --help-all` shows all.
`make cli-docs` writes this page from the commands' help texts: change these in `gpt/commands/` and
`gpt/config/`, not this page. `--config FILE.toml` sets any of these options;
`--config checkpoints/RUN/config.toml` repeats a run. Data goes to stdout, everything else to
stderr.
"""


def page() -> str:
    """docs/cli.md as Markdown."""
    program: Any = get_command(make_program())
    sections = [BEGINNING]
    with program.make_context("gptx", ["train"], resilient_parsing=True) as parent:
        for name, command in program.commands.items():
            context = command.make_context(name, [], parent=parent, resilient_parsing=True)
            sections.append(section(command, context))
    return "\n".join(sections)


def section(command: Any, context: Any) -> str:
    """A command: what it does, how it is called, and a table for each group of options."""
    usage = " ".join(context.command.get_usage(context).removeprefix("Usage: ").split())
    lines = [f"## {context.command_path}", "", *command.help.splitlines(), "", f"    {usage}"]
    groups: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        if record := parameter.get_help_record(context):
            group = getattr(parameter, "rich_help_panel", None) or "Options"
            is_option = parameter.opts[0].startswith("-")
            groups.setdefault(group if is_option else "Arguments", []).append(record)
    for group, records in groups.items():
        lines += ["", f"| {group} | |", "|---|---|"]
        lines += [f"| `{in_cell(spelling)}` | {in_cell(text)} |" for spelling, text in records]
    return "\n".join(lines) + "\n"


def in_cell(text: str) -> str:
    """For a cell of a table: on one line, its bars escaped."""
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
