"""`gptx explain`."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpt.commands import console, shared
from gpt.errors import ConfigError, NumericsError, TextError
from gpt.explain.catalogue import ABOUT, ABOUT_MINE, LESSONS

if TYPE_CHECKING:
    from gpt.explain.lesson import Lesson
    from gpt.loading import Saved
    from gpt.storage.model_file import StoredModel

CHOICES = (*LESSONS, "mine", "all")

LAST_SEED = 2**63 - 1

#: Options that only some lessons use.
OF_MINE = ("run", "step", "layer", "head", "unknown", "checkpoints")
OF_LESSONS = ("embeddings", "seed")


def chosen_lesson(name: str) -> str:
    """A lesson by its name. Raises ConfigError, with the nearest name if there is one."""
    if name in CHOICES:
        return name
    nearest = get_close_matches(name.casefold(), CHOICES, 1)
    advice = f"did you mean {nearest[0]}?" if nearest else "gptx explain lists them"
    raise ConfigError(f"{name!r} is not one of the lessons; {advice}")


def offered_lessons(incomplete: str) -> list[str]:
    """What a shell may complete."""
    return [choice for choice in CHOICES if choice.startswith(incomplete)]


def explain(
    context: typer.Context,
    lesson: Annotated[
        str | None,
        typer.Argument(
            help=f"{', '.join(LESSONS)}; mine: your newest run; all: but mine.",
            show_default="their list",
            autocompletion=offered_lessons,
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            help="Your own words; a single one is taken by characters; - reads stdin.",
            show_default="the lesson's",
        ),
    ] = None,
    embeddings: Annotated[
        str | None,
        typer.Option(
            help="File with a row of numbers for each word: JSON, or a line a row with commas or "
            "spaces between, its word first or not; - reads stdin.",
            show_default="random for your own words",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Of random numbers.", min=0, show_default="the lesson's"),
    ] = None,
    run: shared.RunName = None,
    step: shared.Step = "best",
    layer: Annotated[int, typer.Option(help="Layer to explain (lesson mine).", min=0)] = 0,
    head: Annotated[int, typer.Option(help="Head to explain (lesson mine).", min=0)] = 0,
    unknown: shared.Unknown = "error",
    full: Annotated[
        bool, typer.Option("--full", help="All rows and columns of long tables, as in JSON.")
    ] = False,
    digits: shared.Digits = 4,
    output: Annotated[
        Path | None, shared.output_option("A file: .txt, .json, or .md, a page.")
    ] = None,
    ascii_only: shared.Ascii = False,
    color: shared.Color = "auto",
    checkpoints: shared.Checkpoints = Path("checkpoints"),
    config: shared.ConfigFile = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON on stdout: a lesson a line, each a document.")
    ] = False,
) -> None:
    """Attention one idea at a time: worked examples, every number shown and checked."""
    form = "json" if as_json else _form_of(output)
    answer = console.Output(output, ascii_only, color)
    if seed is not None and seed > LAST_SEED:
        raise ConfigError(f"--seed: {seed} is not in [0, 2^63)")
    name = None if lesson is None else chosen_lesson(lesson)
    _refuse_what_would_be_ignored(shared.typed(context), name, text, form)
    if name is None:
        _list(form, answer)
        if form == "text":
            console.say("next   gptx explain simple")
        return
    made_by: dict[str, Any] = {}
    if name == "mine":
        opened, chosen = _opened(checkpoints, run, step, text, layer, head, unknown)
        lessons = [opened.model.explain(chosen, layer, head)]
        made_by = {"text": chosen, "layer": layer, "head": head, **opened.origin}
    else:
        lessons = list(_played(name, text, embeddings, seed))
    _write(lessons, made_by, form, answer, digits, full)
    if failed := {check for each in lessons for check in each.failed}:
        raise NumericsError(
            f"a check failed: {', '.join(sorted(failed))}; do not trust these numbers"
        )


def _form_of(output: Path | None) -> str:
    """text, json or md, by a file's ending. Raises ConfigError."""
    ending = output.suffix.lower() if output else ""
    forms = {"": "text", ".txt": "text", ".json": "json", ".md": "md"}
    if ending not in forms:
        raise ConfigError(f"--output: lessons are told as .txt, .json or .md, not as {ending}")
    return forms[ending]


