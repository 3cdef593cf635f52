"""What `gptx eval` and `run.eval`, and `sample --novelty` and `run.novelty` compute: how well a
model predicts a text, compared with counting; how much of it the model has learned; what a text
copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from gpt.config import Unknown
from gpt.corpus.corpus import splits_of_run
from gpt.corpus.doubts import is_whole_text, learned_texts, share_learned
from gpt.reading.score import Evaluation, character_surprisals, score
from gpt.reading.writing import MOST, Novelty, Sample, longest_copies
from gpt.storage.manifest import Manifest
from gpt.storage.overview import compared_with_counting, counting_record
from gpt.vocabulary import Ids, Reading, known_text, log_note

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT

MOST_SHOWN = 10_000  # characters of the validation split with surprisals
MOST_SCORED = 1_000_000  # characters to score in a longer split


@dataclass(frozen=True)
class Scorer:
    """Evaluates texts with a model.

    chars: with the surprisal of each character. unknown: what to do with characters that the model
    does not know. data: the folder of the encoded corpora. note: receives notes and warnings.
    """

    run: TrainedGPT
    chars: bool = False
    unknown: Unknown = "fold"
    data: Path = Path("data")
    note: Callable[[str], object] = log_note

    def text(self, text: str, name: str = "the text", file: str | None = None) -> Evaluation:
        """Evaluates a text. name: its name for the user; file: its name for programs. Raises
        TextError.
        """
        reading = self.run.vocabulary.read(text, self.unknown)
        reading = known_text(self.run.vocabulary, reading, self.note, name)
        share = self._learned(text)
        if share:
            self.note(
                f"warning: {_part_of(name, share)} is in the text that this run was trained on, "
                "so its loss is of text that the model has learned and says nothing about new texts"
            )
        facts = {
            "scored": name,
            "file": file,
            "split": None,
            **changes_record(reading),
            "trained_on": share >= 0.5,
            "learned": share,
        }
        ids = self.run.vocabulary.encode(reading.text)
        return self._evaluate(ids, name, facts, places=reading.places)

    def split(self) -> Evaluation:
        """Evaluates the validation split; of a long one, only its first characters.

        Raises TextError.
        """
        run, manifest = self.run, self.run.recorded
        _, ids = splits_of_run(
            run.name, manifest, self.data, "the validation split", "; or give a text"
        )
        assert manifest is not None
        name = f"validation split of {run.name}"
        most, context = (MOST_SHOWN, 0) if self.chars else (MOST_SCORED, 1)
        if (count := len(ids)) > most + context:  # the first character is context only
            ids = ids[: most + context]
            if not self.chars:
                self.note(
                    f"note: scoring only the first {most:,} of {count:,} characters of the {name}; "
                    "to score all, give them as a file"
                )
            name = f"the first {most:,} characters of the {name}"
        facts = {"scored": name, "file": None, "split": "validation"}
        return self._evaluate(ids, name, facts, manifest=manifest)

    def _learned(self, text: str) -> float:
        """The share of a text that the model has learned."""
        manifest = self.run.recorded
        if manifest is None:
            return 0.0
        if is_whole_text(text, manifest.texts(self.run.name)):
            return 1.0
        return share_learned(text, learned_texts(manifest, self.data))

    def _evaluate(
        self,
        ids: Ids,
        name: str,
        facts: dict[str, Any],
        places: npt.NDArray[Any] | None = None,
        manifest: Manifest | None = None,
    ) -> Evaluation:
        """places: each character's position in its file. manifest: the run's, if the text is its
        validation split, on which counting was measured, too.
        """
        model, surprisals = self.run, None
        loss = score(model.reader, ids, model.mixture)
        facts |= loss.numbers
        if self.chars:
            surprisals = replace(
                character_surprisals(model.reader, ids, model.vocabulary, model.mixture),
                places=places,
            )
            facts["in_context"] = surprisals.score.numbers
        measured = loss.nats, loss.characters, loss.characters
        facts["counting"] = manifest and counting_record(manifest, measured)
        to_beat = compared_with_counting(manifest, measured) if manifest else ""
        return Evaluation(
            **vars(loss), name=name, about=facts, surprisals=surprisals, to_beat=to_beat
        )


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
    model: TrainedGPT, texts: Sequence[str], data: Path, note: Callable[[str], object]
) -> list[Novelty]:
    """How much of these texts is copied; see TrainedGPT.novelty."""
    if isinstance(texts, str):  # it is a sequence of texts, too
        raise TypeError(f"texts: a list of texts is needed, not one text; use [{texts!r:.40}]")
    train, _ = splits_of_run(model.name, model.recorded, data, "`novelty`")
    if len(train) > MOST:
        note(f"note: searching for copies only in the first {MOST:,} characters")
    new = [text.new if isinstance(text, Sample) else text for text in texts]
    copies = longest_copies(new, train[:MOST], model.vocabulary)
    return [Novelty(len(text), copy) for text, copy in zip(new, copies, strict=True)]
