"""What `gptx eval` and `run.eval`, and `sample --novelty` and `run.novelty` compute: how well a
model predicts a text, compared with counting or another model; how much of it the model has
learned; what a text copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from gpt.blocks import Block, Facts, Records, Title
from gpt.checks import TableResult
from gpt.config import EvalConfig, ModelConfig, Unknown
from gpt.config.fields import require
from gpt.corpus.corpus import splits_of_run
from gpt.corpus.overlap import Learned, is_whole_text, share_learned
from gpt.counting.mixture import Mixture
from gpt.reading import novelty as copies
from gpt.reading.gpt import Reader
from gpt.reading.paired import Paired, compare_paired
from gpt.reading.score import Score, Surprisals, character_surprisals, score
from gpt.storage.losses import counting_facts, counting_record
from gpt.storage.manifest import Manifest, exposure_to_split
from gpt.vocabulary import Reading, Vocabulary, known_text, log_note

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
class Evaluation(TableResult):
    """How well a model predicts the text named `name`.

    score: the loss; its nats, bits and perplexity are attributes of this result, too. paired: the
    losses of this model and another one, and the interval of their difference. surprisals: the
    surprisal of each character, with `chars`. facts: what programs get to know about the text and
    the models. counting: the comparison with counts of n-grams, as text.
    """

    name: str
    score: Score
    facts: Mapping[str, Any]
    paired: Paired | None = None
    surprisals: Surprisals | None = None
    counting: str = ""

    def __repr__(self) -> str:
        return f"<Evaluation of {self.name}: {self.paired or self.score!r}>"

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

    def blocks(self) -> list[Block]:
        """The text with the characters that surprise most, and the loss with its comparisons."""
        more = {"in context": self._in_context, "to beat": self.counting}
        found = (self.paired or self.score).blocks()
        if self.surprisals is not None:
            found[1:1] = self.surprisals.blocks()[1:]
        return [_extended(block, self.name, more) for block in found]

    @property
    def _in_context(self) -> str:
        """The mean surprisal, if it differs from the loss over the windows of training."""
        if self.surprisals is None or self.surprisals.score.loss == self.score.loss:
            return ""
        return f"{self.surprisals.score.loss} (half a window of context or more)"

    def records(self) -> Records:
        """A row for each character, with `chars`."""
        found = Records() if self.surprisals is None else self.surprisals.records()
        return replace(found, facts=self.facts)


def _extended(block: Block, name: str, more: Mapping[str, str]) -> Block:
    """A block of a result, with the text's name and further facts added."""
    match block:
        case Title(_, facts):
            return Title(name, facts)
        case Facts(values):
            return Facts({**values, **more})
    return block


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
        found = self._known(self.run, text, name)
        facts = {"file": file, "split": None, **changes_record(found)}
        return self._evaluated(found.text, name, facts | self._learned(text, name), found.places)

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
            "; give a text",
        )
        name = "validation split" + (f" of {self.run.name}" if other else "")
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
                trained = ""
                if manifest and manifest.best_step == manifest.step:
                    nats, read, of = manifest.shown_loss
                    trained = f"; training measured {nats:.4f} nats on {read:,} of {of:,}"
                self.note(
                    f"note: scoring only the first {most:,} of {count:,} characters of the {name}; "
                    f"to score all, give them as a file{trained}"
                )
            name = f"the first {most:,} characters of the {name}"
        text = self.run.vocabulary.decode(ids)
        return self._evaluated(text, name, facts, manifest=manifest)

    def _known(self, saved: Model, text: str, name: str) -> Reading:
        """The text as a model reads it; a note says what the model reads in place of unknown
        characters. Raises TextError for an unknown character.
        """
        found = saved.vocabulary.read(text, self.unknown)
        return known_text(saved.vocabulary, found, self.note, name)

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
        if self.against and (its := max(0.0, learned(self.against) - share)):
            self.note(
                f"warning: {_part_of(name, its)} is in the text that {self.against.name} was "
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
        facts, model = {"scored": name, **facts}, self.run
        if self.against is not None:
            return self._compared(self.against, text, name, {"may_have_seen": None, **facts})
        ids, surprisals = model.vocabulary.encode(text), None
        found = score(model.reader, ids, model.mixture)
        facts |= found.numbers
        if self.options.chars:
            given = model.mixture, model.vocabulary
            each = character_surprisals(model.reader, ids, *given, overlapping=True)
            surprisals = replace(each, places=places)
            facts["in_context"] = surprisals.score.numbers
        measured = found.nats, found.characters, found.characters
        facts["counting"] = manifest and counting_record(manifest, measured)
        counting = counting_facts(manifest, measured) if manifest and manifest.baseline else ""
        return Evaluation(name, found, facts, surprisals=surprisals, counting=counting)

    def _compared(self, other: Model, text: str, name: str, facts: dict[str, Any]) -> Evaluation:
        """How another model predicts a text, compared with this one."""
        known = self._known(other, text, f"{name} for {other.name}")
        nats = []
        for each in (self.run, other):
            ids = each.vocabulary.encode(known.text)
            nats.append(character_surprisals(each.reader, ids, each.mixture).nats)
        found = compare_paired(nats[0], nats[1])
        found = replace(found, names=(self.run.title, other.title))
        facts |= {**found.numbers, "against": {**other.origin, **changes_record(known)}}
        return Evaluation(name, Score(found.first, found.characters), facts, paired=found)


def _part_of(name: str, share: float) -> str:
    """ "new.txt", "57 % of new.txt", "under 1 % of new.txt" """
    if share >= 0.995:
        return name
    return ("under 1" if share < 0.01 else f"{share:.0%}"[:-1]) + f" % of {name}"


def changes_record(found: Reading) -> dict[str, Any]:
    """For programs: which characters a model replaces, how many it leaves out, and which."""
    which = "".join(sorted({*found.left_out}))
    left_out = {"characters": len(found.left_out), "which": which}
    return {"left_out": left_out, "folded": [list(pair) for pair in found.folded]}


def find_copies(
    model: Model, texts: Sequence[str], data: Path, note: Callable[[str], object]
) -> list[copies.Novelty]:
    """How much of these texts is copied; see TrainedGPT.novelty. note: receives a note if only a
    part of the corpus is searched.
    """
    if isinstance(texts, str):  # it is a sequence of texts, too
        raise TypeError(f"texts: a list of texts is needed, not one text; use [{texts!r:.40}]")
    train, val = splits_of_run(model.name, model.recorded, data, "`novelty`")
    if len(train) > copies.MOST:
        note(f"note: searching for copies only in the first {copies.MOST:,} characters")
    searched, usual = train[: copies.MOST], val[: copies.MOST_USUAL]
    return copies.novelty(texts, searched, usual, model.vocabulary) if texts else []
