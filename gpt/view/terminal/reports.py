"""What a run is and how it went: the preflight card, the table of runs, one run's story."""

from __future__ import annotations

import math
import os
import shlex
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import field_help, flag_of
from gpt.errors import CheckpointError
from gpt.reading.score import Score
from gpt.storage.manifest import Baseline, CorpusId, Manifest
from gpt.storage.run import Run
from gpt.view.characters import cut, escape, quoted

#: The meaning of the losses on the card and after it.
NATS = (
    "mean of −ln of the probability that the model gives the correct next character; 0 is "
    "perfect; bits = nats / ln 2"
)
COLUMNS = ("run", "step", "of", "best nats", "than counting", "parameters", "corpus")
NARROW = ("run", "best nats", "than counting")  # what `runs` shows in fewer than MEDIUM cells
MEDIUM, WIDE = 60, 80  # cells; from WIDE on, `runs` shows all columns
LEAST_COMPARED = 100  # characters that a loss is a mean of, if it is compared with the baseline
AXIS = 30  # most cells between the lowest and the highest loss of a curve


def card(rows: Mapping[str, str]) -> Table:
    """Names on the left, facts on the right; facts wrap in their own column."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, fact in rows.items():
        if fact:
            table.add_row(Text(name), Text(escape(fact)))
    return table


def corpus_facts(sources: Sequence[str], characters: int, config: ModelConfig) -> str:
    """Where the text is from, how much there is of it, and a vocabulary that costs too much."""
    names = ", ".join(sources[:3]) + (f" and {len(sources) - 3} more" if len(sources) > 3 else "")
    facts = f"{names}: {characters:,} characters, {config.vocab_size:,} distinct"
    share = config.vocab_size * config.n_embd * (2 - config.tied) / config.parameters()
    return facts + (f" (they take {share:.0%} of the parameters)" if share > 0.5 else "")


def folded_facts(corpus: CorpusId, replacement: str, most: int = 12) -> str:
    """Which rare characters became one, and how much of the text they were."""
    if not corpus.folded:
        return ""
    kinds, share = len(corpus.folded), corpus.folded_count / corpus.characters
    some = " ".join(quoted(character) for character in corpus.folded[:most])
    more = f" and {kinds - most} more" if kinds > most else ""
    return (
        f"{some}{more} became {quoted(replacement)}: {counted(kinds, 'rare character')}, "
        f"{corpus.folded_count:,} of {corpus.characters:,} in the text ({100 * share:.3g}%)"
    )


def split_facts(
    train_characters: int,
    val_characters: int,
    config: TrainConfig,
    block: int,
    read: int,
    read_last: int,
) -> str:
    """The sizes of both splits, the validation rule, and how much of that split evaluations read.

    read, read_last: characters that each evaluation and the last one predict, of all but the first.
    """
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
    return facts


def model_facts(config: ModelConfig) -> str:
    """Its size, then the kinds of its parts."""
    parts = [f"{config.position} positions", f"{config.norm} norm", config.activation]
    parts += ["QK-norm"] * config.qk_norm + ["biases"] * config.bias + ["tied"] * config.tied
    if config.ngram > 1:
        dropped = f" ({config.ngram_dropout:.0%} dropped)" if config.ngram_dropout else ""
        parts.append(f"n-grams up to {config.ngram}{dropped}")
    parts += [f"dropout {config.dropout:g}", f"{config.attention} attention"]
    rows = sum(config.ngram_tables) * config.n_embd
    size = millions(config.parameters())
    size += f" parameters ({millions(rows)} in n-gram embeddings)" if rows else " parameters"
    layers = f"{config.n_layer} layer" + "s" * (config.n_layer > 1)
    return (
        f"{size}: {layers} × {config.n_head} heads × {config.head_size}, "
        f"context {config.block_size}; {', '.join(parts)}"
    )


def heads_facts(config: ModelConfig) -> str:
    """What n-gram embeddings do instead of heads, and what to train to study heads."""
    if config.ngram == 1:
        return ""
    return (
        "n-gram embeddings supply the last characters without attention (--ngram 1 turns them "
        "off); to study heads with clear jobs: gptx train repeats"
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
    timed: bool = False,
    since: int = 0,
) -> str:
    """ "2,000 steps × 2,048 characters = 4.1 epochs, learning rate …"; timed: about so many.

    since: the step after which training on this text began.
    """
    steps = config.steps - since
    epochs = steps * step_characters / train_characters
    return (
        f"{'about ' * timed}{steps:,} steps {f'after step {since:,} ' * (since > 0)}× "
        f"{step_characters:,} characters = {epochs:.1f} epochs, "
        f"learning rate {config.learning_rate:g} → {config.min_lr:g} ({config.schedule})"
    )


def character_facts(rare: str, only_in_val: str, most: int = 12) -> str:
    """Which characters the model can hardly learn, or cannot."""
    facts = []
    for what, characters in (("rare", rare), ("only in validation", only_in_val)):
        if characters:
            some = " ".join(quoted(character) for character in characters[:most])
            more = f" and {len(characters) - most} more" if len(characters) > most else ""
            facts.append(f"{what}: {some}{more}")
    return " · ".join(facts)


def baseline_facts(uniform: float, baseline: Baseline, counts_all: bool = True) -> str:
    """The losses of counting n-grams on the validation split, best order first, and of a uniform
    model.

    counts_all: whether all of both splits was counted and scored.
    """
    losses = " ".join(f"{loss:.3f}" for loss in baseline.losses)
    facts = (
        f"{baseline.nats:.4f} nats/char by counting {baseline.order}-grams · "
        f"orders 1 to {len(baseline.losses)}: {losses} · uniform {uniform:.3f}"
    )
    if counts_all:
        return facts
    return (
        f"{facts} (counted in the last {baseline.counted:,} characters of the training "
        f"split, scored on the first {baseline.scored:,} of the validation split)"
    )


def comparison(
    nats: float | None,
    characters: int,
    baseline: Baseline | None,
    manifest: Manifest | None = None,
) -> str:
    """Compares a model's loss, a mean over so many characters, with the baseline.

    manifest: the run's, which says what a worse model lacks.
    """
    if baseline is None:
        return "–"
    line = f"counting {baseline.order}-grams: {baseline.nats:.4f} nats"
    if nats is None:
        return line
    if characters < LEAST_COMPARED:
        return f"{line}; {counted(characters, 'character')} are too few to compare the model"
    line += f"; this model is {better_or_worse(nats, baseline)}"
    if characters != baseline.scored:
        line += (
            f" (counting is scored on {baseline.scored:,} characters, the model on {characters:,})"
        )
    return f"{line}: {remedy(nats, manifest)}" if nats > baseline.nats else line


def remedy(nats: float, manifest: Manifest | None) -> str:
    """What to do about a loss that is worse than the baseline."""
    what = "train longer, or on more text"
    if manifest is None:
        return what
    budget, best = manifest.budget, manifest.best_step
    if best is not None and best < manifest.step:
        what = f"train on more text; more steps than {best:,} made it worse"
    elif budget and 0 < budget.most_steps <= manifest.train.steps:
        what = "train on more text; more epochs would learn this one by heart"
    uniform = math.log(manifest.model.vocab_size)
    guessing = f"even uniform guessing reaches {uniform:.4f}; " if nats > uniform else ""
    return guessing + what


def better_or_worse(nats: float | None, baseline: Baseline | None) -> str:
    """ "0.0037 worse" than counting, "0.0500 better" """
    if baseline is None or nats is None:
        return "–"
    return f"{abs(nats - baseline.nats):.4f} {'worse' if nats > baseline.nats else 'better'}"


def comparison_record(
    nats: float | None, characters: int, baseline: Baseline | None
) -> dict[str, Any] | None:
    """The comparison for programs. difference: above 0 if the model is worse."""
    if baseline is None:
        return None
    return {
        "order": baseline.order,
        "nats": baseline.nats,
        "losses": list(baseline.losses),
        "counted": baseline.counted,
        "scored": baseline.scored,
        "difference": None if nats is None else nats - baseline.nats,
        "same_characters": characters == baseline.scored,
    }


def evaluated_characters(manifest: Manifest) -> int:
    """The number of validation characters that the shown loss was measured on."""
    if manifest.val_characters:
        return manifest.shown_loss[1]
    corpus, train = manifest.corpus, manifest.train  # of a run that did not record it
    boundary = corpus.boundary
    if boundary is None:
        boundary = int(corpus.characters * (1 - train.val_fraction))
    targets = corpus.characters - boundary - 1
    return min(targets, train.eval_chars or targets)


def device_facts(device: str, environment: Mapping[str, Any], memory: int) -> str:
    """ "cpu (2 threads, torch 2.13.0), 410 MB used"."""
    name = environment["device"] if device != "cpu" else counted(environment["threads"], "thread")
    used = f", {memory / 2**20:,.0f} MB used" if memory else ""
    if environment.get("ranks", 1) > 1:
        name = f"{environment['ranks']} ranks of {name}"
    return f"{device} ({name}, torch {environment['torch']}){used}"


def time_facts(
    seconds_per_step: float,
    step_characters: int,
    total: float,
    last: float = 0.0,
    timed: bool = False,
) -> str:
    """ "62 ms/step, 33,000 characters/s: about 2 min 10 s with evaluations and saves".

    last: seconds of the last evaluation, if it comes after that time. timed: the number of steps
    adapts so that the run ends on time.
    """
    speed = step_characters / seconds_per_step
    facts = f"{1000 * seconds_per_step:.1f} ms/step, {speed:,.0f} characters/s: "
    facts += f"{'' if timed else 'about '}{duration(total)} with evaluations and saves"
    if timed:
        facts += "; the number of steps adapts to the speed"
    if round(last):
        facts += f"; then about {duration(last)} to evaluate the whole split"
        facts += " (--eval-chars N: less)"
    return facts


def evaluation_line(
    step: int,
    train_loss: float,
    val_loss: float,
    best_step: int,
    since_best: int,
    characters: int,
    of: int,
) -> str:
    """ "step 400 · train 1.95 · val 1.98 nats, 2.86 bits/char (on 20,000 of 111,539) · best"."""
    if not since_best:
        verdict = "best so far"
    elif since_best == 1:
        verdict = f"best was step {best_step:,}"
    else:
        verdict = f"no better since step {best_step:,}"
    bits = val_loss / math.log(2)
    losses = f"train {train_loss:.4f} · val {val_loss:.4f} nats, {bits:.3f} bits/char"
    return f"step {step:,} · {losses}{measured_on(characters, of)} · {verdict}"


def whole_line(step: int, val_loss: float, characters: int, of: int, seconds: float) -> str:
    """ "step 400 · val 1.9813 nats, 2.858 bits/char on all 111,539 validation characters"."""
    read = f"all {of:,}" if characters == of else f"{characters:,} of {of:,}"
    line = f"step {step:,} · val {val_loss:.4f} nats, {val_loss / math.log(2):.3f} bits/char"
    return f"{line} on {read} validation characters, in {duration(seconds)}"


def measured_on(characters: int, of: int) -> str:
    """ " (on 20,000 of 111,539)", the characters of the split that were read; "" for all."""
    return f" (on {characters:,} of {of:,})" if characters < of else ""


def sample_line(text: str, width: int) -> str:
    """A short sample on one line."""
    visible = escape(text).replace("\n", "⏎").replace("\t", "⇥")
    return cut(f"  │ {visible}", width)


def result(name: str, manifest: Manifest, reason: str) -> dict[str, Any]:
    """How a training ended, for programs; and which characters were folded, if any were."""
    corpus, budget = manifest.corpus, manifest.budget
    best, characters, of = manifest.shown_loss
    told: dict[str, Any] = {
        "run": name,
        "step": manifest.step,
        "reason": reason,
        "best_step": manifest.best_step,
        "val_nats": best,
        "val_bits": None if best is None else best / math.log(2),
        "val_characters": characters or None,
        "val_split": of or None,
        "seconds": round(manifest.seconds, 3),
        "elapsed": round(manifest.elapsed, 3),
        "minutes": None if budget is None else budget.seconds / 60,
        "counting": comparison_record(best, evaluated_characters(manifest), manifest.baseline),
    }
    if not corpus.folded:
        return told
    folded = {
        "characters": corpus.folded,
        "kinds": len(corpus.folded),
        "count": corpus.folded_count,
        "share": corpus.folded_count / corpus.characters,
        "replacement": manifest.train.replacement,
    }
    return {**told, "folded": folded}


def counted(count: int | str, what: str) -> str:
    """ "1 thread", "2 threads" """
    return f"{count} {what}" + "s" * (str(count) != "1")


def ordinal(number: int) -> str:
    """ "2nd", "10th", "21st" """
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}" + ("th" if number % 100 in (11, 12, 13) else ending)


def millions(count: int) -> str:
    """ "0.80 M", "10.65 M", "812" """
    return f"{count / 1e6:.2f} M" if count >= 10_000 else f"{count:,}"


def duration(seconds: float) -> str:
    """ "8 s", "2 min 10 s", "3 h 5 min" """
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


def time_of(manifest: Manifest) -> str:
    """ "1 min 58 s of the 2 min 0 s asked for, with evaluations and saves"."""
    if manifest.elapsed < manifest.seconds:  # older releases did not record all of it
        return f"{duration(manifest.seconds)} of training"
    budget = manifest.budget
    asked = f" of the {duration(budget.seconds)} asked for" if budget else ""
    return f"{duration(manifest.elapsed)}{asked}, with evaluations and saves"


def losses(nats: float | None) -> str:
    """ "1.6693 nats (2.408 bits/char)" """
    return "–" if nats is None else f"{nats:.4f} nats ({nats / math.log(2):.3f} bits/char)"


def farewell(run: Run, manifest: Manifest, reason: str, shard: bool = False) -> dict[str, str]:
    """How the run ended, whether it is better than counting, its folder, and what to type next."""
    steps, folder = manifest.train.steps, run.path.parent
    ended = {
        "finished": f"all {steps:,} steps",
        "patience": f"stopped at step {manifest.step:,}: no new best in {manifest.since_best} "
        "evaluations",
    }.get(reason, f"{reason} after step {manifest.step:,} of {steps:,}")
    usual = str(folder) == os.environ.get("GPTX_CHECKPOINTS", "checkpoints")
    where = "" if usual else f" --checkpoints {shlex.quote(str(folder))}"
    resume = f"gptx train --resume --run {run.name}{where}"
    if manifest.environment.get("ranks", 1) != 1:
        resume = resume.replace("gptx", "torchrun … -m -- gpt", 1) + " --shard" * shard
    best = manifest.shown_loss[0]
    return {
        "ended": f"{ended}, {time_of(manifest)}",
        "best": best_facts(manifest),
        "to beat": comparison(best, evaluated_characters(manifest), manifest.baseline, manifest),
        "saved": str(run.path),
        "go on": "" if reason in ("finished", "patience") else resume,
        "next": f'gptx sample --prompt "…"{where}\ngptx attn{where}\ngptx runs {run.name}{where}',
    }


def readable(runs: Sequence[Run]) -> tuple[list[tuple[Run, Manifest]], list[str]]:
    """The runs whose newest manifest can be read, and what is wrong with the others."""
    rows, problems = [], []
    for run in runs:
        try:
            rows.append((run, run.last().manifest))
        except CheckpointError as error:
            problems.append(str(error))
    return rows, problems


def runs_table(rows: Sequence[tuple[Run, Manifest]], width: int | None = None) -> Table:
    """A line a run, the most recently saved last; fewer columns where `width` cells hold no more.

    No number is broken into two lines.
    """
    kept = set(NARROW) if width and width < MEDIUM else {*NARROW, "step", "of", "corpus"}
    kept |= {"parameters"} if not width or width >= WIDE else set()
    table = Table(box=None, pad_edge=False, header_style="bold cyan")
    for name in (name for name in COLUMNS if name in kept):
        if name in ("run", "corpus"):
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for run, manifest in rows:
        best, characters, of = manifest.shown_loss
        on = f" ({characters / of:.0%})" if characters < of else ""  # of the split that was read
        cells: dict[str, RenderableType] = {
            "run": Text(run.name),
            "step": f"{manifest.step:,}",
            "of": f"{manifest.train.steps:,}",
            "best nats": "–" if best is None else f"{best:.4f}" + on,
            "than counting": better_or_worse(best, manifest.baseline),
            "parameters": millions(manifest.model.parameters()),
            "corpus": Text(escape(", ".join(manifest.corpus.sources))),
        }
        table.add_row(*(cell for name, cell in cells.items() if name in kept))
    return table


def best_facts(manifest: Manifest) -> str:
    """The loss of the best step, and how much of the split it was measured on."""
    best, characters, of = manifest.shown_loss
    if best is None:
        return "not evaluated yet"
    return f"{losses(best)} at step {manifest.best_step or 0:,}{measured_on(characters, of)}"


def story(
    run: Run,
    manifest: Manifest,
    metrics: Sequence[Mapping[str, Any]],
    samples: Sequence[Mapping[str, Any]],
) -> Group:
    """One run: its facts and options, the loss at each evaluation, from noise to language."""
    config, train = manifest.model, manifest.train
    best = manifest.shown_loss[0]
    facts = {
        "run": f"{run.name}, step {manifest.step:,} of {train.steps:,}, {time_of(manifest)}",
        "corpus": corpus_facts(manifest.corpus.sources, manifest.corpus.characters, config),
        "folded": folded_facts(manifest.corpus, train.replacement),
        "model": model_facts(config),
        "best": best_facts(manifest),
        "to beat": comparison(best, evaluated_characters(manifest), manifest.baseline, manifest),
    }
    parts: list[RenderableType] = [card(facts), Text()]
    parts += [_heading("options"), config_table({**vars(config), **vars(train)}), Text()]
    starts = [step for step, _ in manifest.earlier_corpora]
    evaluations = [record for record in metrics if "val_loss" in record]
    for number, since in enumerate((0, *starts)):
        series = [rec for rec in evaluations if bisect_left(starts, rec["step"]) == number]
        if series:
            after = f"after step {since:,}, where the corpus was changed: " if number else ""
            on = measured_on(*manifest.part) if number == len(starts) else ""
            parts += [*loss_curve(series, after, on), Text()]
    for sample in samples:
        parts += [
            _heading(f"step {sample['step']:,}"),
            Text(escape(str(sample["text"])).strip("\n")),
        ]
        parts.append(Text())
    return Group(*parts)


def _heading(text: str) -> Text:
    return Text(text, "bold")


def score_record(score: Score) -> dict[str, float]:
    """A score's numbers, for programs."""
    return {
        "nats": score.nats,
        "bits": score.bits,
        "perplexity": score.perplexity,
        "characters": score.characters,
    }


