"""Lists runs, or describes one: what was trained, on which text, how, and how good it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from gpt.characters import cut, quoted
from gpt.checks import Check
from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import options_of, with_flags
from gpt.show.result import Column, Line, Result
from gpt.storage.curves import Curve, curve_of
from gpt.storage.losses import compared_with_counting, counting_record, no_better_text
from gpt.storage.manifest import CorpusId, Manifest, Parent
from gpt.storage.model_file import StoredModel
from gpt.storage.run import Run, step_folder
from gpt.storage.runs import pinned_run
from gpt.words import bits, counted, duration, first_few, layers_and_heads, measured_on, millions

LONGEST_NAMES, LONGEST_VALUE, LONGEST_SAMPLE = 40, 100, 60  # cells to show
MOST_CHARACTERS = 12  # characters that a fact lists


@dataclass(frozen=True, repr=False)
class RunTable(Result):
    """Runs, each with the manifest of its newest checkpoint, the most recently saved last."""

    entries: tuple[tuple[Run, Manifest], ...]

    COLUMNS = (
        Column("run", "run"),
        Column("saved", "saved", right=True),
        Column("trained", "trained", right=True),
        Column("loss", "loss", "{:.4f}".format, right=True),
        Column("counting", "counting", "{:.4f}".format, right=True),
        Column("text", "text"),
    )

    @property
    def title(self) -> str:
        return counted(len(self), "run")

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Run]:
        return (run for run, _ in self.entries)

    def shown(self, all: bool = False) -> Sequence[Mapping[str, Any]]:
        rows = []
        for number, (run, manifest) in enumerate(self.entries, start=1):
            mark = " (newest)" if 1 < number == len(self.entries) else ""
            if run == pinned_run(run.path.parent):
                mark += " (pinned)"
            sources = manifest.corpus.sources
            row = {
                "run": run.name + mark,
                "saved": _saved(run, manifest.step),
                "trained": "imported" if manifest.imported else duration(manifest.elapsed),
                "loss": manifest.shown_loss[0],
                "counting": manifest.baseline.nats if manifest.baseline else None,
                "text": cut(first_few(sources, 3, ", "), LONGEST_NAMES),
            }
            rows.append(row)
        return rows

    def sentence(self, all: bool = False) -> str:
        if not self.entries:
            return "train one: gptx train"
        return "nats a character · gptx runs NAME shows one run, gptx runs A B compares two"

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """A row for each run; see `outcome_record`."""
        return [outcome_record(run.name, manifest) for run, manifest in self.entries]


def _saved(run: Run, step: int) -> str:
    """When a step was saved: "2025-11-24 14:03"; "" if it is gone."""
    with suppress(OSError):
        saved = (run.path / step_folder(step)).stat().st_mtime
        return f"{datetime.fromtimestamp(saved):%Y-%m-%d %H:%M}"
    return ""


@dataclass(frozen=True, repr=False)
class Overview(Result):
    """One run: what was trained and how, its losses, and three of the samples that it wrote.

    samples: records with "step" and "text".
    """

    name: str
    manifest: Manifest
    curve: Curve
    samples: tuple[Mapping[str, Any], ...] = ()

    COLUMNS = (
        Column("step", "step", "{:,}".format, right=True),
        Column("loss", "loss", "{:.4f}".format, right=True),
        Column("text", "the model wrote"),
    )

    @property
    def title(self) -> str:
        if self.manifest.imported:
            return f"{self.name} · step {self.manifest.step:,}"
        steps = f"step {self.manifest.step:,}"
        if self.manifest.clock is None:
            steps += f" of {self.manifest.train.steps:,}"
        return f"{self.name} · {steps} · {duration(self.manifest.elapsed)}"

    @property
    def loss(self) -> float | None:
        """The loss of the best step, nats per character; None if nothing was evaluated."""
        return self.manifest.shown_loss[0]

    @property
    def options(self) -> dict[str, Any]:
        """Every option of the model and the training."""
        return {**vars(self.manifest.model), **vars(self.manifest.train)}

    def facts(self, all: bool = False) -> Mapping[str, str]:
        """How good it is and what it is; the long form also has every option, with what it means;
        for an imported run, those of the model.
        """
        facts = facts_of(self.manifest)
        if all:
            known = options_of(ModelConfig)
            if not self.manifest.imported:
                known |= options_of(TrainConfig)
            for name, option in known.items():
                value = cut(str(self.options[name]), LONGEST_VALUE)
                facts[name] = f"{value} · {with_flags(option.help)}"
        return facts

    def curves(self) -> Sequence[Line]:
        return self.curve.curves() if len(self.curve) > 1 else ()

    def shown(self, all: bool = False) -> Sequence[Mapping[str, Any]]:
        """The first, the middle and the last sample."""
        losses = dict(zip(self.curve.steps.tolist(), self.curve.val.tolist(), strict=True))
        rows = []
        for place in sorted({0, (len(self.samples) - 1) // 2, len(self.samples) - 1}):
            if self.samples:
                step, text = self.samples[place]["step"], self.samples[place]["text"]
                written = cut(" ".join(text.split()), LONGEST_SAMPLE)
                rows.append({"step": step, "loss": losses.get(step), "text": written})
        return rows

    def sentence(self, all: bool = False) -> str:
        return outlook_of(self.manifest)

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """A row for each evaluation."""
        return self.curve.rows

    def record(self) -> Mapping[str, Any]:
        """How the run ended, its options and its corpus."""
        corpus = self.manifest.corpus
        text = {"sources": list(corpus.sources), "characters": corpus.characters}
        return {
            **outcome_record(self.name, self.manifest),
            "options": self.options,
            "parameters": self.manifest.model.parameters(),
            "corpus": {**text, "digest": corpus.digest},
        }


@dataclass(frozen=True, repr=False)
class ModelCard(Result):
    """A model, as a notebook shows it. manifest: None for a model file without its run. proof: the
    result of its probe.
    """

    model: StoredModel
    manifest: Manifest | None
    proof: Check

    @property
    def title(self) -> str:
        return self.model.title

    def facts(self, all: bool = False) -> Mapping[str, str]:
        shape = {"model": model_facts(self.model.config)}
        known = facts_of(self.manifest) if self.manifest else shape
        return {**known, "file": str(self.model.source)}

    def checked(self) -> Sequence[Check]:
        return [self.proof]


def overview_of(run: Run, manifest: Manifest | None = None) -> Overview:
    """Reads a run as it is now. manifest: the newest one, if the caller has read it. Raises
    CheckpointError.
    """
    manifest = manifest or run.last().manifest
    return Overview(run.name, manifest, curve_of(run, manifest), tuple(run.records("samples")))


def outlook_of(manifest: Manifest) -> str:
    """Whether the text is the limit; "" if that is not known."""
    best = manifest.best_step
    if best is None or manifest.since_best < 2:
        return ""
    return f"{no_better_text(best)}: more text helps more than more time"


def facts_of(manifest: Manifest) -> dict[str, str]:
    """How good a model is, what it was trained on, and what it is."""
    alone = manifest.gpt_loss
    return {
        "loss": "" if manifest.imported else _loss_facts(manifest),
        "GPT alone": "" if alone is None else f"{alone:.4f} nats",
        "text": corpus_facts(manifest.corpus, manifest.model, manifest.parent),
        "from": manifest.imported or parent_facts(manifest.parent),
        "model": model_facts(manifest.model),
    }


def _loss_facts(manifest: Manifest) -> str:
    nats, characters, of = manifest.shown_loss
    if nats is None:
        return "not evaluated yet"
    facts = f"{nats:.4f} nats a character at step {manifest.best_step or 0:,}"
    facts += measured_on(characters, of)
    if manifest.baseline is None:
        return facts
    counting = f"counting ({manifest.baseline.nats:.4f})"
    compared = compared_with_counting(manifest)
    if compared == "–":
        return f"{facts}; {counting} was measured on other characters"
    return f"{facts}, {compared} {'as' if compared == 'as good' else 'than'} {counting}"


def outcome_record(name: str, manifest: Manifest) -> dict[str, Any]:
    """How a run went, for programs."""
    clock = manifest.clock
    best, characters, of = manifest.shown_loss
    return {
        "run": name,
        "step": manifest.step,
        "best_step": manifest.best_step,
        "val_nats": best,
        "val_bits": None if best is None else bits(best),
        "val_characters": characters or None,
        "val_split": of or None,
        "seconds": round(manifest.seconds, 3),
        "elapsed": round(manifest.elapsed, 3),
        "minutes": None if clock is None else clock.ends / 60,
        "gpt_nats": manifest.gpt_loss,
        "parent": asdict(manifest.parent) if manifest.parent else None,
        "counting": counting_record(manifest),
    }


def corpus_facts(corpus: CorpusId, config: ModelConfig, parent: Parent | None = None) -> str:
    """The text's sources and size."""
    kinds = f"{config.vocab_size:,} {'in the vocabulary' if parent else 'different'}"
    if not corpus.sources:
        return f"not known, {kinds} characters"
    return f"{first_few(corpus.sources, 3, ', ')}: {corpus.characters:,} characters, {kinds}"


def parent_facts(parent: Parent | None) -> str:
    """The model that the run started from, and the characters that it did not know."""
    if parent is None:
        return ""
    if not parent.added:
        return f"{parent.title}, which knows all characters"
    new = counted(len(parent.added), "new character")
    return f"{parent.title}; {new}: {quote_some(parent.added)}"


def quote_some(characters: Sequence[str]) -> str:
    """The labels of the first characters in quotes, and how many more there are."""
    return first_few([quoted(character) for character in characters], MOST_CHARACTERS)


def model_facts(config: ModelConfig) -> str:
    """The model's size and shape."""
    size = f"{millions(config.parameters())} parameters"
    shape = f"{layers_and_heads(config.n_layer, config.n_head)} × {config.head_size}"
    counting = f", counting of up to {config.counting} characters" if config.counting else ""
    return f"{size}: {shape}, context {config.block_size}{counting}"
