"""`gptx sample`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpt.commands import console, shared
from gpt.commands.options import options_of
from gpt.config import SampleConfig
from gpt.config.fields import Range
from gpt.config.train import Data, OnDevice
from gpt.errors import GptxError, OutOfMemory

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT
    from gpt.reading.novelty import Novelty, Sources

SCHEMA = 1
FORMS = ("text", "html")
DIVIDER = "\n---\n"  # stands between two samples
REPEATED = 0.5  # seconds between two checks of a pipe to which nothing is written yet


class Sample(shared.Writing, shared.ModelCommand):
    """Continue a prompt, character by character."""

    text: Annotated[
        str | None, typer.Argument(help="The prompt; - reads stdin.", show_default=False)
    ] = None
    prompt: Annotated[str | None, "The prompt, as an option."] = None
    file: shared.TextFile = None
    stop: Annotated[
        list[str] | None, "End before this text; repeatable. A newline is $'\\n' in most shells."
    ] = None
    interactive: Annotated[
        bool, typer.Option("-i", "--interactive", help="Write in turns with the model.")
    ] = False
    novelty: Annotated[bool, "Report the longest part copied from the corpus."] = False
    sources: Annotated[
        bool, "Mark the passages that stand in the training text, and say where."
    ] = False
    sources_from: Annotated[int, "Characters of the shortest passage of --sources.", Range(1)] = 8
    output: Annotated[
        Path | None,
        shared.output_option("With --sources: a file, .html (with hints under the mouse) or .txt."),
    ] = None
    device: OnDevice = "auto"
    data: Data = Path("data")
    drawing: Annotated[dict[str, Any], options_of(SampleConfig)]

    def execute(self) -> None:
        settings, typed = self.settings, self.typed()
        shared.refuse_if(
            ("output" in typed and not self.sources, "--output: only with --sources"),
            ("sources_from" in typed and not self.sources, "--sources-from: only with --sources"),
        )
        self.form(FORMS)
        if self.interactive:
            has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
            shared.refuse_if(
                (settings.n > 1, "-i: cannot be combined with -n"),
                (self.as_json, "-i: cannot be combined with --json"),
                (self.novelty, "-i: cannot be combined with --novelty"),
                (self.sources, "-i: cannot be combined with --sources"),
                (not has_terminal, "-i: needs a terminal; without one, give the text as --prompt"),
            )
        given = {"TEXT": self.text, "--prompt": self.prompt, "--file": self.file}
        prompt = shared.one_text(given) or ""
        if self.opened.recorded is None:
            self._copied()  # raises an error for --novelty and --sources: the corpus is unknown
        model = self.opened.prove()
        prompt = self.known_text(model, prompt)
        stops = shared.checked_stops(model, self.stop or ())
        if len(prompt) > model.config.block_size:
            console.say(
                f"note: the prompt has {len(prompt):,} characters; the model sees the last "
                f"{model.config.block_size} at most"
            )
        if self.interactive:
            from gpt.commands.interactive import Session, run_session

            run_session(Session(model, settings, stops, prompt, self.unknown), self.opened.title)
        else:
            self._write(prompt, stops)

    @cached_property
    def settings(self) -> SampleConfig:
        """How to sample. Raises ConfigError."""
        return SampleConfig(**self.drawing)

    @cached_property
    def opened(self) -> TrainedGPT:
        """The checkpoint, on its device."""
        opened = self.open(self.run, self.step)
        return self.on_device(opened, self.settings.length * self.settings.n)

    def _write(self, prompt: str, stops: Sequence[str]) -> None:
        """Writes the samples. Writes what is complete so far after Ctrl-C, if the corpus is
        missing, or when the held texts do not fit in memory.
        """
        from gpt.reading.sampler import GrowingTexts
        from gpt.reading.sampler import Sample as Written
        from gpt.view.records import to_record

        count = self.settings.n
        samples = self.opened.stream(prompt, self.settings, stops)
        quiet = self.as_json or self.sources
        texts, held = GrowingTexts(count), count > 1 or quiet or self.novelty
        failure: KeyboardInterrupt | GptxError | None = None

        def written() -> Iterator[str]:
            """Yields one sample after the other, each while it grows."""
            nonlocal failure
            shown, checked = 0, 0.0
            try:
                for gained in samples:
                    if held:
                        texts.add(gained)
                    yield gained[shown]
                    if failure:
                        break
                    while shown < count - 1 and samples.stopped[shown]:
                        shown += 1
                        yield DIVIDER + prompt + texts.text(shown)
                    if quiet and time.monotonic() > checked + REPEATED:
                        console.check_reader()
                        checked = time.monotonic()
            except (KeyboardInterrupt, OutOfMemory) as error:
                failure = error
            for number in range(shown + 1, count):
                yield DIVIDER + prompt + texts.text(number)

        pieces = written()
        if quiet:
            for _ in pieces:
                pass
        else:
            try:
                console.stream(prompt, pieces)
            except KeyboardInterrupt as error:  # while it wrote
                failure = error
                console.stream("", pieces)
        copied: list[Novelty] = []
        sources: list[Sources] = []
        ended = "interrupted" if failure else "length"
        if not failure and (self.novelty or self.sources):
            try:
                whole = [Written(prompt, texts.text(number)) for number in range(count)]
                copied, sources = self._copied(whole)
            except GptxError as error:
                failure = error
        if self.as_json:
            used = {name: value for name, value in vars(self.settings).items() if name != "n"}
            made_by = {"prompt": prompt, **used, "stop": list(stops), **self.opened.origin}
            records = list[dict[str, Any]]()
            for number, stopped in enumerate(samples.stopped):
                text = prompt + texts.text(number)
                record = {"schema": SCHEMA, "sample": number, "text": text, **made_by}
                record["ended"] = "stop" if stopped else ended
                if copied:
                    found = copied[number]
                    start = len(prompt) + found.longest.start
                    record["novelty"] = {**found.numbers, "start": start}
                if sources:
                    record["sources"] = to_record(sources[number].records(), {})
                records.append(record)
            self.write_json(*records)
        else:
            if sources:
                self._show(sources)
            elif self.sources:
                console.stream(DIVIDER.join(prompt + texts.text(n) for n in range(count)))
            for number, each in enumerate(copied):
                begin = f"sample {number}: " if count > 1 else ""
                console.say(f"{begin}novelty: {' · '.join(each.facts)}")
        if failure:
            raise failure

    def _copied(self, texts: Sequence[str] = ()) -> tuple[list[Novelty], list[Sources]]:
        """How much of each text is copied, and from where, if asked for. Raises TextError."""
        where: dict[str, Any] = {"data": self.data, "note": console.say}
        of = self.sources_from
        return (
            self.opened.novelty(texts, **where) if self.novelty else [],
            self.opened.sources(texts, sources_from=of, **where) if self.sources else [],
        )

    def _show(self, found: Sequence[Sources]) -> None:
        """Writes the sources of each sample."""
        blocks = [block for each in found for block in each.blocks()]
        if self.form(FORMS) == "html":
            from gpt.view.html import html_card

            head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>sources</title>'
            self.write_text(f"{head}{html_card(blocks)}</html>\n")
        else:
            self.write_blocks(blocks)
