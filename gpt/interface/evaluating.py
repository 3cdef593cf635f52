"""Computes what `gptx eval` and `run.eval` show: how well a model predicts a text, how well counted
letter sequences alone predict it, and how much of the text the model was trained on.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from gpt.corpus.corpus import splits_of_run
from gpt.corpus.doubts import share_learned
from gpt.reading.score import Evaluation, character_surprisals, score
from gpt.storage.checkpoint_files import Manifest
from gpt.storage.overview import compare_with_counting, counting_record
from gpt.vocabulary import Ids, check_adapted_text, log_note

if TYPE_CHECKING:
    from gpt.interface.trained import EvalCall, TrainedGPT

MOST_SHOWN = 10_000  # characters of the validation split whose surprisals are shown
MOST_SCORED = 1_000_000  # characters of the validation split that are scored


def evaluate_text(model: TrainedGPT, text: str, call: EvalCall) -> Evaluation:
    """Scores a text. Logs a warning if the model was trained on some of it. Raises TextError."""
    adapted = model.vocabulary.adapt(text, call.unknown)
    adapted = check_adapted_text(model.vocabulary, adapted, call.name)
    manifest, share = model.manifest_or_none, 0.0
    if manifest is not None:
        share = share_learned(text, model.name, manifest, Path(call.data))
    if share:
        part = call.name if share == 1 else f"{math.ceil(100 * share)}% of {call.name}"
        log_note(
            f"warning: {part} is in the text that this run was trained on, so the loss says "
            "nothing about new texts"
        )
    facts = {
        "scored": call.name,
        "split": None,
        "left_out": {
            "characters": len(adapted.left_out),
            "which": "".join(sorted({*adapted.left_out})),
        },
        "folded": [list(pair) for pair in adapted.folded],
        "trained_on": share >= 0.5,
        "learned": share,
    }
    ids = model.vocabulary.encode(adapted.text)
    return _evaluate(model, ids, facts, call.chars, places=adapted.places)


def evaluate_split(model: TrainedGPT, call: EvalCall) -> Evaluation:
    """Scores the validation split, or only its start if the split is long. Raises TextError."""
    manifest = model.manifest_or_none
    purpose, advice = "the validation split", "; or give a text"
    _, ids = splits_of_run(model.name, manifest, Path(call.data), purpose, advice)
    name = f"validation split of {model.name}"
    most, context = (MOST_SHOWN, 0) if call.chars else (MOST_SCORED, 1)
    if (count := len(ids)) > most + context:  # the first character is only context
        ids = ids[: most + context]
        if not call.chars:
            log_note(
                f"note: scoring only the first {most:,} of {count:,} characters of the {name}; "
                "to score all, give them as a file"
            )
        name = f"the first {most:,} characters of the {name}"
    facts = {"scored": name, "split": "validation"}
    return _evaluate(model, ids, facts, call.chars, manifest=manifest)


def _evaluate(
    model: TrainedGPT,
    ids: Ids,
    facts: dict[str, Any],
    chars: bool,
    *,
    places: npt.NDArray[Any] | None = None,
    manifest: Manifest | None = None,
) -> Evaluation:
    """Scores ids. places: the positions of the characters in their file. manifest: the run's, if
    the ids are its validation split; the manifest has the loss of counting on this split.
    """
    surprisals = None
    loss = score(model.reader, ids, model.mixture)
    facts |= loss.loss_record
    if chars:
        surprisals = replace(
            character_surprisals(model.reader, ids, model.vocabulary, model.mixture),
            places=places,
        )
        facts["in_context"] = surprisals.score.loss_record
    measured = loss.nats, loss.characters, loss.characters
    facts["counting"] = manifest and counting_record(manifest, measured)
    to_beat = compare_with_counting(manifest, measured) if manifest else ""
    return Evaluation(
        **vars(loss), name=facts["scored"], about=facts, surprisals=surprisals, to_beat=to_beat
    )