def _refuse_what_would_be_ignored(
    given: dict[str, Any], lesson: str | None, text: str | None, form: str
) -> None:
    """Raises ConfigError for options that have no effect on the lesson."""
    if lesson is None:
        for name in ("text", *OF_LESSONS, *OF_MINE, "digits", "full"):
            if name in given:
                raise ConfigError(f"--{name}: name a lesson with it, as in: gptx explain simple")
        if form == "md":
            raise ConfigError("--output: a page holds lessons; name one, or all")
        return
    for name in OF_LESSONS if lesson == "mine" else OF_MINE:
        if name in given:
            whose = "does not change" if lesson == "mine" else "only changes"
            raise ConfigError(f"--{name}: {whose} the lesson mine; leave it out")
    if "embeddings" in given and lesson == "mistakes":
        raise ConfigError("--embeddings: the lesson mistakes makes its own, 32 wide; leave it out")
    drawn = text is not None and "embeddings" not in given
    if "seed" in given and lesson in ("simple", "shiny") and not drawn:
        raise ConfigError(f"--seed: nothing is random in {lesson}, but words of --text alone")


def _opened(
    checkpoints: Path,
    run: str | None,
    step: str,
    text: str | None,
    layer: int,
    head: int,
    unknown: str,
) -> tuple[Saved, str]:
    """The checkpoint, and the text without unknown characters. Refuses before any note is printed.

    Raises GptxError.
    """
    from gpt.explain.own_model import must_be_there, must_fit

    def check(stored: StoredModel) -> None:
        nonlocal text
        must_be_there(stored.config, layer, head)
        text = console.read_text("-") if text == "-" else text
        if text is not None:
            must_fit(stored.config, len(stored.vocabulary.encode(text, unknown)))

    opened = shared.open_run(checkpoints, run, step, check=check)
    chosen = shared.text_or_example(opened.model, {"--text": text})
    return opened, shared.known_text(opened.model, chosen, unknown)


def _played(
    lesson: str, text: str | None, embeddings: str | None, seed: int | None
) -> Iterator[Lesson]:
    """The lesson, or all of them. Raises ConfigError for words and numbers that do not fit."""
    from gpt.explain import catalogue
    from gpt.explain.embeddings import read_embeddings, words_of

    if text == embeddings == "-":
        raise ConfigError("--text and --embeddings: only one of them can read standard input")
    words = rows = None
    if text is not None:
        text = console.read_text("-") if text == "-" else text
        try:
            text.encode()
        except UnicodeEncodeError as error:  # how Python holds a byte that is not UTF-8
            raise TextError(f"--text: invalid UTF-8 at character {error.start}") from None
        words = words_of(text)
    if embeddings is not None:
        source = "(standard input)" if embeddings == "-" else embeddings
        named, rows = read_embeddings(console.read_text(embeddings), source)
        if words and named:
            raise ConfigError(f"--text: {source} names its words; leave one of them out")
        words = words or named
    for name in LESSONS if lesson == "all" else (lesson,):
        yield catalogue.lesson(name, catalogue.material(name, words, rows, seed))


def _list(form: str, answer: console.Output) -> None:
    """The lessons, a line each."""
    about = ABOUT | {"mine": ABOUT_MINE}
    if form == "json":
        answer.json(*({"lesson": name, "about": text} for name, text in about.items()))
        return
    from gpt.view.terminal.lesson import list_lines

    answer.lines(list_lines(about, answer.page()))


def _write(
    lessons: list[Lesson],
    made_by: dict[str, Any],
    form: str,
    answer: console.Output,
    digits: int,
    full: bool,
) -> None:
    """The lessons in a form."""
    if form == "text":
        from rich.text import Text

        from gpt.view.terminal.lesson import lesson_lines

        page = answer.page(precision=digits)
        lines = [line for each in lessons for line in (*lesson_lines(each, page, full), Text())]
        answer.lines(lines[:-1])
        return
    from gpt.view.files.lessons import lesson_record, lessons_markdown

    if form == "json":
        answer.json(*(lesson_record(each, made_by) for each in lessons))
    else:
        answer.text(lessons_markdown(lessons, digits, full))
