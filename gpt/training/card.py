"""The texts that a user reads about a training: its plan, its lines while it runs, its result."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gpt.config.fields import with_flags
from gpt.corpus.corpus import Corpus
from gpt.storage.checkpoint_files import Manifest
from gpt.storage.overview import (
    corpus_facts,
    counting_record,
    model_facts,
    parent_facts,
)
from gpt.storage.run import Run, pinned_run
from gpt.training.progress import Evaluated, Event, Sampled
from gpt.words import cut, duration, first_few, layers_and_heads, ordinal, pluralize

if TYPE_CHECKING:
    from gpt.training.plan import Plan
    from gpt.training.trainer import Trainer

SMALL = 200_000  # a text with fewer characters is small
#: What to expect of a small text. Every loss is the result of one trial (benchmarks/LOG.md).
SMALL_TEXT = (
    "expect words, not sentences; what helped in a trial each: 4 × as much text by the author "
    "(loss 1.67 → 1.53); to start from a run on more text in the same language: "
    "`init_from` (1.37 → 1.33)"
)
SLOWER = 1.5  # a note appears if steps take so many times as long as planned
UNSURE = 0.05  # nats; losses on different characters may differ so much by chance
READ_FOR_PROMPT = 1_000_000  # first characters of a text; the prompt begins lines in them
BEGINNING = re.compile(r"^[^\w\n]{0,3}(\w[\w'’]{1,19})", re.MULTILINE)

Facts = dict[str, str | list[str]]  # name -> one or more lines


def plan_card(plan: Plan) -> Facts:
    """Returns the plan in four lines: text, model, time, and the loss to reach."""
    manifest, model = plan.manifest, plan.manifest.model
    sources = first_few(manifest.corpus.names, 2, ", ")
    kinds = "different" if manifest.parent is None else "in the vocabulary"
    text = f"{sources} · {manifest.corpus.characters:,} characters, {model.vocab_size:,} {kinds}"
    shape = f"a GPT of {layers_and_heads(model.n_layer, model.n_head)}"
    if model.counting:
        shape += ", helped by counted letter sequences"
    if manifest.parent is not None:
        shape += f", from {manifest.parent.title}"
    return {
        "text": f"{text}; {_validation(plan)} tests the model",
        "model": shape,
        "time": _time(plan),
        "goal": f"a loss below that of counting alone, {plan.baseline.nats:.3f}; "
        f"guessing has {plan.uniform_loss:.3f}",
        **_small(manifest),
        "": "everything else: --all",
    }


def whole_card(plan: Plan) -> Facts:
    """Returns all facts of the plan, for --all."""
    manifest, train, baseline = plan.manifest, plan.manifest.train, plan.baseline
    epochs = plan.steps * manifest.step_characters / plan.train_characters
    steps, peak = pluralize(f"{plan.steps:,}", "step"), train.learning_rate
    if manifest.clock is not None:
        steps, peak = f"about {steps}", manifest.clock.peak * peak
    training = (
        f"{steps} × {manifest.step_characters:,} characters = {epochs:.1f} epochs, "
        f"learning rate {peak:g} → {train.min_lr:g} ({train.schedule})"
    )
    environment = plan.machine.environment
    device = f"{environment['device']}, {pluralize(int(environment['threads']), 'thread')}"
    if environment["ranks"] != 1:
        device += f", {environment['ranks']} ranks"
    return {
        "corpus": corpus_facts(plan.corpus.identity, manifest.model, manifest.parent),
        "from": parent_facts(manifest.parent),
        "split": _split(plan),
        "model": model_facts(manifest.model),
        "training": training,
        "device": f"{device}, torch {environment['torch']}",
        "time": _time(plan),
        "goal": f"a loss below {baseline.nats:.4f} nats/char on {baseline.scored:,} validation "
        f"characters, the loss of counting {baseline.order}-grams in {baseline.counted:,} training "
        "characters; "
        f"guessing has {plan.uniform_loss:.4f}",
        **_small(manifest),
    }


def plan_record(plan: Plan) -> dict[str, Any]:
    """Returns the plan for programs: all options, and the counts and the estimates behind it."""
    manifest = plan.manifest
    return {
        "dry_run": True,
        "parent": asdict(manifest.parent) if manifest.parent else None,
        **manifest.settings(),
        "steps": plan.steps,
        "characters": plan.corpus.identity.characters,
        "train_characters": plan.train_characters,
        "val_characters": manifest.val_characters + 1,
        "vocab_size": manifest.model.vocab_size,
        "parameters": manifest.model.parameters(),
        "step_seconds": plan.speed.step,
        "seconds_left": plan.seconds_left,
        "uniform": plan.uniform_loss,
        "counting": counting_record(manifest, (None, 0, 0)),
    }


@dataclass
class EventLines:
    """The lines that a training shows above its progress bar. width: cells of a line. loss: that of
    the last evaluation. stops: whether a line has said that the training stops.
    """

    trainer: Trainer
    width: int
    loss: str = ""
    stops: bool = False

    def after(self, event: Event) -> Iterator[str]:
        """Yields the lines to show after an event."""
        trainer = self.trainer
        if trainer.stop_reason and not self.stops:
            self.stops = True
            lost = f"the steps after {trainer.saved_step or 0:,}"
            yield f"saving, then ending; a second Ctrl-C ends at once and loses {lost}"
        if isinstance(event, Evaluated):
            if not self.loss:
                if trainer.counting.note:
                    yield f"note: {trainer.counting.note}"
                slowdown = trainer.timing.slowdown
                if slowdown > SLOWER:
                    yield f"note: steps take {slowdown:.1f} times as long as planned"
                yield f"{'step':>7}  {'loss':>6}   the model writes"
            self.loss = f"{event.val_loss:.3f}"
        elif isinstance(event, Sampled):
            line = f"{event.step:>7,}  {self.loss:>6}   {' '.join(event.text.split())}"
            yield cut(line, self.width)


def end_card(run: Run, manifest: Manifest, reason: str, corpus: Corpus) -> Facts:
    """Returns the result of a training: its losses, its folder, and what to type next."""
    folder = run.path.parent
    is_default = str(folder) == os.environ.get("GPTX_CHECKPOINTS", "checkpoints")
    where = "" if is_default else f" --checkpoints {shlex.quote(str(folder))}"
    resume = f"gptx train --resume --run {run.name}{where}"
    if pinned_run(folder) not in (None, run):
        where += f" --run {run.name}"
    prompt = " -n 20 --new" if manifest.train.item_separator else _prompt(corpus)
    commands = [f"gptx sample{prompt}{where}", f"gptx live --open{where}"]
    ended, time = "done", duration(manifest.elapsed)
    if reason == "patience":
        time += f", no lower loss in {manifest.since_best} evaluations"
    elif reason != "finished":
        ended, time = "stopped", f"after step {manifest.step:,}, {time}"
        commands.append(resume)
    elif ends_by_epochs(manifest):
        time += ", as with more epochs the model would learn the text by heart"
    elif manifest.since_best > 1:
        time += f", no lower loss since step {manifest.best_step:,}"
    else:
        commands.append(f"{resume} --minutes 10")
    losses = _losses(manifest)
    return {
        ended: [f"{time} · {losses[0]}", *losses[1:], *map(with_flags, manifest.doubts.sentences)],
        **_small(manifest),
        "saved": str(run.path),
        "next": commands,
    }


def ends_by_epochs(manifest: Manifest) -> bool:
    """Whether the limit of epochs, and not the time budget, ends the training."""
    return manifest.clock is not None and manifest.step >= manifest.train.steps


def _small(manifest: Manifest) -> Facts:
    """Says what to expect from a small text, and what helps; nothing for a larger text."""
    is_small = manifest.corpus.characters < SMALL and manifest.parent is None
    is_small = is_small and not manifest.train.item_separator
    return {"small": with_flags(SMALL_TEXT)} if is_small else {}


def _losses(manifest: Manifest) -> list[str]:
    """Compares losses with counting: "loss 1.452, better than counting (1.519)". In a run with
    counting, a second line is about the GPT alone. If a loss is not better, a line says what helps.
    """
    (nats, characters, of), baseline = manifest.shown_loss, manifest.baseline
    if nats is None or baseline is None:
        return ["not evaluated yet"]
    goal, alone = baseline.nats, manifest.gpt_loss
    if characters == of == baseline.scored:
        better = "better" if nats < goal else "not better"
        lines = [f"loss {nats:.3f}, {better} than counting ({goal:.3f})"]
    else:
        measured = f"on {characters:,} of {of:,} validation characters"
        lines = [f"loss {nats:.3f} {measured}; counting {goal:.3f} on {baseline.scored:,}"]
        goal += UNSURE
    if alone is not None:
        lines.append(f"the GPT alone {alone:.3f}")
        if alone >= goal:
            lines[1] += ", not yet better than counting"
    if (nats if alone is None else alone) >= goal:
        longer = "" if ends_by_epochs(manifest) or manifest.since_best > 1 else "longer, or "
        lines[-1] += f": train {longer}on more text"
    if characters > (read := manifest.evaluated_characters[0]):
        lines.append(f"the losses above are from {read:,} of {of:,} validation characters")
    return lines


def _prompt(corpus: Corpus) -> str:
    """Returns the option --prompt with the most frequent first word of lines, or ""."""
    text = corpus.vocabulary.decode(corpus.ids[:READ_FOR_PROMPT])
    beginnings = Counter(BEGINNING.findall(text)).most_common(1)
    return f" --prompt {shlex.quote(beginnings[0][0])}" if beginnings else ""


def _time(plan: Plan) -> str:
    """Returns the planned time, with "about" unless the time budget ends the training."""
    time = duration(plan.seconds_left)
    if not plan.ends_by_time:
        by_text = plan.manifest.clock is not None
        return f"about {time}" + (
            "; with more time, the model would learn this text by heart" if by_text else ""
        )
    return f"{time} (--minutes 15: better)" if plan.suggests_longer else time


def _validation(plan: Plan) -> str:
    """Names the validation text: "the last tenth", "every 20th block", or a file."""
    train = plan.manifest.train
    if train.validation_file:
        return train.validation_file
    if train.split_period:
        return f"every {ordinal(train.split_period)} {'block' if plan.corpus.block else 'text'}"
    return "the last tenth" if train.val_fraction == 0.1 else f"the last {train.val_fraction:.0%}"


def _split(plan: Plan) -> str:
    """Describes both splits: their sizes, the validation text, and how much evaluations read."""
    read, of = plan.manifest.evaluated_characters
    facts = f"{plan.train_characters:,} to train on, {of + 1:,} to validate: {_validation(plan)}"
    if read < of:
        facts += f"; evaluations read {read:,} of them, evenly distributed; the last one, after "
        limit = "" if plan.manifest.clock is None else ", or as many as 5% of the time allows"
        facts += f"the training, reads all{limit}"
    return facts
