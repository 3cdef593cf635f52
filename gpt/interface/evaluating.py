"""What `gptx eval` and `run.eval` compute: how well a model predicts a text, compared with
counting, and how much of it the model has learned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from gpt.config import Unknown
from gpt.corpus.corpus import splits_of_run
from gpt.corpus.doubts import is_whole_text, learned_texts, share_learned
from gpt.reading.score import Evaluation, character_surprisals, score
from gpt.storage.manifest import Manifest
from gpt.storage.overview import compared_with_counting, counting_record
from gpt.vocabulary import Ids, known_text, log_note

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

    def text(self, text: str, name: str = "the text") -> Evaluation:
        """Evaluates a text with this name. Raises TextError."""
        reading = self.run.vocabulary.read(text, self.unknown)
        reading = known_text(self.run.vocabulary, reading, self.note, name)
        share = self._learned(text)
        if share:
            part = name if share == 1 else f"{math.ceil(100 * share)}% of {name}"
            self.note(
                f"warning: {part} is in the text that this run was trained on, so its loss is of "
                "text that the model has learned and says nothing about new texts"
            )
        facts = {
            "scored": name,
            "split": None,
            "left_out": {
                "characters": len(reading.left_out),
                "which": "".join(sorted({*reading.left_out})),
            },
            "folded": [list(pair) for pair in reading.folded],
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
        facts = {"scored": name, "split": "validation"}
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
        return Evaluation(name, loss, facts, surprisals=surprisals, to_beat=to_beat)
