"""What `gptx eval` and `sample --novelty` do, for Python, too: how well a model predicts a text,
beside counting or beside another model; how much of it the model has learned; what a text copies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from gpt.blocks import Block, Facts, Records, Title
from gpt.checks import Result, checks_arguments
from gpt.config.fields import require
from gpt.counting.baseline import count_baseline
from gpt.counting.tables import MOST_CHARACTERS
from gpt.errors import TextError
from gpt.loading import Saved, read
from gpt.reading import novelty as copies
from gpt.reading.paired import Paired, paired
from gpt.reading.pairs import PairScores
from gpt.reading.score import WORST, Score, Surprises
from gpt.storage.losses import comparison, comparison_record
from gpt.trained import TrainedGPT
from gpt.vocabulary import FIRST, LAST, known_text

if TYPE_CHECKING:
    from gpt.storage.manifest import Baseline
    from gpt.vocabulary import Ids

MOST_SHOWN = 10_000  # characters of the validation split whose surprises are computed
MOST_SCORED = 1_000_000  # characters of a longer split that are scored
MOST_PAIRS = 10_000  # lines of a longer validation split that are scored
SPLIT_ADVICE = ("; restore it, or give a text", "; give a text")

Model: TypeAlias = TrainedGPT | str | Path


@dataclass(frozen=True, repr=False)
class Evaluation(Result):
    """How well a model predicts the text that is called `name`.

    found: the loss; of pairs, also what the model writes; with another model, the difference of
    both. surprises: of each character, if they were asked for. counting: the comparison with counts
    of n-grams, in words, "" without one. facts: for programs, about the text and the models. every:
    whether every pair is shown.
    """

    name: str
    found: Score | PairScores | Paired
    facts: Mapping[str, Any]
    surprises: Surprises | None = None
    counting: str = ""
    every: bool = False

    def __repr__(self) -> str:
        return f"<Evaluation of {self.name}: {self.found!r}>"

    @property
    def in_context(self) -> str:
        """The loss with at least half a window of context, if it differs from training's."""
        if self.surprises is None or not isinstance(self.found, Score):
            return ""
        loss = self.surprises.score.loss
        return "" if loss == self.found.loss else f"{loss} (half a window of context or more)"

    def blocks(self, most: int = WORST) -> list[Block]:
        """The text or its pairs, the `most` worst of these, and the loss beside what there is to
        compare it with.
        """
        if isinstance(self.found, PairScores):
            found = self.found.blocks(most, self.every)
        else:
            found = self.found.blocks()
        if self.surprises is not None:
            found[1:1] = self.surprises.blocks(most)[1:]
        return [*map(self._extended, found)]

    def _extended(self, block: Block) -> Block:
        """A block of the result with what only the evaluation knows."""
        match block:
            case Title(_, facts):
                return Title(self.name, facts)
            case Facts(values):
                return Facts({**values, "in context": self.in_context, "to beat": self.counting})
        return block

    def records(self, most: int = WORST) -> Records:
        """A row for each character, or for each pair, if they were asked for; else for the `most`
        worst pairs.
        """
        if self.surprises is not None:
            return replace(self.surprises.records(), facts=self.facts)
        if isinstance(self.found, PairScores):
            found = self.found.records(None if self.every else most, self.every)
            return replace(found, facts=self.facts)
        return Records(facts=self.facts)


def _log(line: str) -> None:
    logging.getLogger("gpt").warning("%s", line)  # Python writes it to stderr


