"""What `gptx eval` and `sample --novelty` do, for Python, too: how well a model predicts a text,
beside counting or another model; how much of it the model has learned; what a text copies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpt.blocks import Block, Facts, Records, Title
from gpt.checks import Result, checks_arguments
from gpt.config.fields import require
from gpt.corpus.halves import splits_of_run
from gpt.corpus.overlap import is_whole_text, learned_texts, share_learned
from gpt.counting.baseline import count_baseline
from gpt.counting.tables import MOST_CHARACTERS
from gpt.errors import TextError
from gpt.interface.trained import TrainedGPT, read
from gpt.reading import novelty as copies
from gpt.reading.paired import Paired, paired
from gpt.reading.pairs import PairScores
from gpt.reading.sampler import Sample
from gpt.reading.score import WORST, Score, Surprises
from gpt.storage.losses import comparison, comparison_record
from gpt.storage.manifest import exposure_to_split
from gpt.storage.run import Run
from gpt.vocabulary import FIRST, LAST, known_text

if TYPE_CHECKING:
    import numpy.typing as npt

    from gpt.storage.manifest import Baseline
    from gpt.vocabulary import Ids

MOST_SHOWN = 10_000  # characters of the validation split whose surprises are computed
MOST_SCORED = 1_000_000  # characters of a longer split that are scored
MOST_PAIRS = 10_000  # lines of a longer split of pairs that are scored


@dataclass(frozen=True, repr=False)
class Evaluation(Result):
    """How well a model predicts the text that is called `name`.

    found: the loss. For pairs, it also has what the model writes; with another model, it has the
    losses of both. facts: what programs get to know about the text and the models. surprises: those
    of each character, if the caller asked for them. every: whether the caller asked for each pair.
    counting: the comparison with counts of n-grams, in words.
    """

    name: str
    found: Score | PairScores | Paired
    facts: Mapping[str, Any]
    surprises: Surprises | None = None
    every: bool = False
    counting: str = ""

    def __repr__(self) -> str:
        return f"<Evaluation of {self.name}: {self.found!r}>"

    def blocks(self, most: int = WORST) -> list[Block]:
        """The text or its pairs, the `most` worst of these, and the loss beside what there is to
        compare it with.
        """
        more = {"in context": self._in_context, "to beat": self.counting}
        if isinstance(self.found, PairScores):
            found = self.found.blocks(most, self.every)
        else:
            found = self.found.blocks()
        if self.surprises is not None:
            found[1:1] = self.surprises.blocks(most)[1:]
        return [_extended(block, self.name, more) for block in found]

    @property
    def _in_context(self) -> str:
        """The mean surprise, if it differs from the loss in training's windows."""
        if self.surprises is None or self.surprises.score.loss == getattr(self.found, "loss", ""):
            return ""
        return f"{self.surprises.score.loss} (half a window of context or more)"

    def records(self, most: int = WORST) -> Records:
        """A row for each character or pair, if these were asked for; else for the `most` worst
        pairs.
        """
        found = Records()
        if self.surprises is not None:
            found = self.surprises.records()
        elif isinstance(self.found, PairScores):
            found = self.found.records(None if self.every else most, self.every)
        return replace(found, facts=self.facts)


