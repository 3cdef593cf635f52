"""`gptx eval`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpt.commands import console, shared
from gpt.errors import ConfigError, TextError
from gpt.words import printable

if TYPE_CHECKING:
    from gpt.loading import Saved
    from gpt.reading.pairs import PairScores
    from gpt.storage.manifest import Baseline
    from gpt.trained import TrainedGPT
    from gpt.vocabulary import Ids

SCHEMA = 1
MOST_SHOWN = 10_000  # characters of the validation split that --chars shows
MOST_SCORED = 1_000_000  # characters of a longer split that are scored
WORST = 10  # surprises or pairs that are listed by default
MOST_PAIRS = 10_000  # lines of a longer validation split that are scored
SPLIT_ADVICE = ("; restore it, or give a FILE", "; give a FILE")


@dataclass(frozen=True)
class Scored:
    """A text's ids, its name for people (label) and what its JSON record says of it (facts).

    places: where in its file each character stands, when some were left out. baseline: the run's
    stored baseline for this text.
    """

    label: str
    facts: dict[str, Any]
    ids: Ids
    places: list[int] | None = None
    baseline: Baseline | None = None


class Eval(shared.DrawingCommand):
    """How well a model predicts a text: nats and bits per character, perplexity.

    Uses training's windows, one after the other; --chars gives each character at least half a
    window of context. Of pairs, lines SOURCE, TAB, TARGET: nats per target character, how many
    sources get a target that is listed for them (exact), and the character error rate: edit
    distances to the nearest listed target, divided by the lengths of these targets.
    """

    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Texts, or folders of them; - reads stdin.", show_default="the validation split"
        ),
    ] = None
    chars: Annotated[
        bool, "Colour each character by its surprise, after half a window or more."
    ] = False
    worst: Annotated[
        int | None,
        typer.Option(
            help="Surprises that --chars lists; of pairs, the pairs listed.",
            min=0,
            show_default=str(WORST),
        ),
    ] = None
    pairs: Annotated[
        bool, "FILE has pairs, for a decoder-only model; one with an encoder needs no option."
    ] = False
    beam: Annotated[
        int | None,
        typer.Option(help="Of pairs: write targets by a beam search of this width.", min=1),
    ] = None
    against: Annotated[
        str | None,
        "Run, RUN:STEP or model file to compare with on this text. Two runs are two models; to "
        "compare recipes, train several seeds of each, and give gptx runs a pattern.",
    ] = None
    baseline: Annotated[bool, "Compare also a FILE with n-gram counts of the training text."] = (
        False
    )
    device: shared.OnDevice = "auto"
    data: shared.Data = Path("data")

    def execute(self) -> None:
        compares = bool(self.against)
        shared.refuse(
            (self.chars and compares, "--chars and --against: give one of them"),
            (self.baseline and compares, "--baseline and --against: give one of them"),
            (
                self.worst is not None and not (self.chars or self.of_pairs),
                "--worst: only with --chars",
            ),
            (self.beam is not None and not self.of_pairs, "--beam: only for pairs; see --pairs"),
            (self.baseline and self.of_pairs, "--baseline: not for pairs"),
            (
                self.pairs and not self.files and not self.opened.stored.config.encoder_layers,
                "--pairs: give a FILE of pairs",
            ),
        )
        # Errors in these concern all texts, so they come before the first text.
        opened, other, _ = self.opened, self.other, self.counted
        if other is not None:
            self._require_comparable(other)
        failed: list[int] = []
        for chosen in self.files or ():
            with shared.reported(chosen, failed):
                for name in shared.files_of(chosen, self.data):
                    with shared.reported(name, failed):
                        self._score(name)
        if not self.files:
            why = other.exposure_to_split(opened) if other else None
            self._score(None, why)
            if why:
                console.say(f"warning: {why}")
        if failed:
            raise typer.Exit(failed[0])

    @cached_property
    def opened(self) -> Saved:
        """The checkpoint, on its device."""
        return self._on_device(self.open(self.run, self.step))

    def _on_device(self, saved: Saved) -> Saved:
        """A checkpoint on the device for these files, or for the most that is scored of a split."""
        sizes = [os.path.getsize(file) for file in self.files or () if os.path.isfile(file)]
        return self.on_device(saved, sum(sizes) if sizes else MOST_SCORED)

    @cached_property
    def of_pairs(self) -> bool:
        """Whether the texts have pairs: for a model with an encoder, or with --pairs."""
        return self.pairs or self.opened.stored.config.encoder_layers > 0

    @cached_property
    def other(self) -> Saved | None:
        """The checkpoint of --against. Raises CheckpointError, ConfigError."""
        if self.against is None:
            return None
        if os.path.isfile(self.against):  # a path may contain colons
            return self._on_device(self.open(self.against, "best"))
        name, _, step = self.against.partition(":")
        return self._on_device(self.open(name, step or "best"))

    def _require_comparable(self, other: Saved) -> None:
        """Raises ConfigError if the other model cannot read the texts."""
        has_encoder = other.stored.config.encoder_layers > 0
        if has_encoder and not self.of_pairs:
            raise ConfigError(
                f"--against: {other.name} has an encoder and reads pairs, {self.opened.name} has "
                "none; compare them on a FILE of pairs, with --pairs"
            )
        if self.of_pairs and not has_encoder and other.stored.vocabulary.unknown("\t\n"):
            raise ConfigError(
                f"--against: {other.name} was not trained on pairs: it does not know TAB and "
                "NEWLINE; compare it on a text"
            )

    @cached_property
    def counted(self) -> Ids | None:
        """The training text, if --baseline counts its n-grams. Raises TextError."""
        if not self.baseline:
            return None
        from gpt.counting.tables import MOST_CHARACTERS

        train, _ = self.opened.splits(self.data, "--baseline")
        if len(train) > MOST_CHARACTERS:
            console.say(
                f"note: counting only the last {MOST_CHARACTERS:,} characters of the training text"
            )
        return train

    def _score(self, name: str | None, may_have_seen: str | None = None) -> None:
        """Scores a file, or the validation split, and writes the result. Raises TextError."""
        if self.of_pairs:
            self._score_pairs(name, may_have_seen)
        else:
            self._show(self._split() if name is None else self._file(name), may_have_seen)

    def _file(self, name: str) -> Scored:
        """A file's characters that the model knows. Raises TextError."""
        model, label, text = self.opened.model, shared.label_of(name), console.read_text(name)
        ids = model.vocabulary.encode(shared.known_text(model, text, self.unknown, label))
        places = None
        if len(ids) < len(text):
            places = model.vocabulary.known(text).nonzero()[0].tolist()
        return Scored(label, self.facts(name, text), ids, places)

    def facts(self, name: str, text: str) -> dict[str, Any]:
        """What a JSON record says of a file's text. trained_on: whether at least half of it is in
        the text that the model was trained on; learned: how much, from 0 to 1.
        """

        def learned(by: Saved) -> float:
            whole = name != "-" and by.is_corpus(Path(name), len(text))
            return 1.0 if whole else by.share_learned(text, self.data)

        label, share = shared.label_of(name), learned(self.opened)
        seen = share >= 0.5
        if share:
            console.say(
                f"warning: {_part_of(label, share)} is in the text that this run was trained on, "
                "so its loss is of text that the model has learned and says nothing about new texts"
                + "; --baseline is left out, as counting saw the text, too"
                * (self.baseline and seen)
            )
        if self.other and (its := max(0.0, learned(self.other) - share)):
            console.say(
                f"warning: {_part_of(label, its)} is in the text that {self.other.name} was "
                "trained on, so this comparison favours it"
            )
        facts = {
            "file": printable(name),
            "split": None,
            "left_out": left_out(self.opened.model, text),
        }
        return facts | {"trained_on": seen, "learned": share}

    def _split(self) -> Scored:
        """The validation split; of a long one, its first characters. Raises TextError."""
        manifest = self.opened.manifest
        _, ids = self.opened.splits(self.data, "the validation split", *SPLIT_ADVICE)
        label = "validation split" + f" of {self.opened.name}" * bool(self.against)
        most = MOST_SHOWN if self.chars else MOST_SCORED + 1  # the first one is context only
        if len(ids) > most:
            if not self.chars:
                trained = ""
                if manifest and manifest.best_step == manifest.step:
                    nats, characters, of = manifest.shown_loss
                    trained = f"; training measured {nats:.4f} nats on {characters:,} of {of:,}"
                console.say(
                    f"note: scoring only the first {MOST_SCORED:,} of {len(ids):,} characters of "
                    f"the {label}; to score all, give the validation text as a file{trained}"
                )
            shown = most - (not self.chars)
            label, ids = f"the first {shown:,} characters of the {label}", ids[:most]
        baseline = manifest.baseline if manifest else None
        return Scored(label, {"file": None, "split": "validation"}, ids, baseline=baseline)

    def _show(self, text: Scored, may_have_seen: str | None = None) -> None:
        """Scores a text and writes the result. Raises TextError."""
        from gpt.view.terminal import scores

        record: dict[str, Any] = {"schema": SCHEMA, "scored": text.label, **text.facts}
        if self.other is not None:
            record["may_have_seen"] = may_have_seen and self.other.name
            line = self._compared(self.other, text, record)
        elif self.chars:
            line = self._characters(text, record) + self._beside_counting(text, record)
        else:
            found = self.opened.model.score(text.ids)
            record |= scores.score_record(found)
            line = scores.score_line(found) + self._beside_counting(text, record)
        if self.as_json:
            self.write_json(record | self.opened.origin)
        else:
            console.tell(f"{text.label}: {line}")

    def _compared(self, against: Saved, text: Scored, record: dict[str, Any]) -> str:
        """How two models differ on the characters that both know: a line; puts it into the record,
        too. Raises TextError for a character that the other model does not know.
        """
        from gpt.view.terminal import scores

        model, other = self.opened.model, against.model
        whole = model.vocabulary.decode(text.ids)
        name = f"{text.label} for {against.name}"
        found = model.compare(other, shared.known_text(other, whole, self.unknown, name))
        names = [self.opened.name, against.name]
        if names[0] == names[1]:
            names = [f"step {each.stored.step:,}" for each in (model, other)]
        its = {**against.origin, "left_out": left_out(other, whole)}
        record |= {"against": its, **scores.paired_record(found)}
        return scores.paired_line(names[0], names[1], found)

    def _beside_counting(self, text: Scored, record: dict[str, Any]) -> str:
        """Compares with n-gram counts, unless these contain the text: a line, or "" without."""
        from gpt.storage import losses

        nats, characters, baseline = record["nats"], record["characters"], text.baseline
        if (
            (baseline is None or baseline.scored != characters)
            and self.counted is not None
            and not text.facts.get("trained_on")
        ):
            from gpt.counting.baseline import count_baseline

            known = len(self.opened.model.vocabulary)
            baseline = count_baseline(self.counted, text.ids, known)
        record["counting"] = losses.comparison_record(nats, characters, baseline)
        if baseline is None:
            return ""
        return f" · {losses.comparison(nats, characters, baseline, self.opened.manifest)}"

    def _characters(self, text: Scored, record: dict[str, Any]) -> str:
        """Shows every character's surprise, or puts it into the record."""
        from gpt.view.terminal import scores, surprise

        model = self.opened.model
        whole, found = model.score(text.ids), model.surprises(text.ids)
        plain, characters = model.vocabulary.decode(text.ids), model.vocabulary.characters
        record |= {**scores.score_record(whole), "in_context": scores.score_record(found.score)}
        if self.as_json:
            each = surprise.surprise_record(plain, characters, found, text.places)
            record["per_character"] = each
            return ""
        page, digits = self.page(), not console.colours(self.color)
        most = WORST if self.worst is None else self.worst
        worst = surprise.worst(plain, characters, found, most, page, text.places)
        coloured = surprise.coloured(plain, found, page, digits)
        self.write_lines([*coloured, *surprise.scale(page, digits), *worst])
        one_window = len(text.ids) - 1 <= model.config.block_size
        return scores.score_line(whole, None if one_window else found.score)

    def _score_pairs(self, name: str | None, may_have_seen: str | None) -> None:
        """Scores a file of pairs, or the validation split, and writes the result. Raises
        TextError.
        """
        from gpt.storage import losses
        from gpt.view.terminal import pairs, surprise

        model, beam = self.opened.model, self.beam or 1
        if name is None:
            label = "validation split" + f" of {self.opened.name}" * bool(self.against)
            label, text = _pairs_of_split(self.opened, self.data, label)
            facts: dict[str, Any] = {"file": None, "split": "validation"}
        else:
            label, text = shared.label_of(name), console.read_text(name)
            facts = self.facts(name, text)
            if self.unknown == "skip":
                text = shared.known_text(model, text, "skip", label)
        if self.other is not None:
            facts["may_have_seen"] = may_have_seen and self.other.name
        found = model.score_pairs(text, beam=beam)
        record = {"schema": SCHEMA, "scored": label, **facts, **self.opened.origin, "beam": beam}
        record |= pairs.pairs_record(found)
        most = WORST if self.worst is None else self.worst
        line, lines, page = pairs.pairs_line(found), [], self.page(precision=2)
        place = "line" if name else "validation pair"
        if self.other is not None:
            line, more = _compared_pairs(self.opened, self.other, found, label, text, beam)
            record |= more
        elif self.as_json:
            numbered = place.replace(" ", "_")
            worst = pairs.each_pair(found, False, numbered)
            record["worst"] = sorted(worst, key=lambda each: -each["nats"])[:most]
            if self.chars:
                record["per_pair"] = pairs.each_pair(found, True, numbered)
        else:
            if self.chars:
                digits = not console.colours(self.color)
                lines = [*pairs.coloured_pairs(found, page, digits), *surprise.scale(page, digits)]
            lines += pairs.worst_pairs(found, most, page, place)
            baseline = facts.get("split") and self.opened.manifest
            if baseline and baseline.baseline:
                score = found.score
                compared = (score.nats, score.characters, baseline.baseline, baseline)
                line += f" · {losses.comparison(*compared)}"
        if self.as_json:
            self.write_json(record)
        else:
            self.write_lines(lines)
            console.tell(f"{label}: {line}")


