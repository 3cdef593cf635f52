"""The losses of an exported model: with counting, if it counts, and of the GPT alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpt.errors import TextError
from gpt.trained import TrainedGPT


@dataclass(frozen=True)
class Losses:
    """nats: per character, of the model as gptx opens it; gpt: of the GPT alone, which is what an
    export contains; None: the model does not count, so both are the same. characters: how many were
    predicted, where: of which text.
    """

    nats: float
    gpt: float | None
    characters: int
    where: str

    @property
    def exported(self) -> float:
        """The loss of what an export contains."""
        return self.nats if self.gpt is None else self.gpt

    @property
    def note(self) -> str:
        """For a model that counts: what the export leaves out, and what that costs."""
        return (
            "the export contains the GPT without its counts of n-grams: its loss is "
            f"{self.exported:.4f} nats per character ({self.exported / math.log(2):.3f} bits), "
            f"with the counts {self.nats:.4f}, on {self.characters:,} characters of {self.where}"
        )


def losses_of(model: TrainedGPT) -> Losses | None:
    """The recorded losses of the best step. For another step, or a model file without its run, they
    are measured on the start of the validation split, which the model file contains; None if that
    is too short.
    """
    manifest = model.manifest if model.has_run else None
    if manifest and manifest.best_step == manifest.step:
        nats, characters, _ = manifest.shown_loss
        if nats is not None and (manifest.gpt_loss is not None or not model.config.counting):
            return Losses(nats, manifest.gpt_loss, characters, "the validation split")
    try:
        score = model.score(model.stored.excerpt)
    except TextError:
        return None
    return Losses(score.nats, score.gpt, score.characters, model.excerpt_name)
