"""What `gptx eval` and `run.eval`, and `sample --novelty` and `run.novelty` compute: how well a
model predicts a text, compared with counting or another model; how much of it the model has
learned; what a text copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from gpt.config import EvalConfig, ModelConfig, Unknown
from gpt.config.fields import require
from gpt.corpus.corpus import splits_of_run
from gpt.corpus.overlap import Learned, is_whole_text, share_learned
from gpt.counting.mixture import Mixture
from gpt.reading.gpt import Reader
from gpt.reading.novelty import MOST, Novelty, longest_copies
from gpt.reading.paired import Paired, compare_paired
from gpt.reading.score import Score, Surprisals, character_surprisals, score
from gpt.reading.writing import Sample
from gpt.show.result import Column, Passage, Result, short_number, signed_number
from gpt.storage.losses import counting_facts, counting_record
from gpt.storage.manifest import Manifest, exposure_to_split
from gpt.vocabulary import Reading, Vocabulary, known_text, log_note
from gpt.words import bits, counted

FULL_COLOUR = 10  # bits of surprisal that have the strongest colour, so a digit is one bit
MOST_SHOWN = 10_000  # characters of the validation split with surprisals
MOST_SCORED = 1_000_000  # characters to score in a longer split


class Model(Protocol):
    """What an evaluation needs of a TrainedGPT."""

    name: str
    config: ModelConfig
    vocabulary: Vocabulary

    @property
    def reader(self) -> Reader: ...
    @property
    def mixture(self) -> Mixture | None: ...
    @property
    def recorded(self) -> Manifest | None: ...
    @property
    def title(self) -> str: ...
    @property
    def origin(self) -> dict[str, Any]: ...
    def learned(self, data: Path) -> Learned: ...


@dataclass(frozen=True, repr=False)
class Evaluation(Result):
    """How well a model predicts the text named `name`.

    score: the loss; its nats, bits and perplexity are attributes of this result, too. paired: the
    losses of this model and of another one, whose names are `models`. surprisals: the surprisal of
    each character, with `chars`. to_beat: the loss of counting, on the validation split. about:
    what programs get to know about the text and the models.
    """

    name: str
    score: Score
    about: Mapping[str, Any]
    paired: Paired | None = None
    models: tuple[str, str] = ("", "")
    surprisals: Surprisals | None = None
    to_beat: str = ""

    COLUMNS = (
        Column("bits", "bits", short_number, right=True),
        Column("at", "at", "{:,}".format, right=True),
        Column("character", "character"),
        Column("expected", "expected"),
        Column("probability", "with", short_number, right=True),
        Column("around", "in the text"),
    )

    @property
    def title(self) -> str:
        return f"{self.name} · {counted(self.score.characters, 'character')}"

    @property
    def nats(self) -> float:
        """Nats per character."""
        return self.score.nats

    @property
    def bits(self) -> float:
        """Bits per character."""
        return self.score.bits

    @property
    def perplexity(self) -> float:
        """The number of equally likely characters with the same loss."""
        return self.score.perplexity

    def facts(self, all: bool = False) -> Mapping[str, str]:
        if self.paired is not None:
            return self._compared
        facts = {
            "loss": f"{self.nats:.4f} nats a character ({self.bits:.3f} bits)",
            "that is": f"as uncertain as among {self.perplexity:.1f} equal characters",
        }
        if self.score.gpt is not None:
            facts["GPT alone"] = f"{self.score.gpt:.4f} nats"
        if self.to_beat:
            facts["to beat"] = self.to_beat
        elif self.score.counting is not None:
            facts["counting"] = f"{self.score.counting:.4f} nats, alone"
        if self.surprisals is not None and self.surprisals.score.nats != self.nats:
            facts["in context"] = (
                f"{self.surprisals.score.nats:.4f} nats, with half a window or more"
            )
        return facts

    @property
    def _compared(self) -> Mapping[str, str]:
        """The losses of two models, and their difference with its interval."""
        assert self.paired is not None
        losses = (self.paired.first, self.paired.second)
        facts = {
            name: f"{nats:.4f} nats a character ({bits(nats):.3f} bits)"
            for name, nats in zip(self.models, losses, strict=True)
        }
        facts["difference"] = signed_number(self.paired.difference, 4)
        if self.paired.interval is not None:
            ends = " to ".join(signed_number(end, 4) for end in self.paired.interval)
            facts["difference"] += f", 95 % interval {ends}"
        return facts

    def passage(self) -> Passage | None:
        """The text, coloured by surprisal."""
        if self.surprisals is None:
            return None
        shades = bits(self.surprisals.nats) / FULL_COLOUR
        meaning = "colours, or digits: bits of surprisal, 0 to 9 or more"
        return Passage(self.surprisals.text, [math.nan, *shades.tolist()], meaning)

    def shown(self, all: bool = False) -> Sequence[Any]:
        """The characters that surprise most."""
        return [] if self.surprisals is None else self.surprisals.worst

    def sentence(self, all: bool = False) -> str:
        if self.paired is None:
            return ""
        if self.paired.sure:
            return f"{self.models[int(self.paired.difference < 0)]} predicts better"
        if self.paired.detectable is None:
            return "too close to tell: the text is too short for an interval"
        return (
            "too close to tell: this text can only show differences of "
            f"{self.paired.detectable:.4f} nats or more"
        )

    @property
    def rows(self) -> Sequence[Any]:
        """A row for each character after the first, with `chars`."""
        return [] if self.surprisals is None else self.surprisals.rows

    def record(self) -> Mapping[str, Any]:
        return self.about


@dataclass(frozen=True)
class Scorer:
    """Evaluates texts with one model and, if `against` is given, with another one.

    unknown: what to do with characters that a model does not know; see TrainedGPT.sample. data: the
    folder of the encoded corpora. note: receives notes and warnings. Raises ConfigError for options
    that exclude each other.
    """

    run: Model
    against: Model | None = None
    options: EvalConfig = field(default_factory=EvalConfig)
    unknown: Unknown = "fold"
    data: Path = Path("data")
    note: Callable[[str], object] = log_note

    def __post_init__(self) -> None:
        alone = self.against is None or not self.options.chars
        require(alone, "", "`chars` and `against`: give one of them")

    def text(self, text: str, name: str = "the text", file: str | None = None) -> Evaluation:
        """Evaluates a text. name: its name for the user; file: its name for programs. Raises
        TextError.
        """
        reading = self._known(self.run, text, name)
        facts = {"file": file, "split": None, **changes_record(reading)}
        facts |= self._learned(text, name)
        return self._evaluated(reading.text, name, facts, places=reading.places)

    def split(self) -> Evaluation:
        """Evaluates the validation split; of a long one, only its first characters.

        Raises TextError.
        """
        manifest, other = self.run.recorded, self.against
        _, ids = splits_of_run(
            self.run.name,
            manifest,
            self.data,
            "the validation split",
            "; or give a text",
        )
        name = f"validation split of {self.run.name}"
        facts: dict[str, Any] = {"file": None, "split": "validation"}
        if other is not None:
            why = manifest and exposure_to_split(other.name, other.recorded, manifest)
            facts["may_have_seen"] = other.name if why else None
            if why:
                self.note(f"warning: {why}")
        chars, count = self.options.chars, len(ids)
        most, context = MOST_SHOWN if chars else MOST_SCORED, not chars
        if count > most + context:  # the first character is context only
            ids = ids[: most + context]
            if not chars:
                self.note(
                    f"note: scoring only the first {most:,} of {count:,} characters of the {name}; "
                    "to score all, give them as a file"
                )
            name = f"the first {most:,} characters of the {name}"
        text = self.run.vocabulary.decode(ids)
        return self._evaluated(text, name, facts, manifest=manifest)

    def _known(self, saved: Model, text: str, name: str) -> Reading:
        """The text as a model reads it; a note says what the model reads in place of unknown
        characters. Raises TextError for an unknown character.
        """
        reading = saved.vocabulary.read(text, self.unknown)
        return known_text(saved.vocabulary, reading, self.note, name)

    def _learned(self, text: str, name: str) -> dict[str, Any]:
        """How much of a text the model has learned, from 0 to 1 (learned), and whether that is half
        or more (trained_on). Warns if so, for both models.
        """

        def learned(by: Model) -> float:
            known = by.recorded
            if known is None:
                return 0.0
            whole = is_whole_text(text, known.texts(by.name))
            return 1.0 if whole else share_learned(text, by.learned(self.data))

        share = learned(self.run)
        if share:
            self.note(
                f"warning: {_part_of(name, share)} is in the text that this run was trained on, "
                "so its loss is of text that the model has learned and says nothing about new texts"
            )
        more = learned(self.against) - share if self.against else 0.0
        if self.against and more > 0:
            self.note(
                f"warning: {_part_of(name, more)} is in the text that {self.against.name} was "
                "trained on, so this comparison favours it"
            )
        return {"trained_on": share >= 0.5, "learned": share}

    def _evaluated(
        self,
        text: str,
        name: str,
        facts: dict[str, Any],
        places: npt.NDArray[Any] | None = None,
        manifest: Manifest | None = None,
    ) -> Evaluation:
        """places: each character's position in its file. manifest: the run's, if the text is its
        validation split, on which counting was measured, too.
        """
        facts = {"scored": name, **facts}
        if self.against is not None:
            return self._compared(self.against, text, name, {"may_have_seen": None, **facts})
        model, surprisals = self.run, None
        ids = model.vocabulary.encode(text)
        loss = score(model.reader, ids, model.mixture)
        facts |= loss.numbers
        if self.options.chars:
            surprisals = character_surprisals(
                model.reader, ids, model.mixture, model.vocabulary, overlapping=True
            )
            surprisals = replace(surprisals, places=places)
            facts["in_context"] = surprisals.score.numbers
        measured = loss.nats, loss.characters, loss.characters
        facts["counting"] = manifest and counting_record(manifest, measured)
        to_beat = counting_facts(manifest, measured) if manifest and manifest.baseline else ""
        return Evaluation(name, loss, facts, surprisals=surprisals, to_beat=to_beat)

    def _compared(self, other: Model, text: str, name: str, facts: dict[str, Any]) -> Evaluation:
        """How another model predicts a text, compared with this one."""
        reading = self._known(other, text, f"{name} for {other.name}")
        nats = []
        for model in (self.run, other):
            ids = model.vocabulary.encode(reading.text)
            nats.append(character_surprisals(model.reader, ids, model.mixture).nats)
        paired = compare_paired(nats[0], nats[1])
        facts |= {**paired.numbers, "against": {**other.origin, **changes_record(reading)}}
        loss = Score(paired.first, paired.characters)
        return Evaluation(name, loss, facts, paired, models=(self.run.title, other.title))


def _part_of(name: str, share: float) -> str:
    """ "new.txt", "57 % of new.txt", "under 1 % of new.txt" """
    if share >= 0.995:
        return name
    return ("under 1" if share < 0.01 else f"{share:.0%}"[:-1]) + f" % of {name}"


def changes_record(reading: Reading) -> dict[str, Any]:
    """For programs: which characters a model replaces, how many it leaves out, and which."""
    which = "".join(sorted({*reading.left_out}))
    left_out = {"characters": len(reading.left_out), "which": which}
    return {"left_out": left_out, "folded": [list(pair) for pair in reading.folded]}


def find_copies(
    model: Model, texts: Sequence[str], data: Path, note: Callable[[str], object]
) -> list[Novelty]:
    """How much of these texts is copied; see TrainedGPT.novelty. note: receives a note if only a
    part of the corpus is searched.
    """
    if isinstance(texts, str):  # it is a sequence of texts, too
        raise TypeError(f"texts: a list of texts is needed, not one text; use [{texts!r:.40}]")
    train, _ = splits_of_run(model.name, model.recorded, data, "`novelty`")
    if len(train) > MOST:
        note(f"note: searching for copies only in the first {MOST:,} characters")
    new = [text.new if isinstance(text, Sample) else text for text in texts]
    copies = longest_copies(new, train[:MOST], model.vocabulary)
    return [Novelty(len(text), copy) for text, copy in zip(new, copies, strict=True)]
