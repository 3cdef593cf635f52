"""The card that a training shows before its first step, and its last lines. See Plan."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpt.config.fields import with_flags
from gpt.config.schedule import characters_read, cycle_of
from gpt.storage.losses import best_facts, counting_facts, counting_record, note_on_few
from gpt.storage.manifest import Manifest
from gpt.storage.overview import (
    corpus_facts,
    model_facts,
    outlook_of,
    parent_facts,
    quote_some,
)
from gpt.storage.run import Run
from gpt.words import counted, duration, ordinal

if TYPE_CHECKING:
    from gpt.training.events import Spent
    from gpt.training.plan import Plan

#: What the losses on the card and in the last lines mean.
NATS = (
    "mean of −ln of the probability that the model gives the correct next character; 0 is "
    "perfect; bits = nats / ln 2"
)


def plan_card(plan: Plan, recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What is trained, for how long, and the loss to beat. recipe: options of a known corpus."""
    manifest, identity = plan.manifest, plan.corpus.identity
    facts = {
        "corpus": corpus_facts(identity, manifest.model, manifest.parent),
        "from": parent_facts(manifest.parent),
        "characters": _characters(plan),
        "split": _split(plan),
        "model": model_facts(manifest.model),
        "recipe": _recipe(recipe),
        "training": _training(plan),
        "fitted": "; ".join(plan.why),
        "device": _device(plan),
        "time": _time(plan),
        "to beat": _to_beat(plan),
        "nats/char": NATS,
    }
    return facts


def plan_record(plan: Plan) -> dict[str, Any]:
    """The plan for programs: every option, and the counts and measurements it is based on."""
    return {
        "dry_run": True,
        "parent": asdict(plan.manifest.parent) if plan.manifest.parent else None,
        **plan.settings(),
        "characters": plan.corpus.identity.characters,
        "train_characters": plan.train_characters,
        "val_characters": plan.val_characters,
        "vocab_size": plan.manifest.model.vocab_size,
        "parameters": plan.manifest.model.parameters(),
        "step_seconds": plan.speed.seconds_per_step,
        "seconds_left": plan.seconds_left,
        "uniform": plan.uniform,
        "counting": counting_record(plan.manifest, (None, 0, 0)),
    }


def end_card(
    run: Run, manifest: Manifest, reason: str, spent: Spent | None = None
) -> dict[str, Any]:
    """The last lines of a training: how it ended, where its time went, whether the model is better
    than counting, the run's folder, and what to type next.
    """
    steps, folder = manifest.train.steps, run.path.parent
    ended = {
        "finished": f"all {counted(f'{steps:,}', 'step')}{_unlike_planned(manifest)}",
        "patience": f"stopped at step {manifest.step:,}: no lower loss in "
        f"{manifest.since_best} evaluations",
        "SIGINT": f"stopped after step {manifest.step:,} of {steps:,}",
    }.get(reason, f"{reason} after step {manifest.step:,} of {steps:,}")
    usual = str(folder) == os.environ.get("GPTX_CHECKPOINTS", "checkpoints")
    where = "" if usual else f" --checkpoints {shlex.quote(str(folder))}"
    resume = f"gptx train --resume --run {run.name}{where}"
    if manifest.environment.get("ranks", 1) != 1:
        resume = resume.replace("gptx", "torchrun … -m -- gpt", 1)
    outlook = outlook_of(manifest)
    if reason in ("finished", "patience"):
        resume = ""
    commands = (f"gptx sample{_prompt(run)}", "gptx attn", f"gptx runs {run.name}")
    facts = {
        "ended": f"{ended}, {duration(manifest.elapsed)}",
        "time went to": str(spent or ""),
        "best": best_facts(manifest),
        "to beat": counting_facts(manifest),
        "saved": str(run.path),
        "more time": outlook,
        "go on": resume,
        "next": [f"{command}{where}" for command in commands],
    }
    return facts


def _prompt(run: Run) -> str:
    """An option of `sample`, " --prompt the", whose characters the model knows: the first word of
    the last sample. Empty if the sample has none.
    """
    samples = run.records("samples")
    word = re.search(r"\w{2,12}", samples[-1]["text"]) if samples else None
    return f" --prompt {shlex.quote(word[0])}" if word else ""


def _unlike_planned(manifest: Manifest) -> str:
    """ " (the card estimated 1,760)", if a time budget changed the number by more than a tenth."""
    steps = manifest.train.steps
    planned = cycle_of(manifest.train, steps)[0].steps
    return f" (the card estimated {planned:,})" if abs(steps - planned) > 0.1 * planned else ""