@dataclass(frozen=True)
class Scorer:
    """Evaluates texts with one model, beside another one if there is `against`.

    chars: also the surprise of every character. pairs: the texts have pairs, as those of a model
    with an encoder do; beam: targets are written by a beam search of this width. baseline: compares
    every text with n-gram counts of the training text. unknown: "error", or "skip" for the texts
    without the characters that a model does not know. data: the folder of the encoded corpora.
    note: receives notes and warnings. Raises ConfigError for options that exclude each other,
    TextError if `baseline` cannot read the corpus.
    """

    run: Saved
    against: Saved | None = None
    chars: bool = False
    pairs: bool = False
    beam: int | None = None
    baseline: bool = False
    unknown: str = "error"
    data: Path = Path("data")
    note: Callable[[str], object] = _log

    def __post_init__(self) -> None:
        compares = self.against is not None
        one = "give one of them"
        require(not (self.chars and compares), "", f"`chars` and `against`: {one}")
        require(not (self.baseline and compares), "", f"`baseline` and `against`: {one}")
        require(self.beam is None or self.of_pairs, "beam", "only for pairs; see `pairs`")
        require(not (self.baseline and self.of_pairs), "baseline", "not for pairs")
        if self.against is not None:
            self._require_comparable(self.against)
        _ = self._counted  # raises, before the first text

    def _require_comparable(self, other: Saved) -> None:
        """Raises ConfigError if the other model cannot read the texts."""
        has_encoder = other.stored.config.encoder_layers > 0
        mixed = (
            f"{other.name} has an encoder and reads pairs, {self.run.name} has none; compare them "
            "on pairs, with `pairs`"
        )
        require(self.of_pairs or not has_encoder, "against", mixed)
        knows = has_encoder or not other.stored.vocabulary.unknown(FIRST + LAST)
        untrained = (
            f"{other.name} was not trained on pairs: it does not know TAB and NEWLINE; compare it "
            "on a text"
        )
        require(knows or not self.of_pairs, "against", untrained)

    @property
    def of_pairs(self) -> bool:
        """Whether the texts have pairs."""
        return self.pairs or self.run.stored.config.encoder_layers > 0

    @cached_property
    def _counted(self) -> Ids | None:
        """The training text, if its n-grams are counted. Raises TextError."""
        if not self.baseline:
            return None
        train, _ = self.run.splits(self.data, "`baseline`")
        if len(train) > MOST_CHARACTERS:
            self.note(
                f"note: counting only the last {MOST_CHARACTERS:,} characters of the training text"
            )
        return train

    def text(self, text: str, name: str = "the text", file: str | None = None) -> Evaluation:
        """Evaluates a text. name: what it is called; file: for programs. Raises TextError."""
        if self.of_pairs:
            facts = self._facts_of(text, name, file)
            known = self._known(self.run, text, name) if self.unknown == "skip" else text
            return self._pairs(known, name, facts)
        known = self._known(self.run, text, name)
        facts = self._facts_of(text, name, file)
        vocabulary = self.run.model.vocabulary
        places = vocabulary.known(text).nonzero()[0] if len(known) < len(text) else None
        return self._plain(vocabulary.encode(known), name, facts, places)

    def split(self) -> Evaluation:
        """Evaluates the validation split; of a long one, its first characters, or pairs. Raises
        TextError.
        """
        manifest, other = self.run.manifest, self.against
        _, ids = self.run.splits(self.data, "the validation split", *SPLIT_ADVICE)
        name = "validation split" + (f" of {self.run.name}" if other else "")
        facts: dict[str, Any] = {"file": None, "split": "validation"}
        if other is not None:
            why = other.exposure_to_split(self.run)
            facts["may_have_seen"] = other.name if why else None
            if why:
                self.note(f"warning: {why}")
        baseline = manifest.baseline if manifest else None
        if self.of_pairs:
            text = self.run.model.vocabulary.decode(ids)
            lines = text.removesuffix(LAST).split(LAST)
            if len(lines) > MOST_PAIRS:
                self._note_part(f"{MOST_PAIRS:,}", f"{len(lines):,} pairs", name, "pairs")
                name = f"the first {MOST_PAIRS:,} pairs of the {name}"
                text = LAST.join(lines[:MOST_PAIRS])
            return self._pairs(text, name, facts, baseline)
        most = MOST_SHOWN if self.chars else MOST_SCORED + 1  # the first one is context only
        if len(ids) > most:
            if not self.chars:
                trained = ""
                if manifest and manifest.best_step == manifest.step:
                    nats, characters, of = manifest.shown_loss
                    trained = f"; training measured {nats:.4f} nats on {characters:,} of {of:,}"
                of_all = f"{len(ids):,} characters"
                self._note_part(f"{MOST_SCORED:,}", of_all, name, "text", trained)
            name = f"the first {most - (not self.chars):,} characters of the {name}"
        return self._plain(ids[:most], name, facts, baseline=baseline)

    def _note_part(self, most: str, of: str, name: str, what: str, more: str = "") -> None:
        """Says that only a part of the validation split is scored."""
        self.note(
            f"note: scoring only the first {most} of {of} of the {name}; to score all, give the "
            f"validation {what} as a file{more}"
        )

    def _known(self, saved: Saved, text: str, name: str) -> str:
        """The text without the characters that a model does not know; says how many these are."""
        return known_text(saved.model.vocabulary, text, self.unknown, self.note, name)

    def _facts_of(self, text: str, name: str, file: str | None) -> dict[str, Any]:
        """What programs learn about a text. trained_on: whether at least half of it is in the text
        that the model was trained on; learned: how much, from 0 to 1. Warns of what is.
        """

        def learned(by: Saved) -> float:
            return 1.0 if by.is_corpus(text) else by.share_learned(text, self.data)

        share = learned(self.run)
        seen = share >= 0.5
        if share:
            self.note(
                f"warning: {_part_of(name, share)} is in the text that this run was trained on, "
                "so its loss is of text that the model has learned and says nothing about new texts"
                + "; --baseline is left out, as counting saw the text, too"
                * (self.baseline and seen)
            )
        if self.against and (its := max(0.0, learned(self.against) - share)):
            self.note(
                f"warning: {_part_of(name, its)} is in the text that {self.against.name} was "
                "trained on, so this comparison favours it"
            )
        facts: dict[str, Any] = {"file": file, "split": None}
        facts["left_out"] = left_out(self.run.model, text)
        facts |= {"trained_on": seen, "learned": share}
        return facts | ({"may_have_seen": None} if self.against else {})

    def _plain(
        self,
        ids: Ids,
        name: str,
        facts: dict[str, Any],
        places: Any = None,
        baseline: Baseline | None = None,
    ) -> Evaluation:
        """Evaluates the ids of a text. places: where in its file each of them stands. baseline:
        counting's loss on this text.
        """
        facts = {"scored": name, **facts}
        model = self.run.model
        if self.against is not None:
            text, other = model.vocabulary.decode(ids), self.against
            found = model.compare(other.model, self._known(other, text, f"{name} for {other.name}"))
            its = {**other.origin, "left_out": left_out(other.model, text)}
            named = replace(found, names=(self.run.title, other.title))
            return Evaluation(name, named, facts | {"against": its, **found.numbers})
        score, surprises = model.score(ids), None
        facts |= score.numbers
        if self.chars:
            surprises = replace(model.surprises(ids), places=places)
            facts["in_context"] = surprises.score.numbers
        same = baseline is not None and baseline.scored == score.characters
        if not same and self._counted is not None and not facts.get("trained_on"):
            baseline = count_baseline(self._counted, ids, len(model.vocabulary))
        facts["counting"] = comparison_record(score.nats, score.characters, baseline)
        return Evaluation(name, score, facts, surprises, self._beside(baseline, score))

    def _pairs(
        self, text: str, name: str, facts: dict[str, Any], baseline: Baseline | None = None
    ) -> Evaluation:
        """Evaluates a text of pairs. baseline: counting's loss on its targets."""
        beam = self.beam or 1
        found = self.run.model.score_pairs(text, beam=beam)
        facts = {"scored": name, **facts, "beam": beam, **found.numbers}
        if self.against is None:
            counting = self._beside(baseline, found.score)
            return Evaluation(name, found, facts, counting=counting, every=self.chars)
        other = self.against
        try:
            its = other.model.score_pairs(text, beam=beam)
        except TextError as error:
            raise TextError(f"{name} for {other.name}: {error}") from None
        both = paired(found.nats, its.nats, (self.run.title, other.title))
        facts |= {**both.numbers, "against": {**other.origin, **its.numbers}}
        return Evaluation(name, replace(both, pairs=(found, its)), facts)

    def _beside(self, baseline: Baseline | None, score: Score) -> str:
        """A loss beside counting n-grams, in words; "" without."""
        if baseline is None:
            return ""
        return comparison(score.nats, score.characters, baseline, self.run.manifest)


