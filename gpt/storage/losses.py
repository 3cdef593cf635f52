"""How good a run's loss is, as text and for programs: compared with counting n-grams, and what to
do about it.
"""

from __future__ import annotations

import math
from typing import Any

from gpt.storage.manifest import Baseline, Manifest
from gpt.words import counted, format_losses, measured_on

LEAST_COMPARED = 100  # fewest characters of a text whose loss is compared with the baseline
#: Fewest validation characters for a judgement. Losses of single characters deviate by 1 to 2 nats,
#: so the mean of 1,000 has an error of about 0.05, as large as the effect of many options.
LEAST_JUDGED = 1_000


#: A loss in nats, the number of characters that it is the mean of, and of how many of the split.
Measured = tuple[float | None, int, int]


def counting_facts(manifest: Manifest, measured: Measured | None = None) -> str:
    """Compares a loss on the validation split with counting n-grams, if both were measured on the
    same characters. measured: None: the run's shown loss.
    """
    nats, characters, of = measured or manifest.shown_loss
    baseline = manifest.baseline
    if baseline is None:
        return "–"
    line = f"counting {baseline.order}-grams: {baseline.nats:.4f} nats"
    if nats is None:
        return line
    if characters < LEAST_COMPARED:
        return f"{line}; {counted(characters, 'character')} are too few to compare the model"
    if not characters == of == baseline.scored:
        return f"{line} on {baseline.scored:,} characters, not those of the model ({characters:,})"
    line += f"; this model is {better_or_worse(nats, baseline)}"
    return f"{line}: {loss_advice(nats, manifest)}" if nats > baseline.nats else line


def loss_advice(nats: float, manifest: Manifest) -> str:
    """Advice for a loss that is worse than the baseline."""
    what, best = "train longer, or on more text", manifest.best_step
    if best is not None and best < manifest.step and manifest.since_best > 1:
        what = f"train on more text; {no_better_text(best)}"
    elif manifest.clock is not None and manifest.step >= manifest.train.steps:
        what = "train on more text; in more epochs the model would learn this one by heart"
    uniform = math.log(manifest.model.vocab_size)
    guessing = f"even uniform guessing reaches {uniform:.4f}; " if nats > uniform else ""
    return guessing + what


def better_or_worse(nats: float | None, baseline: Baseline | None) -> str:
    """ "0.0037 worse" than counting, "0.0500 better" or "as good", in the four digits shown."""
    if baseline is None or nats is None:
        return "–"
    shown = f"{round(nats, 4) - round(baseline.nats, 4):.4f}"
    if float(shown) == 0:
        return "as good"
    return f"{shown.removeprefix('-')} {'better' if shown.startswith('-') else 'worse'}"


def best_facts(manifest: Manifest) -> str:
    """The loss of the best step, and how much of the split it was measured on."""
    best, characters, of = manifest.shown_loss
    if best is None:
        return "not evaluated yet"
    facts = (
        f"{format_losses(best)} at step {manifest.best_step or 0:,}{measured_on(characters, of)}"
    )
    if manifest.gpt_loss is not None:
        facts += f"; the GPT alone {manifest.gpt_loss:.4f} nats"
    return facts + note_on_few(characters)


def note_on_few(characters: int) -> str:
    """ "; 60 characters are too few to judge a model by"; "" if there are enough."""
    few = 0 < characters < LEAST_JUDGED
    verb = "is" if characters == 1 else "are"
    return f"; {counted(characters, 'character')} {verb} too few to judge a model by" if few else ""


def no_better_text(best_step: int) -> str:
    """ "no better since step 400"."""
    return f"no better since step {best_step:,}"


def counting_record(manifest: Manifest, measured: Measured | None = None) -> dict[str, Any] | None:
    """What `counting_facts` compares, for programs. difference: above 0 if the model is worse, None
    if the losses were measured on different characters.
    """
    nats, characters, of = measured or manifest.shown_loss
    baseline = manifest.baseline
    if baseline is None:
        return None
    same = characters == of == baseline.scored
    return {
        **{"order": baseline.order, "nats": baseline.nats, **vars(baseline)},
        "difference": nats - baseline.nats if nats is not None and same else None,
        "same_characters": same,
    }


def compared_with_counting(manifest: Manifest) -> str:
    """`better_or_worse` for a run's shown loss; "–" if counting's loss is of other characters."""
    record = counting_record(manifest)
    same = record and record["same_characters"]
    return better_or_worse(manifest.shown_loss[0], manifest.baseline if same else None)