def score_line(score: Score, in_context: Score | None = None) -> str:
    """ "1.6693 nats, 2.408 bits a character · perplexity 5.31 · 111,539 characters predicted".

    in_context: the same characters in overlapping windows.
    """
    line = (
        f"{score.nats:.4f} nats, {score.bits:.3f} bits a character · perplexity "
        f"{score.perplexity:.3f} · {score.characters:,} "
        f"character{'s' * (score.characters != 1)} predicted"
    )
    if in_context is None:
        return line
    return (
        f"{line} · with at least half a window of context: {in_context.nats:.4f} nats, "
        f"{in_context.bits:.3f} bits a character"
    )


def config_table(values: Mapping[str, Any]) -> Table:
    """Every option of a run with what it means."""
    comments = field_help(ModelConfig) | field_help(TrainConfig)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for name, value in values.items():
        table.add_row(name, Text(escape(str(value))), Text(comments.get(name, "")))
    return table


def loss_curve(
    metrics: Sequence[Mapping[str, Any]], after: str = "", on: str = ""
) -> tuple[Text, Table]:
    """The meaning of the marks, and a line per evaluation: both losses, a mark at the second.

    after: which evaluations these are, if not all. on: see `measured_on`.

    The axis goes from the lowest to the highest validation loss, and the heading states both: on an
    axis from 0, small improvements would not be visible.
    """
    values = [record["val_loss"] for record in metrics]
    lowest, highest = min(values), max(values)
    where = f"from {lowest:.4f} to {highest:.4f}" if highest > lowest else f"at {lowest:.4f}"
    heading = f"{after}loss{on}, nats per character; ● is the validation loss, {where}"
    table = Table(box=None, pad_edge=False, header_style="bold cyan")
    longest = max(len(f"{record['step']:,}") for record in metrics)
    for name, width in (("step", max(4, longest)), ("train", 6), ("val", 6)):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    ends = (f"{lowest:.2f}", f"{highest:.2f}") if highest > lowest else (f"{lowest:.2f}",)
    table.add_column(_Spread(0.0, ends, "bold cyan"))
    for record, value in zip(metrics, values, strict=True):
        share = (value - lowest) / (highest - lowest) if highest > lowest else 0.0
        mark = _Spread(share, ("●",), "green" if value == lowest else "blue")
        numbers = f"{record['step']:,}", f"{record['train_loss']:.4f}", f"{value:.4f}"
        table.add_row(*numbers, mark)
    return _heading(heading), table


class _Spread:
    """A text at `share` (0 … 1) of the width; with a second text, that one ends at the right."""

    def __init__(self, share: float, texts: Sequence[str], style: str) -> None:
        self.share, self.texts, self.style = share, texts, style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        first, *others = self.texts
        room = min(options.max_width, AXIS) - len(first)
        line = " " * round(self.share * room) + first
        yield Text(line + "".join(text.rjust(room) for text in others), self.style)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(9, options.max_width), min(AXIS, options.max_width))
