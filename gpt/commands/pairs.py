"""`gptx sample` and `gptx eval` for pairs: targets of sources, and scores of both.

For models with an encoder; `eval --pairs` also for decoder-only models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gpt.commands.common import console, shared
from gpt.commands.interactive import HELP, Talk, talk
from gpt.config import SampleConfig
from gpt.errors import ConfigError, TextError

if TYPE_CHECKING:
    from gpt.commands.evaluate import Eval
    from gpt.commands.sample import Sample
    from gpt.loading import Saved
    from gpt.reading.pairs.score import PairScores

SCHEMA = 1
AT_ONCE = 1024  # sources that are read before their targets are written
MOST_PAIRS = 10_000  # lines of a longer validation split that are scored
WORST = 10  # pairs that eval lists by default
SPLIT_ADVICE = ("; restore it, or give a FILE", "; give a FILE")


def sample_targets(command: Sample) -> None:
    """`gptx sample` with a model that has an encoder: writes a line for each target."""
    shared.refuse(
        (command.novelty, "--novelty: not for a model with an encoder"),
        (bool(command.stop), "--stop: a target ends by itself; leave the option out"),
        (command.device not in ("auto", "cpu"), "--device: targets are computed on the CPU"),
    )
    model = command.opened.model
    settings = model.target_settings(command.beam, **command.drawing)
    given = {"TEXT": command.text, "--prompt": command.prompt, "--file": command.file}
    texts = {name: value for name, value in given.items() if value is not None}
    if command.interactive:
        shared.refuse((bool(texts), "-i: type the sources; leave the text out"))
        asking = AskTargets(model, settings, unknown=command.unknown, beam=command.beam)
        talk(asking, command.opened.title)
        return
    shared.refuse(
        (not texts, "no source: give one, or - to read one from each line of standard input"),
        (len(texts) > 1, f"{' and '.join(texts)}: give the text once"),
    )
    (source,) = texts.values()
    number = 1
    for lines in _lines_of(source):
        if command.unknown == "skip":
            lines = [shared.known_text(model, line, "skip", f"line {number}") for line in lines]
        _write(command, lines, settings, number)
        number += len(lines)


def _lines_of(source: str | Path) -> Iterator[list[str]]:
    """The sources of an option, many at once: the lines of a file, stdin or a text."""
    if isinstance(source, Path) or source == "-":
        return console.read_lines(str(source), AT_ONCE)
    return iter([source.removesuffix("\n").split("\n")])


def _write(command: Sample, lines: list[str], settings: SampleConfig, number: int) -> None:
    """Writes the targets of these lines. number: of the first one. Raises TextError."""
    model = command.opened.model
    found = model.written(lines, settings, command.beam, number, "line")
    decode = model.vocabulary.decode
    if not command.as_json:
        console.stream("".join(f"{decode(each.ids)}\n" for targets in found for each in targets))
        return
    used = {name: value for name, value in vars(settings).items() if name not in ("n", "only")}
    made_by = {**used, "beam": command.beam, **command.opened.origin}
    for line, targets in zip(lines, found, strict=True):
        for sample, each in enumerate(targets):
            record = {"schema": SCHEMA, "sample": sample, "source": line.removesuffix("\r")}
            record |= {"target": decode(each.ids), "nats": each.nats}
            record |= {"ended": "end" if each.ended else "length", **made_by}
            console.write_json(record)


@dataclass
class AskTargets(Talk):
    """`sample -i` with a model that has an encoder: a typed line is a source, whose target is
    written. The text so far is the pairs, a line each.
    """

    beam: int | None = None
    hint: ClassVar[str] = "type a source, Enter: its target"
    help: ClassVar[Mapping[str, str]] = {
        "source, Enter": "writes its target; // begins with /",
        "Enter": "writes a target of the last source; with a temperature, another one",
        **{name: HELP[name] for name in ("/show", "/save FILE", "/set", "/quit")},
        "/temperature 1": "changes a setting; so do /length, /seed and the filters; none removes a "
        "filter, and without a value the present one is shown",
        "/undo": "removes the last pair",
        "/new": "removes all pairs",
    }

    def turn(self, added: str) -> None:
        """Writes a source's target; without a source, another one of the last source."""
        if not added and not self.text:
            raise ConfigError("type a source")
        source = added or self.text.removesuffix("\n").split("\n")[-1].split("\t")[0]
        settings = self._next_settings()
        ((best, *_),) = self.model.written([source], settings, self.beam)
        target = self.model.vocabulary.decode(best.ids)
        self.before.append(self.text)
        self.text += f"{source}\t{target}\n"
        console.stream(target)

    def _set_stop(self, raw: str) -> None:
        raise ConfigError("a target ends by itself")

    def with_setting(self, name: str, value: float | None) -> SampleConfig:
        """The settings with another value of one. Raises ConfigError."""
        options: dict[str, Any] = {**vars(self.settings), name: value}
        return self.model.target_settings(self.beam, **options)


