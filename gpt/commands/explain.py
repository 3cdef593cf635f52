"""`gptx explain`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import getchar

from gpt.blocks import Block, Fold
from gpt.commands import console, shared
from gpt.config.fields import Range
from gpt.errors import ConfigError, TextError
from gpt.lessons.catalogue import (
    ABOUT,
    ABOUT_MINE,
    IN_OWN_MODEL,
    LESSONS,
    OWN_ROWS,
    WITH_HEAD,
    chosen_lesson,
)

if TYPE_CHECKING:
    from gpt.lessons.lesson import Lesson

CHOICES = (*LESSONS, "mine", "all")
FORMS = ("text", "json", "md", "html")
OURS = b"gptx lesson</title>"

LAST_SEED = 2**63 - 1
INTRODUCTION = """# Attention, one idea at a time

Every number on this page is computed by `gptx explain`, and `gptx explain mine` shows the same
steps in a model that you trained.
"""

MODELS = f"lesson mine, or with --run {' and '.join(WITH_HEAD)}"

#: Options that only some lessons use.
OF_MINE = ("run", "layer", "head", "unknown", "checkpoints")
OF_LESSONS = ("embeddings", "seed")


def offered_lessons(incomplete: str) -> list[str]:
    """The lessons whose names begin with `incomplete`, for the shell's completion."""
    return [choice for choice in CHOICES if choice.startswith(incomplete)]


def at_terminal() -> bool:
    """Whether a person at a terminal reads and types."""
    return sys.stdin.isatty() and sys.stdout.isatty()


