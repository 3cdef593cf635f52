"""The lines that a training prints: evaluations, samples, and how it ended."""

from __future__ import annotations

import os
import shlex
from typing import Any

from gpt.storage.manifest import Manifest, Parent
from gpt.storage.run import Run
from gpt.view.characters import cut
from gpt.view.terminal.scores import (
    best_facts,
    counting_facts,
    counting_record,
    no_better,
)
from gpt.words import bits, counted, duration, measured_on


def evaluation_line(
    step: int,
    train_loss: float,
    val_loss: float,
    best_step: int,
    since_best: int,
    characters: int,
    of: int,
    gpt_loss: float | None = None,
) -> str:
    """ "step 400 · train 1.95 · val 1.98 nats, 2.86 bits/char (on 20,000 of 111,539) · best"."""
    if not since_best:
        verdict = "best so far"
    elif since_best == 1 and characters == of:
        verdict = f"best was step {best_step:,}"
    else:
        verdict = no_better(best_step, characters, of)
    losses = f"train {train_loss:.4f} · {_val(val_loss, gpt_loss)}{measured_on(characters, of)}"
    return f"step {step:,} · {losses} · {verdict}"


def chosen_line(
    step: int, earlier: int, lower: float, error: float, sure: bool, characters: int, of: int
) -> str:
    """Whether an earlier step, with a lower loss on a part of the split, or the last is best."""
    verdict = "the best step" if sure else f"too little to tell, so the best step is {step:,}"
    return (
        f"step {earlier:,} · {lower:.4f} ± {error:.4f} nats lower than step {step:,} (paired "
        f"standard error, on {characters:,} of {of:,} validation characters) · {verdict}"
    )


def whole_line(
    step: int,
    val_loss: float,
    characters: int,
    of: int,
    seconds: float,
    gpt_loss: float | None = None,
) -> str:
    """ "step 400 · val 1.9813 nats, 2.858 bits/char on all 111,539 validation characters"."""
    read = f"all {of:,}" if characters == of else f"{characters:,} of {of:,}"
    line = f"step {step:,} · {_val(val_loss, gpt_loss)} on {read} validation characters"
    return f"{line}, in {duration(seconds)}"


def _val(loss: float, gpt_loss: float | None) -> str:
    """gpt_loss: of the GPT without counting, in a run with counting."""
    alone = "" if gpt_loss is None else f", the GPT alone {gpt_loss:.4f}"
    return f"val {loss:.4f} nats, {bits(loss):.3f} bits/char{alone}"


def sample_line(text: str, width: int) -> str:
    """A short sample on one line."""
    return cut(f"  │ {text.replace(chr(10), '⏎').replace(chr(9), '⇥')}", width)


def farewell(run: Run, manifest: Manifest, reason: str, shard: bool = False) -> dict[str, str]:
    """How the run ended, whether it is better than counting, its folder, and what to type next."""
    steps, folder = manifest.train.steps, run.path.parent
    ended = {
        "finished": f"all {counted(f'{steps:,}', 'step')}{_unlike_planned(manifest)}",
        "patience": f"stopped at step {manifest.step:,}: no lower loss in "
        f"{manifest.since_best} evaluations",
    }.get(reason, f"{reason} after step {manifest.step:,} of {steps:,}")
    usual = str(folder) == os.environ.get("GPTX_CHECKPOINTS", "checkpoints")
    where = "" if usual else f" --checkpoints {shlex.quote(str(folder))}"
    resume = f"gptx train --resume --run {run.name}{where}"
    if manifest.environment.get("ranks", 1) != 1:
        resume = resume.replace("gptx", "torchrun … -m -- gpt", 1) + " --shard" * shard
    return {
        "ended": f"{ended}, {time_of(manifest)}",
        "best": best_facts(manifest),
        "to beat": counting_facts(manifest),
        "saved": str(run.path),
        "go on": "" if reason in ("finished", "patience") else resume,
        "next": f'gptx sample --prompt "…"{where}\ngptx attn{where}\ngptx runs {run.name}{where}',
    }


def _unlike_planned(manifest: Manifest) -> str:
    """ " (the card estimated 1,760)", if a time budget changed the number by more than a tenth."""
    planned, steps = manifest.train.horizons[0][1], manifest.train.steps
    return f" (the card estimated {planned:,})" if abs(steps - planned) > 0.1 * planned else ""


def time_of(manifest: Manifest) -> str:
    """ "1 min 58 s of the 2 min 0 s asked for, with evaluations and saves"."""
    budget = manifest.budget
    asked = f" of the {duration(budget.seconds)} asked for" if budget else ""
    return f"{duration(manifest.elapsed)}{asked}, with evaluations and saves"


def parent_record(parent: Parent | None) -> dict[str, Any] | None:
    """The model that a run started from, for programs."""
    if parent is None:
        return None
    record = {name: value for name, value in vars(parent).items() if name != "texts"}
    return {**record, "texts": [vars(text) for text in parent.texts]}


def result(name: str, manifest: Manifest, reason: str) -> dict[str, Any]:
    """How a training ended, for programs; and which characters were folded, if any were."""
    corpus, budget = manifest.corpus, manifest.budget
    best, characters, of = manifest.shown_loss
    record: dict[str, Any] = {
        "run": name,
        "step": manifest.step,
        "reason": reason,
        "best_step": manifest.best_step,
        "val_nats": best,
        "val_bits": None if best is None else bits(best),
        "val_characters": characters or None,
        "val_split": of or None,
        "seconds": round(manifest.seconds, 3),
        "elapsed": round(manifest.elapsed, 3),
        "minutes": None if budget is None else budget.seconds / 60,
        "gpt_nats": manifest.gpt_loss,
        "parent": parent_record(manifest.parent),
        "counting": counting_record(manifest),
    }
    if corpus.folded:
        record["folded"] = {
            "characters": corpus.folded,
            "kinds": len(corpus.folded),
            "count": corpus.folded_count,
            "share": corpus.folded_count / corpus.characters,
            "replacement": manifest.train.replacement,
        }
    return record