def _extended(block: Block, name: str, more: Mapping[str, str]) -> Block:
    """A block of a result with the name of the text, and more facts."""
    match block:
        case Title(_, facts):
            return Title(name, facts)
        case Facts(values):
            return Facts({**values, **more})
    return block


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

    run: TrainedGPT
    against: TrainedGPT | None = None
    chars: bool = False
    pairs: bool = False
    beam: int | None = None
    baseline: bool = False
    unknown: str = "error"
    data: Path = Path("data")
    note: Callable[[str], object] = _log

    def __post_init__(self) -> None:
        for name in ("chars", "baseline"):
            alone = self.against is None or not getattr(self, name)
            require(alone, "", f"`{name}` and `against`: give one of them")
        require(self.beam is None or self.of_pairs, "beam", "only for pairs; see `pairs`")
        require(not (self.baseline and self.of_pairs), "baseline", "not for pairs")
        if self.against is not None:
            self._require_comparable(self.against)
        _ = self._counted  # raises, before the first text

    def _require_comparable(self, other: TrainedGPT) -> None:
        """Raises ConfigError if the other model cannot read the texts."""
        has_encoder = other.stored.config.encoder_layers > 0
        mixed = f"{other.name} has an encoder and reads pairs, {self.run.name} has none"
        advice = "compare them on pairs, with `pairs`"
        require(self.of_pairs or not has_encoder, "against", f"{mixed}; {advice}")
        knows = has_encoder or not other.stored.vocabulary.unknown(FIRST + LAST)
        unknown = f"{other.name} was not trained on pairs: it does not know TAB and NEWLINE"
        advice = "compare it on a text"
        require(knows or not self.of_pairs, "against", f"{unknown}; {advice}")

    def _splits(self, purpose: str, *advice: str) -> tuple[Ids, Ids]:
        """The texts that the run was trained and validated on. Raises TextError."""
        return splits_of_run(self.run.name, self.run.recorded, self.data, purpose, *advice)

    @property
    def of_pairs(self) -> bool:
        """Whether the texts have pairs."""
        return self.pairs or self.run.stored.config.encoder_layers > 0

    @cached_property
    def _counted(self) -> Ids | None:
        """The training text, if its n-grams are counted. Raises TextError."""
        if not self.baseline:
            return None
        train, _ = self._splits("`baseline`")
        if len(train) > MOST_CHARACTERS:
            most = f"the last {MOST_CHARACTERS:,} characters of the training text"
            self.note(f"note: counting only {most}")
        return train

    def text(self, text: str, name: str = "the text", file: str | None = None) -> Evaluation:
        """Evaluates a text. name: what it is called; file: for programs. Raises TextError."""
        vocabulary, known, places = self.run.vocabulary, text, None
        if self.unknown == "skip" or not self.of_pairs:  # of pairs, an error names the line
            known = self._known(self.run, text, name)
        if len(known) < len(text):
            places = vocabulary.known(text).nonzero()[0]
        facts = {"file": file, "split": None, "left_out": left_out(self.run, text)}
        return self._evaluated(known, name, facts | self._learned(text, name), places)

    def split(self) -> Evaluation:
        """Evaluates the validation split. If it is long, evaluates its first characters or pairs
        only. Raises TextError.
        """
        manifest, other = self.run.recorded, self.against
        advice = ("; restore it, or give a text", "; give a text")
        _, ids = self._splits("the validation split", *advice)
        what, name = "characters", "validation split" + (f" of {self.run.name}" if other else "")
        facts: dict[str, Any] = {"file": None, "split": "validation"}
        if other is not None:
            why = manifest and exposure_to_split(other.name, other.recorded, manifest)
            facts["may_have_seen"] = other.name if why else None
            if why:
                self.note(f"warning: {why}")
        most, count, context = MOST_SHOWN if self.chars else MOST_SCORED, len(ids), not self.chars
        if self.of_pairs:
            ends = (ids == self.run.vocabulary.encode(LAST)[0]).nonzero()[0]
            what, most, count, context = "pairs", MOST_PAIRS, len(ends), False
        if count > most + context:  # the first character is context only
            ids = ids[: ends[most - 1] + 1] if self.of_pairs else ids[: most + context]
            if self.of_pairs or not self.chars:
                trained = ""
                if manifest and manifest.best_step == manifest.step:
                    nats, read, of = manifest.shown_loss
                    trained = f"; training measured {nats:.4f} nats on {read:,} of {of:,}"
                self.note(
                    f"note: scoring only the first {most:,} of {count:,} {what} of the {name}; to "
                    f"score all, give them as a file{trained}"
                )
            name = f"the first {most:,} {what} of the {name}"
        text = self.run.vocabulary.decode(ids)
        return self._evaluated(text, name, facts, baseline=manifest.baseline if manifest else None)

    def _known(self, saved: TrainedGPT, text: str, name: str) -> str:
        """The text without the characters that a model does not know; says how many these are."""
        return known_text(saved.vocabulary, text, self.unknown, self.note, name)

    def _learned(self, text: str, name: str) -> dict[str, Any]:
        """How much of a text the model has learned, from 0 to 1 (learned), and whether it is half
        or more (trained_on). Warns of both models.
        """

        def learned(by: TrainedGPT) -> float:
            known = by.recorded
            if known is None:
                return 0.0
            whole = is_whole_text(text, known.texts(by.name))
            return 1.0 if whole else share_learned(text, learned_texts(known, self.data))

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
        return {"trained_on": seen, "learned": share}

    def _evaluated(
        self,
        text: str,
        name: str,
        facts: dict[str, Any],
        places: npt.NDArray[Any] | None = None,
        baseline: Baseline | None = None,
    ) -> Evaluation:
        """Evaluates a text. places: where in its file each character stands. baseline: counting's
        loss on this text.
        """
        facts, model = {"scored": name, **facts}, self.run
        if self.of_pairs:
            facts["beam"] = self.beam or 1
        if self.against is not None:
            return self._compared(self.against, text, name, {"may_have_seen": None, **facts})
        found: Score | PairScores
        if self.of_pairs:
            found = model.score_pairs(text, beam=facts["beam"])
            score = found.score
        else:
            found = score = model.score(text)
        facts |= found.numbers
        surprises = None
        if self.chars and not self.of_pairs:
            surprises = replace(model.surprises(text), places=places)
            facts["in_context"] = surprises.score.numbers
        same = baseline is not None and baseline.scored == score.characters
        if not same and self._counted is not None and not facts.get("trained_on"):
            ids = model.vocabulary.encode(text)
            baseline = count_baseline(self._counted, ids, len(model.vocabulary))
        facts["counting"] = comparison_record(score.nats, score.characters, baseline)
        beside = score.nats, score.characters, baseline, self.run.recorded
        counting = comparison(*beside) if baseline else ""
        return Evaluation(name, found, facts, surprises, self.chars, counting)

    def _compared(
        self, other: TrainedGPT, text: str, name: str, facts: dict[str, Any]
    ) -> Evaluation:
        """How another model predicts a text, beside this one."""
        names, label, beam = (self.run.title, other.title), f"{name} for {other.name}", self.beam
        if not self.of_pairs:
            found = self.run.compare(other, self._known(other, text, label))
            its = {"left_out": left_out(other, text)}
        else:
            mine = self.run.score_pairs(text, beam=beam or 1)
            try:
                others = other.score_pairs(text, beam=beam or 1)
            except TextError as error:
                raise TextError(f"{label}: {error}") from None
            found = replace(paired(mine.nats, others.nats), pairs=(mine, others))
            facts, its = facts | mine.numbers, others.numbers
        facts |= {**found.numbers, "against": {**other.origin, **its}}
        return Evaluation(name, replace(found, names=names), facts)