def _part_of(label: str, share: float) -> str:
    """ "new.txt", "57 % of new.txt", "under 1 % of new.txt" """
    if share >= 0.995:
        return label
    return ("under 1" if share < 0.01 else f"{share:.0%}"[:-1]) + f" % of {label}"


def left_out(model: TrainedGPT, text: str) -> dict[str, Any]:
    """For JSON: how many characters of a text the model does not know, and which."""
    count = int((~model.vocabulary.known(text)).sum())
    return {"characters": count, "which": model.vocabulary.unknown(text) if count else ""}


def _pairs_of_split(opened: Saved, data: Path, label: str) -> tuple[str, str]:
    """The lines of the validation split as a text; of many, the first ones. With the label of what
    the text has. Raises TextError.
    """
    _, ids = opened.splits(data, "the validation split", *SPLIT_ADVICE)
    text = opened.model.vocabulary.decode(ids)
    lines = text.removesuffix("\n").split("\n")
    if len(lines) <= MOST_PAIRS:
        return label, text
    console.say(
        f"note: scoring only the first {MOST_PAIRS:,} of {len(lines):,} pairs of the {label}; "
        "to score all, give the validation pairs as a file"
    )
    return f"the first {MOST_PAIRS:,} pairs of the {label}", "\n".join(lines[:MOST_PAIRS])


def _compared_pairs(
    opened: Saved, other: Saved, found: PairScores, label: str, text: str, beam: int
) -> tuple[str, dict[str, Any]]:
    """How another model predicts the same pairs: a line, and the entries of a record."""
    from gpt.reading.paired import paired
    from gpt.view.terminal import pairs, scores

    try:
        its = other.model.score_pairs(text, beam=beam)
    except TextError as error:
        raise TextError(f"{label} for {other.name}: {error}") from None
    compared = paired(found.nats, its.nats, (opened.name, other.name))
    first, second = names = [opened.name, other.name]
    if first == second:
        first, second = names = [f"step {each.stored.step:,}" for each in (opened, other)]
    against = {**other.origin, **pairs.pairs_record(its)}
    shares = (pairs.exact_share(each) for each in (found, its))
    exact = ", ".join(f"{name} {share}" for name, share in zip(names, shares, strict=True))
    line = f"exact: {exact} · {scores.paired_line(first, second, compared)}"
    return line, {**scores.paired_record(compared), "against": against}
