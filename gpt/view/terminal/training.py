"""A training in the terminal: the card before it, with the text, split, model, recipe, device, time
and loss to beat; then lines for evaluations, samples, and how it ended.

Every function gives the fact of one row; `lines.card` draws them.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from gpt.characters import cut, quoted
from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import flag_of
from gpt.config.schedule import Budget
from gpt.config.train import trained_parameters
from gpt.storage.losses import (
    best_facts,
    counting_facts,
    counting_record,
    few_facts,
    no_better,
)
from gpt.storage.manifest import Baseline, CorpusId, Manifest, Parent
from gpt.storage.run import Run
from gpt.vocabulary import REPLACEMENT
from gpt.words import (
    bits,
    counted,
    duration,
    layers_and_heads,
    measured_on,
    millions,
    ordinal,
    some,
)

#: The meaning of the losses on the card and after it.
NATS = (
    "mean of −ln of the probability that the model gives the correct next character; 0 is "
    "perfect; bits = nats / ln 2"
)


def corpus_facts(
    sources: Sequence[str], characters: int, config: ModelConfig, parent: Parent | None = None
) -> str:
    """The text's sources and size, and the vocabulary's share of the parameters if it is large."""
    text = f"{some(sources, 3, ', ')}: {characters:,} characters" if sources else "not known"
    kinds = "in the vocabulary" if parent else "distinct"
    facts = f"{text}, {config.vocab_size:,} {kinds}{'' if sources else ' characters'}"
    share = config.vocab_size * config.n_embd * (2 - config.tied) / config.parameters()
    return facts + (f" (they take {share:.0%} of the parameters)" if share > 0.5 else "")


def parent_facts(parent: Parent | None, most: int = 12) -> str:
    """The model that the run started from, and the characters that it did not know."""
    if parent is None:
        return ""
    if not parent.added:
        return f"{parent.title}, which knows all characters"
    new = counted(len(parent.added), "new character")
    return f"{parent.title}; {new}: {_quoted(parent.added, most)}"


def frozen_facts(config: ModelConfig, freeze: str) -> str:
    """The parts that do not train, and how many parameters do."""
    if not freeze:
        return ""
    trained, whole = trained_parameters(config, freeze), config.parameters()
    return f"{freeze}; {millions(trained)} of {millions(whole)} parameters train"


def character_facts(rare: str, only_in_val: str, most: int = 12) -> str:
    """Characters that are rare in the training text, and those that only validation has."""
    facts = {"rare": rare, "only in validation": only_in_val}
    return " · ".join(f"{what}: {_quoted(them, most)}" for what, them in facts.items() if them)


def _quoted(characters: str, most: int) -> str:
    return some([quoted(character) for character in characters], most)


def folded_facts(corpus: CorpusId, most: int = 12) -> str:
    """The rare characters that became one, and their share of the text."""
    if not corpus.folded:
        return ""
    kinds, share = len(corpus.folded), corpus.folded_count / corpus.characters
    return (
        f"{_quoted(corpus.folded, most)} became {quoted(REPLACEMENT)}: "
        f"{counted(kinds, 'rare character')}, {corpus.folded_count:,} of {corpus.characters:,} "
        f"in the text ({100 * share:.3g}%)"
    )


def split_facts(
    train_characters: int,
    val_characters: int,
    config: TrainConfig,
    block: int,
    read: int,
    read_last: int,
    pairs: tuple[int, int] | None = None,
) -> str:
    """The sizes of both splits, the validation rule, and how much of that split evaluations read.

    read: characters that each evaluation predicts; read_last: those that the last one predicts.
    pairs: the number of lines in each split of pairs.
    """
    few = few_facts(read_last)
    if pairs:
        kinds = {"source": "by a hash of the source", "last": "the last lines"}
        how = f"every {ordinal(config.every)} line" if config.every else config.split
        return (
            f"{counted(pairs[0], 'pair')} to train on "
            f"({train_characters:,} characters of targets), {pairs[1]:,} to validate "
            f"({val_characters - 1:,}): {kinds.get(config.split, how)}{few}"
        )
    facts = f"{train_characters:,} to train on, {val_characters:,} to validate"
    if config.every:
        what = f"block of {block:,} characters" if block else "text"
        facts += f": every {ordinal(config.every)} {what}"
    elif config.validation:
        facts += f": {config.validation}"
    if read < val_characters - 1:
        facts += f"; evaluations read {read:,} of them, evenly distributed"
        whole = "all" if read_last == val_characters - 1 else f"{read_last:,}"
        facts += f"; the last one reads {whole}" if read_last > read else " (--eval-chars)"
    return facts + few


def model_facts(config: ModelConfig) -> str:
    """Its size, then the kinds of its parts."""
    parts = [f"{config.position} positions", f"{config.norm} norm", config.activation]
    if config.previous_heads:
        heads = min(config.previous_heads, config.n_head)
        starts = "start on the last characters" if heads > 1 else "starts on the last character"
        parts.insert(1, f"{counted(heads, 'head')} {starts}")
    parts += ["biases"] * config.bias
    parts += ["biases of q, k, v"] * config.qkv_bias + ["tied"] * config.tied
    parts += [f"counts of n-grams up to {config.counting}"] * (config.counting > 0)
    parts += [f"dropout {config.dropout:g}", f"{config.attention} attention"]
    if config.encoder_layers:
        parts.insert(0, "post-norm" if config.post_norm else "pre-norm")
        parts += ["one embedding for both sides"] * config.shared_embedding
    shape = layers_and_heads(config.n_layer, config.n_head)
    if config.encoder_layers:
        shape = f"{counted(config.encoder_layers, 'encoder layer')} + {shape}"
    return (
        f"{millions(config.parameters())} parameters: {shape} × {config.head_size}, "
        f"context {config.block_size}; {', '.join(parts)}"
    )


def recipe_facts(recipe: Mapping[str, Any]) -> str:
    """The options that a known corpus sets, as the command line spells them."""
    if not recipe:
        return ""
    spelled = " ".join(
        f"--{'no-' * (value is False)}{flag_of(name)[2:]}"
        + (f" {value}" if not isinstance(value, bool) else "")
        for name, value in recipe.items()
    )
    return f"options of this corpus, unless you give others: {spelled}"


def training_facts(
    config: TrainConfig,
    step_characters: int,
    train_characters: int,
    budget: Budget | None = None,
) -> str:
    """ "2,000 steps × 2,048 characters = 4.1 epochs, learning rate …".

    budget: lets the number of steps change.
    """
    epochs = config.steps * step_characters / train_characters
    about = ("at most " if budget.most_steps == config.steps else "about ") if budget else ""
    return (
        f"{about}{counted(f'{config.steps:,}', 'step')} × {step_characters:,} characters = "
        f"{epochs:.1f} epochs, "
        f"learning rate {config.learning_rate:g} → {config.min_lr:g} ({config.schedule})"
    )


def device_facts(device: str, environment: Mapping[str, Any]) -> str:
    """ "cpu (2 threads, torch 2.13.0)"."""
    name = environment["device"] if device != "cpu" else counted(environment["threads"], "thread")
    if environment.get("ranks", 1) > 1:
        name = f"{environment['ranks']} ranks of {name}"
    return f"{device} ({name}, torch {environment['torch']})"


def time_facts(
    seconds_per_step: float,
    step_characters: int,
    total: float,
    last: float = 0.0,
    timed: bool = False,
    limit: float = 0.0,
) -> str:
    """ "2 min 10 s with evaluations and saves (estimated: 62 ms/step, 33,000 characters/s)".

    last: seconds of an evaluation that comes after the `total` seconds. timed: the number of
    steps adapts so that the run ends on time. limit: seconds after which it ends with fewer steps.
    """
    speed = step_characters / seconds_per_step
    facts = f"{'' if timed else 'about '}{duration(total)} with evaluations and saves "
    facts += f"(estimated: {_rough(1000 * seconds_per_step)} ms/step, {_rough(speed)} characters/s"
    facts += "; the number of steps adapts to the measured speed)" if timed else ")"
    if limit and not timed:
        facts += f"; if the machine is slower, fewer steps in {duration(limit)}"
    if round(last):
        facts += f"; then about {duration(last)} to evaluate the whole split"
        facts += " (--eval-chars N: less)"
    return facts


def _rough(number: float) -> str:
    """A number with two significant digits."""
    return f"{float(f'{number:.2g}'):,.10g}"


def baseline_facts(
    uniform: float, baseline: Baseline, counts_all: bool = True, pairs: bool = False
) -> str:
    """The losses of counting n-grams on the validation split, best order first, and of a uniform
    model.

    counts_all: whether all of both splits was counted and scored. pairs: targets were counted.
    """
    losses = " ".join(f"{loss:.3f}" for loss in baseline.losses)
    of = " of the targets, without the sources" * pairs
    facts = (
        f"{baseline.nats:.4f} nats/char by counting {baseline.order}-grams{of} · "
        f"orders 1 to {len(baseline.losses)}: {losses} · uniform {uniform:.3f}"
    )
    if counts_all:
        return facts
    return (
        f"{facts} (counted in the last {baseline.counted:,} characters of the training "
        f"split, scored on the first {baseline.scored:,} of the validation split)"
    )


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
        }
    return record