def _part_of(name: str, share: float) -> str:
    """ "new.txt", "57 % of new.txt", "under 1 % of new.txt" """
    if share >= 0.995:
        return name
    return ("under 1" if share < 0.01 else f"{share:.0%}"[:-1]) + f" % of {name}"


def left_out(saved: TrainedGPT, text: str) -> dict[str, Any]:
    """For programs: how many characters of a text a model does not know, and which."""
    vocabulary = saved.vocabulary
    count = int((~vocabulary.known(text)).sum())
    return {"characters": count, "which": vocabulary.unknown(text) if count else ""}


@checks_arguments
def evaluate(
    run: TrainedGPT | Run | str | Path,
    text: str | None = None,
    *,
    against: TrainedGPT | Run | str | Path | None = None,
    chars: bool = False,
    pairs: bool = False,
    beam: int | None = None,
    baseline: bool = False,
    unknown: str = "error",
    data: str | Path = "data",
) -> Evaluation:
    """How well a model predicts a text, or without one the validation split of its run; `gptx eval`
    shows the same. Logs a warning if the model has learned some of the text.

    run, against: models, runs of `gpt.runs()`, or paths that `load` opens. The options are those of
    Scorer. Raises TextError, ConfigError, CheckpointError.
    """
    other = None if against is None else _opened(against)
    options = (chars, pairs, beam, baseline, unknown, Path(data))
    scorer = Scorer(_opened(run), other, *options)
    return scorer.split() if text is None else scorer.text(text)


@checks_arguments
def novelty(
    run: TrainedGPT | Run | str | Path,
    texts: Sequence[str],
    *,
    data: str | Path = "data",
    note: Callable[[str], object] = _log,
) -> list[copies.Novelty]:
    """How much of each text, such as samples, whose prompts do not count, a run copied from the
    text that it was trained on. Raises TextError without that text.

    note: receives a note if only a part of that text is searched.
    """
    if isinstance(texts, str):
        raise TypeError(f"texts: expected a list of texts, not one text; use [{texts!r:.40}]")
    saved = _opened(run)
    advice = "; give its run with `run`"
    chosen = saved.name, saved.recorded, Path(data)
    train, val = splits_of_run(*chosen, "`novelty`", no_run=advice)
    if len(train) > copies.MOST:
        note(f"note: searching for copies only in the first {copies.MOST:,} characters")
    searched, usual = train[: copies.MOST], val[: copies.MOST_USUAL]
    texts = [each[each.prompt :] if isinstance(each, Sample) else each for each in texts]
    return copies.novelty(texts, searched, usual, saved.vocabulary) if texts else []


def _opened(model: TrainedGPT | Run | str | Path) -> TrainedGPT:
    if isinstance(model, TrainedGPT):
        return model
    return read(model.path if isinstance(model, Run) else model)
