"""`gptx explain`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from click import getchar

from gpt.blocks import Block, Fold
from gpt.commands import console, shared
from gpt.config.fields import Range
from gpt.errors import ConfigError, TextError
from gpt.lessons.catalogue import ABOUT, ABOUT_MINE, LESSONS, OWN_ROWS, chosen_lesson

if TYPE_CHECKING:
    from gpt.lessons.lesson import Lesson

CHOICES = (*LESSONS, "mine", "all")
FORMS = {"": "text", ".txt": "text", ".json": "json", ".md": "md"}

LAST_SEED = 2**63 - 1
INTRODUCTION = """# Attention, one idea at a time

Every number on this page is computed by `gptx explain`, and `gptx explain mine` shows the same
steps in a model that you trained. Written by `make lessons` from `gpt/lessons/tutorials/`:
change the lessons, not the page.
"""

#: Options that only some lessons use.
OF_MINE = ("run", "layer", "head", "unknown", "checkpoints")
OF_LESSONS = ("embeddings", "seed")


def offered_lessons(incomplete: str) -> list[str]:
    """The lessons whose names begin with `typed`, for the shell's completion."""
    return [choice for choice in CHOICES if choice.startswith(incomplete)]


def at_terminal() -> bool:
    """Whether someone reads and types."""
    return sys.stdin.isatty() and sys.stdout.isatty()