def _characters(plan: Plan) -> str:
    """Characters that are rare in the training text, or missing in it."""
    facts = {"rare": plan.rare, "only in validation": plan.only_in_val}
    return " · ".join(f"{what}: {quote_some(them)}" for what, them in facts.items() if them)


def _split(plan: Plan) -> str:
    """Both splits: sizes, how validation text is chosen, and how much of it evaluations read."""
    manifest, train, characters = plan.manifest, plan.manifest.train, plan.val_characters
    read = manifest.part[0]
    read_last = characters_read(
        manifest.val_characters, manifest.model.block_size, train.eval_chars
    )
    facts = f"{plan.train_characters:,} to train on, {characters:,} to validate"
    if train.every:
        block = plan.corpus.block
        what = f"block of {block:,} characters" if block else "text"
        facts += f": every {ordinal(train.every)} {what}"
    elif train.validation:
        facts += f": {train.validation}"
    if read < characters - 1:
        facts += f"; evaluations read {read:,} of them, evenly distributed"
        whole = "all" if read_last == characters - 1 else f"{read_last:,}"
        facts += f"; the last one reads {whole}" if read_last > read else " (--eval-chars)"
    return facts + note_on_few(read_last)


def _recipe(recipe: Mapping[str, Any]) -> str:
    """The options that a known corpus sets, as the command line spells them."""
    words = [f"`{name}`" if it is True else f"`{name}={it}`" for name, it in recipe.items()]
    spelled = with_flags(" ".join(words))
    return f"options of this corpus, unless you give others: {spelled}" if spelled else ""


def _training(plan: Plan) -> str:
    """ "2,000 steps × 2,048 characters = 4.1 epochs, learning rate …"; with "about" if a time
    budget may change the number of steps.
    """
    train, budget = plan.manifest.train, plan.manifest.budget
    epochs = train.steps * plan.step_characters / plan.train_characters
    about = ("at most " if budget.most_steps == train.steps else "about ") if budget else ""
    steps, rate = counted(f"{train.steps:,}", "step"), f"{train.learning_rate:g}"
    times = train.matrix_lr / train.learning_rate
    muon = f"; matrices by Muon, {times:g} times that" * (times > 0)
    if (cycle := cycle_of(train, train.steps)[0]).cycle:
        steps += f" ({train.steps - cycle.start:,} more)"
        rate = "rises again if it has fallen, then"
    return (
        f"{about}{steps} × {plan.step_characters:,} characters = {epochs:.1f} epochs, "
        f"learning rate {rate} → {train.min_lr:g} ({train.schedule}{muon})"
    )


def _device(plan: Plan) -> str:
    """ "cpu (2 threads, torch 2.13.0)"."""
    found, threads = plan.environment, int(plan.environment["threads"])
    name = str(found["device"]) if plan.device != "cpu" else counted(threads, "thread")
    if int(found.get("ranks", 1)) > 1:
        name = f"{found['ranks']} ranks of {name}"
    return f"{plan.device} ({name}, torch {found['torch']})"


def _time(plan: Plan) -> str:
    """ "2 min 10 s with evaluations and saves (estimated: 62 ms/step, 33,000 characters/s)", and
    what this time does not include or what may end the run earlier.
    """
    train, budget, step = plan.manifest.train, plan.manifest.budget, plan.speed.seconds_per_step
    facts = "" if plan.has_time_budget else "about "
    facts += f"{duration(plan.seconds_left)} with evaluations and saves "
    facts += f"(estimated: {_rough(1000 * step)} ms/step, "
    facts += f"{_rough(plan.step_characters / step)} characters/s"
    facts += "; the number of steps adapts to the measured speed)" if plan.has_time_budget else ")"
    if budget and train.steps == budget.most_steps and not plan.has_time_budget:
        facts += f"; if the machine is slower, fewer steps in {duration(budget.seconds)}"
    if round(plan.last_seconds):
        facts += f"; then about {duration(plan.last_seconds)} to evaluate the whole split"
        facts += " (--eval-chars N: less)"
    return facts + plan.longer


def _rough(number: float) -> str:
    """A number with two significant digits."""
    return f"{float(f'{number:.2g}'):,.10g}"


def _to_beat(plan: Plan) -> str:
    """Losses of counting n-grams, the best order first, and of a uniform model."""
    baseline = plan.baseline
    losses = " ".join(f"{loss:.3f}" for loss in baseline.losses)
    facts = (
        f"{baseline.nats:.4f} nats/char by counting {baseline.order}-grams · orders 1 to "
        f"{len(baseline.losses)}: {losses} · uniform {plan.uniform:.3f}"
    )
    if plan.is_baseline_complete:
        return facts
    return (
        f"{facts} (counted in the last {baseline.counted:,} characters of the training "
        f"split, scored on the first {baseline.scored:,} of the validation split)"
    )