def _part_of(name: str, share: float) -> str:
    """ "new.txt", "57 % of new.txt", "under 1 % of new.txt" """
    if share >= 0.995:
        return name
    return ("under 1" if share < 0.01 else f"{share:.0%}"[:-1]) + f" % of {name}"


def left_out(model: TrainedGPT, text: str) -> dict[str, Any]:
    """For programs: how many characters of a text the model does not know, and which."""
    count = int((~model.vocabulary.known(text)).sum())
    return {"characters": count, "which": model.vocabulary.unknown(text) if count else ""}


@checks_arguments
def evaluate(
    run: TrainedGPT | str | Path,
    text: str | None = None,
    *,
    against: TrainedGPT | str | Path | None = None,
    chars: bool = False,
    pairs: bool = False,
    beam: int | None = None,
    baseline: bool = False,
    unknown: str = "error",
    data: str | Path = "data",
) -> Evaluation:
    """How well a model predicts a text, or without one the validation split of its run; `gptx eval`
    shows the same. Logs a warning if the model has learned some of the text.

    run, against: models, or paths that `load` opens. The options are those of Scorer. Raises
    TextError, ConfigError, CheckpointError.
    """
    other = None if against is None else _saved(against)
    options: dict[str, Any] = {"chars": chars, "pairs": pairs, "beam": beam, "baseline": baseline}
    scorer = Scorer(_saved(run), other, **options, unknown=unknown, data=Path(data))
    return scorer.split() if text is None else scorer.text(text)


def _saved(model: Model) -> Saved:
    return Saved.of(model) if isinstance(model, TrainedGPT) else read(model)


def novelties(
    run: Saved, texts: Sequence[str], data: Path, note: Callable[[str], object] = _log
) -> list[copies.Novelty]:
    """The novelty of each text: its longest copy from the text that a run was trained on.

    note: receives a note if only a part of that text is searched. Raises TextError without it.
    """
    train, val = run.splits(data, "`novelty`", no_run="; give its run with `run`")
    if len(train) > copies.MOST:
        note(f"note: searching for copies only in the first {copies.MOST:,} characters")
    searched, usual = train[: copies.MOST], val[: copies.MOST_USUAL]
    return copies.novelty(texts, searched, usual, run.model.vocabulary)


@checks_arguments
def novelty(
    run: TrainedGPT | str | Path, text: str, *, data: str | Path = "data"
) -> copies.Novelty:
    """How much of a text, such as a sample without its prompt, a run copied from the text that it
    was trained on. Raises TextError without that text.
    """
    (found,) = novelties(_saved(run), [text], Path(data))
    return found