def _pairs_of_split(command: Eval) -> tuple[str, str]:
    """A label and a text: the lines of the validation split; of many, the first ones. Raises
    TextError.
    """
    _, ids = command.opened.splits(command.data, "the validation split", *SPLIT_ADVICE)
    text = command.opened.model.vocabulary.decode(ids)
    label = "validation split" + f" of {command.opened.name}" * bool(command.against)
    lines = text.removesuffix("\n").split("\n")
    if len(lines) > MOST_PAIRS:
        console.say(
            f"note: scoring only the first {MOST_PAIRS:,} of {len(lines):,} pairs of the {label}; "
            "to score all, give the validation pairs as a file"
        )
        label, text = (
            f"the first {MOST_PAIRS:,} pairs of the {label}",
            "\n".join(lines[:MOST_PAIRS]),
        )
    return label, text


def eval_pairs(command: Eval, name: str | None, may_have_seen: str | None) -> None:
    """`gptx eval` on a file of pairs, or on the validation split: scores it and writes the result.
    Raises TextError.
    """
    from gpt.commands import evaluate
    from gpt.view.terminal import pairs, scores, surprise

    model = command.opened.model
    if name is None:
        label, text = _pairs_of_split(command)
        facts: dict[str, Any] = {"file": None, "split": "validation"}
    else:
        label, text = shared.label_of(name), console.read_text(name)
        facts = command.facts(name, text)
        if command.unknown == "skip":
            text = shared.known_text(model, text, "skip", label)
    if command.other is not None:
        facts["may_have_seen"] = may_have_seen and command.other.name
    found = model.score_pairs(text, beam=command.beam or 1)
    record = {"schema": evaluate.SCHEMA, "scored": label, **facts}
    record |= {**command.opened.origin, "beam": command.beam or 1}
    record |= pairs.pairs_record(found)
    most = WORST if command.worst is None else command.worst
    line, lines, page = pairs.pairs_line(found), [], command.page(precision=2)
    place = "line" if name else "validation pair"
    if command.other is not None:
        line = _against(command, command.other, found, label, text, record)
    elif command.as_json:
        numbered = place.replace(" ", "_")
        worst = pairs.each_pair(found, False, numbered)
        record["worst"] = sorted(worst, key=lambda each: -each["nats"])[:most]
        if command.chars:
            record["per_pair"] = pairs.each_pair(found, True, numbered)
    else:
        if command.chars:
            digits = not console.colours(command.color)
            lines = [*pairs.coloured_pairs(found, page, digits), *surprise.scale(page, digits)]
        lines += pairs.worst_pairs(found, most, page, place)
        baseline = facts.get("split") and command.opened.manifest
        if baseline and baseline.baseline:
            score = found.score
            compared = (score.nats, score.characters, baseline.baseline, baseline)
            line += f" · {scores.comparison(*compared)}"
    if command.as_json:
        command.write_json(record)
    else:
        command.write_lines(lines)
        console.tell(f"{label}: {line}")


def _against(
    command: Eval,
    other: Saved,
    found: PairScores,
    label: str,
    text: str,
    record: dict[str, Any],
) -> str:
    """How another model predicts the same pairs: a line; puts it into the record, too."""
    from gpt.reading.paired import paired
    from gpt.view.terminal import pairs, scores

    opened = command.opened
    try:
        its = other.model.score_pairs(text, beam=command.beam or 1)
    except TextError as error:
        raise TextError(f"{label} for {other.name}: {error}") from None
    compared = paired(found.nats, its.nats, (opened.name, other.name))
    first, second = names = [opened.name, other.name]
    if first == second:
        first, second = names = [f"step {each.stored.step:,}" for each in (opened, other)]
    record |= scores.paired_record(compared)
    record["against"] = {**other.origin, **pairs.pairs_record(its)}
    shares = (pairs.exact_share(each) for each in (found, its))
    exact = ", ".join(f"{name} {share}" for name, share in zip(names, shares, strict=True))
    return f"exact: {exact} · {scores.paired_line(first, second, compared)}"