class Explain(shared.DrawingCommand):
    """Attention one idea at a time: worked examples, every number shown and checked.

    A terminal shows one step at a time, and a key the next one; a pipe or a file gets all steps.
    """

    lesson: Annotated[
        str | None,
        typer.Argument(
            help=f"{', '.join(LESSONS)}; mine: your newest run; all: every lesson but mine.",
            show_default="their list",
            autocompletion=offered_lessons,
        ),
    ] = None
    text: Annotated[
        str | None,
        "Your own words; a single one is split into characters; - reads stdin.",
        "the lesson's",
    ] = None
    embeddings: Annotated[
        str | None,
        "File with a row of numbers for each word: JSON, or a line for each row, with commas or "
        "spaces between the numbers and an optional word before them; - reads stdin.",
        "random for your own words",
    ] = None
    seed: Annotated[int | None, "Seed of the random numbers.", "the lesson's", Range(0)] = None
    step: Annotated[
        str,
        "Lesson mine: best, last, or a kept step's number of the run. Another lesson: the number "
        "of its only step to show.",
    ] = "best"
    layer: Annotated[int, "Layer to explain (lesson mine).", Range(0)] = 0
    head: Annotated[int, "Head to explain (lesson mine).", Range(0)] = 0
    full: Annotated[bool, "All rows and columns of long tables, as in JSON."] = False
    digits: shared.Digits = 4
    output: Annotated[Path | None, shared.output_option("A file: .txt, .json, or .md, a page.")] = (
        None
    )
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON on stdout: a line for each lesson.")
    ] = False

    def execute(self) -> None:
        form = self.form(FORMS)
        if self.seed is not None and self.seed > LAST_SEED:
            raise ConfigError(f"--seed: {self.seed} is not in [0, 2^63)")
        name = None if self.lesson is None else chosen_lesson(self.lesson, CHOICES)
        self._check_options(name, form)
        if name is None:
            self._list(form)
            return
        made_by: dict[str, Any] = {}
        if name == "mine":
            lesson, made_by = self._own_model()
            lessons = [lesson]
        else:
            lessons = self._tutorials(LESSONS if name == "all" else (name,))
        self._write(lessons, made_by, form)
        shared.require_passed(check for each in lessons for check in each.failed)

    def _check_options(self, lesson: str | None, form: str) -> None:
        """Raises ConfigError for options that have no effect on the lesson."""
        given = self.typed()
        unused: tuple[str, ...] = OF_MINE
        advice = "only changes the lesson mine; leave it out"
        if lesson is None:
            unused = ("text", *OF_LESSONS, *OF_MINE, "digits", "full")
            advice = "name a lesson with it, as in: gptx explain simple"
        elif lesson == "mine":
            unused, advice = OF_LESSONS, "does not change the lesson mine; leave it out"
        drawn = self.text is not None and "embeddings" not in given
        shared.refuse(
            *((name in given, f"--{name}: {advice}") for name in unused),
            (
                lesson in (None, "all") and "step" in given,
                "--step: name one lesson with it, as in: gptx explain simple --step 2",
            ),
            (
                lesson is None and form == "md",
                "--output: a Markdown page needs a lesson; name one, or all",
            ),
            (
                lesson in OWN_ROWS and "embeddings" in given,
                f"--embeddings: the lesson {lesson} generates its own; leave it out",
            ),
            (
                lesson == "induction" and "seed" in given,
                "--seed: the lesson induction uses no random numbers; leave it out",
            ),
            (
                lesson in ("simple", "shiny") and "seed" in given and not drawn,
                f"--seed: {lesson} uses random numbers only for --text without --embeddings",
            ),
        )

    def _own_model(self) -> tuple[Lesson, dict[str, Any]]:
        """The lesson `mine`, and the checkpoint it is about. Raises GptxError before any note is
        printed.
        """
        from gpt.heads.attention_map import require_decoder_only
        from gpt.interface.trained import find
        from gpt.lessons.own_model import must_be_there, must_fit

        opened = find(self.checkpoints, self.run, self.step)
        stored = opened.stored
        require_decoder_only(stored.config, "the lesson mine")
        must_be_there(stored.config, self.layer, self.head)
        text = shared.one_text({"--text": self.text})
        if text is not None:
            must_fit(stored.config, len(stored.vocabulary.encode(text, self.unknown)))
        self.announced(opened, self.run)
        text = self.text_for(opened, text)
        lesson = opened.explain(text, self.layer, self.head)
        place = {"layer": self.layer, "head": self.head}
        return lesson, {"text": text, **place, **opened.origin}

    def _tutorials(self, lessons: Sequence[str]) -> list[Lesson]:
        """The lessons. Raises ConfigError for words and embeddings that do not match."""
        from gpt.lessons import catalogue
        from gpt.lessons.embeddings import read_embeddings, words_of

        if self.text == self.embeddings == "-":
            raise ConfigError("--text and --embeddings: only one of them can read standard input")
        words = rows = None
        text = shared.one_text({"--text": self.text})
        if text is not None:
            try:
                text.encode()
            except UnicodeEncodeError as error:  # Python's code for a byte that is not UTF-8
                raise TextError(f"--text: invalid UTF-8 at character {error.start}") from None
            words = words_of(text)
        if self.embeddings is not None:
            source = "(standard input)" if self.embeddings == "-" else self.embeddings
            named, rows = read_embeddings(console.read_text(self.embeddings), source)
            if words and named:
                raise ConfigError(f"--text: {source} contains words, too; leave one of them out")
            words = words or named
        materials = [catalogue.material(name, words, rows, self.seed) for name in lessons]
        return [catalogue.lesson(*each) for each in zip(lessons, materials, strict=True)]

    def _list(self, form: str) -> None:
        """Lists the lessons, one per line."""
        about = ABOUT | {"mine": ABOUT_MINE}
        if form == "json":
            self.write_json(*({"lesson": name, "about": text} for name, text in about.items()))
            return
        from gpt.blocks import Facts

        self.write_blocks([Facts(about)])
        console.say("next   gptx explain simple")

    def _only_step(self, lesson: Lesson, blocks: Sequence[Block]) -> list[Block]:
        """The lesson with one of its steps. Raises ConfigError for one that there is not."""
        count = len(lesson.steps)
        known = self.step.isdecimal() and 1 <= int(self.step) <= count
        problem = f"{lesson.name} has the steps 1 to {count}, not {self.step!r}"
        shared.refuse((not known, f"--step: {problem}"))
        kept = [each for each in blocks if isinstance(each, Fold)][int(self.step) - 1]
        return [each for each in blocks if each is kept or not isinstance(each, Fold)]

    def _show_in_turns(self, blocks: Sequence[Block]) -> None:
        """Shows a step, and the next one after a key; after q no more, after a all of the rest."""
        steps = [each for each in blocks if isinstance(each, Fold)]
        self.write_blocks(blocks[: blocks.index(steps[0]) + 1])
        key = ""
        for shown, step in enumerate(steps[1:], 1):
            if key != "a":
                said = f"step {shown} of {len(steps)} · any key: the next one · a: all · q: end"
                console.say(said)
                key = getchar().casefold()
            if key in ("q", "\x1b"):
                return
            self.write_text("\n")
            self.write_blocks([step])

    def _write(self, lessons: list[Lesson], made_by: dict[str, Any], form: str) -> None:
        """Writes the lessons in a format; all of them in Markdown are one page with a title."""
        from gpt.view.markdown import markdown_of
        from gpt.view.records import to_record

        blocks = [block for each in lessons for block in each.blocks(self.digits, self.full)]
        if "step" in self.typed() and not made_by:
            blocks = self._only_step(lessons[0], blocks)
        if form == "text" and self.output is None and at_terminal():
            self._show_in_turns(blocks)
        elif form == "text":
            self.write_blocks(blocks)
        elif form == "json":
            self.write_json(*(to_record(each.records(), made_by) for each in lessons))
        else:
            contents = [f"- [{each.name}](#{each.name}): {each.about}" for each in lessons]
            begin = "\n".join([INTRODUCTION, *contents, "\n"]) if len(lessons) > 1 else ""
            self.write_text(f"{begin}{markdown_of(blocks)}\n")
