"""`gptx sample`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpt.commands import console, shared
from gpt.commands.options import options_of
from gpt.config import SampleConfig
from gpt.config.fields import Range, error_with_flags
from gpt.config.train import Data, OnDevice
from gpt.errors import ConfigError, GptxError, OutOfMemory

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT
    from gpt.reading.novelty import Novelty, Sources

SCHEMA = 1
FORMS = ("text", "html")
AT_ONCE = 1024  # sources to read before their targets are written
DIVIDER = "\n---\n"  # stands between two samples
REPEATED = 0.5  # seconds between two checks of a pipe to which nothing is written yet


class Sample(shared.Writing, shared.ModelCommand):
    """Continue a prompt, character by character.

    A model with an encoder reads a source from each line of the prompt and writes its target in a
    line: the likeliest one, character by character, unless --temperature or --beam is given. If
    sources come from a file or stdin, a line has the source, a TAB, the target, a TAB and the
    natural logarithm of the target's probability; a source that cannot be read is reported and left
    out, and the exit code is 3.
    """

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
    beam: Annotated[
        int | None, "With an encoder: width of the beam search; -n of its best targets.", Range(1)
    ] = None
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
        if self.opened.stored.config.encoder_layers:
            self._sample_targets(given)
            return
        shared.refuse_if((self.beam is not None, "--beam: only for a model with an encoder"))
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

    def _sample_targets(self, given: Mapping[str, str | Path | None]) -> None:
        """Samples from a model with an encoder: writes a line for each target."""
        shared.refuse_if(
            (self.novelty, "--novelty: not for a model with an encoder"),
            (self.sources, "--sources: not for a model with an encoder"),
            (bool(self.stop), "--stop: a target ends by itself; leave the option out"),
        )
        from gpt.reading.targets import target_settings

        model = self.opened
        settings = target_settings(model.config, self.beam, **self.drawing)
        if self.interactive:
            typed = any(value is not None for value in given.values())
            shared.refuse_if((typed, "-i: type the sources; leave the text out"))
            from gpt.commands.interactive import TargetSession, run_session

            asking = TargetSession(model, settings, unknown=self.unknown, beam=self.beam)
            run_session(asking, self.opened.title)
            return
        source = shared.one_source(given)
        if source is None:
            raise ConfigError(
                "no source: give one, or - to read one from each line of standard input"
            )
        failed = list[int]()

        def report(error: GptxError) -> None:
            console.say_error(error_with_flags(error))
            failed.append(error.exit_code)

        if isinstance(source, Path) or source == "-":
            number = 1
            for lines in console.read_lines(str(source), AT_ONCE):
                self._write_targets(lines, settings, number, report)
                number += len(lines)
        else:
            self._write_targets(source.removesuffix("\n").split("\n"), settings)
        if failed:
            raise typer.Exit(failed[0])

    def _write_targets(
        self,
        lines: list[str],
        settings: SampleConfig,
        number: int = 1,
        report: Callable[[GptxError], object] | None = None,
    ) -> None:
        """Writes the targets of these lines. number: the number of the first line. report: receives
        the errors of lines, of which there may be many; each target is then written with its source
        and log-probability. None: raises the first error, a TextError, and targets are written
        alone.
        """
        from gpt.corpus.pair_lines import RETURN
        from gpt.corpus.tables import source_of_columns
        from gpt.reading.targets import write_targets

        model, typed = self.opened, [line.removesuffix(RETURN) for line in lines]
        vocabulary, sources = model.vocabulary, typed
        if self.unknown == "skip":  # a note says what is left out of a line
            sources = [
                model.readable_text(source_of_columns(line), "skip", console.say, f"line {n}")
                for n, line in enumerate(typed, number)
            ]
        chosen = sources, settings, self.beam, number, "line", report, self.unknown
        found = write_targets(model.reader, vocabulary, *chosen)
        used = {name: value for name, value in vars(settings).items() if name not in ("n", "only")}
        made_by = {**used, "beam": self.beam, **self.opened.origin}
        text = ""
        for source, targets in zip(typed, found, strict=True):
            for sample, each in enumerate(targets):
                target, log = vocabulary.decode(each.ids, "target"), each.log_probability
                if self.as_json:
                    record = {"schema": SCHEMA, "sample": sample, "source": source}
                    record |= {"target": target, "nats": each.nats, "log_probability": log}
                    record |= {"ended": "end" if each.ended else "length", **made_by}
                    console.write_json(record)
                else:
                    text += f"{source}\t{target}\t{log:.4f}\n" if report else f"{target}\n"
        console.write(text)