class Explain(shared.DrawingCommand):
    """Explain attention one idea at a time: every number is shown and checked.

    A terminal shows one step at a time; any key shows the next. A pipe or a file gets all steps.
    """

    lesson: Annotated[
        str | None,
        typer.Argument(
            help=f"{', '.join(LESSONS)}; mine: your newest run; all: every lesson but mine. "
            f"With --run NAME, {', '.join(IN_OWN_MODEL)} continue in that run.",
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
    layer: Annotated[int | None, f"Layer to explain ({MODELS}).", "the lesson's", Range(0)] = None
    head: Annotated[int | None, f"Head to explain ({MODELS}).", "the lesson's", Range(0)] = None
    full: Annotated[bool, "Show all rows and columns of long tables, as JSON does."] = False
    digits: shared.Digits = 4
    output: Annotated[
        Path | None,
        shared.output_option("A file: .txt, .json, .md, or .html, a page to teach from."),
    ] = None
    show: Annotated[
        bool, typer.Option("--open", help="Write the HTML page and open it in the browser.")
    ] = False
    answers: Annotated[bool, "Show all results in the HTML page, for teachers."] = False
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON on stdout: a line for each lesson.")
    ] = False

    def execute(self) -> None:
        if self.show and self.output is None and self.lesson is not None:
            self.output = shared.default_file(f"{self.lesson}.html", OURS, "--open")
        form = self.form(FORMS)
        if self.seed is not None and self.seed > LAST_SEED:
            raise ConfigError(f"--seed: {self.seed} is not in [0, 2^63)")
        name = None if self.lesson is None else chosen_lesson(self.lesson, CHOICES)
        self._check_options(name, form)
        if name is None:
            self._list(form)
            return
        made_by: dict[str, Any] = {}
        if name == "mine" or (name in IN_OWN_MODEL and self.run is not None):
            lesson, made_by = self._own_model(name)
            lessons = [lesson]
        else:
            lessons = self._tutorials(LESSONS if name == "all" else (name,))
        self._write(lessons, made_by, form)
        if self.show and self.output:
            shared.open_in_browser(self.output)
        shared.require_passed(check for each in lessons for check in each.failed)

    def _check_options(self, lesson: str | None, form: str) -> None:
        """Raises ConfigError for options that have no effect on the lesson."""
        given = self.typed()
        unused: tuple[str, ...] = OF_MINE
        advice = f"only changes the lessons mine, {', '.join(IN_OWN_MODEL)}; leave it out"
        if lesson is None:
            unused = ("text", *OF_LESSONS, *OF_MINE, "digits", "full")
            advice = "name a lesson with it, as in: gptx explain simple"
        elif lesson == "mine":
            unused, advice = OF_LESSONS, "does not change the lesson mine; leave it out"
        elif lesson in IN_OWN_MODEL and self.run is not None:
            unused = () if lesson in WITH_HEAD else ("layer", "head")
            advice = f"does not change the lesson {lesson}; leave it out"
        elif lesson in IN_OWN_MODEL:
            advice = "has an effect only with your own model: add --run NAME"
        drawn = self.text is not None and "embeddings" not in given
        shared.refuse_if(
            *((name in given, f"--{name}: {advice}") for name in unused),
            (
                lesson in (None, "all") and "step" in given,
                "--step: name one lesson with it, as in: gptx explain simple --step 2",
            ),
            (
                lesson is None and (form in ("md", "html") or self.show),
                "--output: a page needs a lesson; name one, or all",
            ),
            (self.show and form != "html", f"--open: opens the HTML page, not {form}"),
            (
                self.answers and form != "html",
                "--answers: only for the HTML page; add --open or -o FILE.html",
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

    @cached_property
    def _given_text(self) -> str | None:
        return shared.one_text({"--text": self.text})

    def _own_model(self, name: str) -> tuple[Lesson, dict[str, Any]]:
        """A lesson in the user's own model, and the checkpoint that it shows. Raises GptxError
        before any note is printed.
        """
        from gpt.heads.attention_map import require_decoder_only
        from gpt.interface.trained import find_model
        from gpt.lessons.own_model import check_head, check_length

        opened = find_model(self.checkpoints, self.run, self.step if name == "mine" else "best")
        stored, layer, head = opened.stored, self.layer or 0, self.head or 0
        require_decoder_only(stored.config, "the lesson mine", f"the lesson {name}")
        check_head(stored.config, layer, head)
        text = self._given_text
        if text is not None:
            check_length(stored.config, len(stored.vocabulary.encode(text, self.unknown)))
        self.announce(opened, self.run)
        if name == "mine":
            text = self.text_for(opened, text)
            made_by = {"text": text, "layer": layer, "head": head, **opened.origin}
            return opened.explain(text, layer, head), made_by
        from gpt.lessons.in_own_model import add_own_steps, example

        (tutorial,) = self._tutorials((name,))
        text = self.text_for(opened, example(name, opened) if text is None else text)
        place = {"layer": self.layer, "head": self.head} if name in WITH_HEAD else {}
        tutorial = add_own_steps(tutorial, opened, text, self.layer, self.head, self.seed)
        return tutorial, {"text": text, **place, **opened.origin}

    def _tutorials(self, lessons: Sequence[str]) -> list[Lesson]:
        """The lessons. Raises ConfigError if the words and embeddings do not match."""
        from gpt.lessons import catalogue
        from gpt.lessons.embeddings import read_embeddings, words_of

        if self.text == self.embeddings == "-":
            raise ConfigError("--text and --embeddings: only one of them can read standard input")
        words = rows = None
        text = self._given_text
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
                raise ConfigError(f"--text: {source} has words already; leave out --text, or them")
            words = words or named
        materials = [catalogue.make_material(name, words, rows, self.seed) for name in lessons]
        return [catalogue.make_lesson(*each) for each in zip(lessons, materials, strict=True)]

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
        """The lesson with only one of its steps. Raises ConfigError if it has no such step."""
        count = len(lesson.steps)
        known = self.step.isdecimal() and 1 <= int(self.step) <= count
        problem = f"{lesson.name} has the steps 1 to {count}, not {self.step!r}"
        shared.refuse_if((not known, f"--step: {problem}"))
        kept = [each for each in blocks if isinstance(each, Fold)][int(self.step) - 1]
        return [each for each in blocks if each is kept or not isinstance(each, Fold)]

    def _show_in_turns(self, blocks: Sequence[Block]) -> None:
        """Shows a step, and after each key the next one; q ends, a shows all the rest."""
        steps = [each for each in blocks if isinstance(each, Fold)]
        self.write_blocks(blocks[: blocks.index(steps[0]) + 1])
        key, end = "", blocks[blocks.index(steps[-1]) + 1 :]
        for shown, step in enumerate(steps[1:], 1):
            if key != "a":
                said = f"step {shown} of {len(steps)} · any key: the next one · a: all · q: end"
                console.say(said)
                key = getchar().casefold()
            if key in ("q", "\x1b"):
                return
            self.write_text("\n")
            self.write_blocks([step, *(end if step is steps[-1] else [])])

    def _write(self, lessons: list[Lesson], made_by: dict[str, Any], form: str) -> None:
        """Writes the lessons in a format; in Markdown, all lessons form one page with a title."""
        from gpt.view.markdown import markdown_of
        from gpt.view.records import to_record

        of_step = "step" in self.typed() and lessons[0].name != "mine"
        blocks = [block for each in lessons for block in each.blocks(self.digits, self.full)]
        if of_step:
            blocks = self._only_step(lessons[0], blocks)
        if form == "text" and self.output is None and at_terminal():
            self._show_in_turns(blocks)
        elif form == "text":
            self.write_blocks(blocks)
        elif form == "html":
            from gpt.view.page.lesson import lesson_page

            start = int(self.step) if of_step else 1
            shown = self.digits, self.full, self.answers, start
            self.write_text(lesson_page(lessons, *shown))
        elif form == "json":
            self.write_json(*(to_record(each.records(), made_by) for each in lessons))
        else:
            contents = [f"- [{each.name}](#{each.name}): {each.about}" for each in lessons]
            begin = "\n".join([INTRODUCTION, *contents, "\n"]) if len(lessons) > 1 else ""
            self.write_text(f"{begin}{markdown_of(blocks)}\n")
