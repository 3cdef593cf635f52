"""Describes one run or lists runs: what was trained, on which text, how, and how good it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpt.blocks import Block, Cell, Column, Facts, Fold, Note, Passage, Records, Table, Title
from gpt.characters import cut, label, quoted
from gpt.checks import Check, TableResult
from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import options_of, with_flags
from gpt.storage.curves import Curve, curve_of, outlook_of
from gpt.storage.losses import best_facts, compared_with_counting, counting_facts, counting_record
from gpt.storage.manifest import CorpusId, Manifest, Parent
from gpt.storage.model_file import StoredModel
from gpt.storage.run import Run
from gpt.words import bits, counted, duration, first_few, layers_and_heads, millions

LONGEST = 100  # cells for an option, and for the names of texts
MOST_CHARACTERS = 12  # characters that a fact lists
#: What a percentage beside a loss means.
PART_NOTE = (
    "(%): on this share of the validation split; do not compare it with losses on other shares"
)
HINT = 'gptx runs NAME shows one, gptx runs A B compares · gpt.load("checkpoints/NAME") opens one'


@dataclass(frozen=True, repr=False)
class RunTable(TableResult):
    """Runs, each with the manifest of its newest checkpoint, the most recently saved last."""

    rows: tuple[tuple[Run, Manifest], ...]

    def __repr__(self) -> str:
        if not self.rows:
            return "<no runs>"
        names = ", ".join(run.name for run in [*self][-5:])
        return f"<{counted(len(self), 'run')}: {'… ' * (len(self) > 5)}{names}>"

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Run]:
        return (run for run, _ in self.rows)

    def blocks(self) -> list[Block]:
        """A row for each run: its progress, its loss, its size and its text."""
        columns = [
            Column("run", left=True),
            Column("step", least=60),
            Column("of", least=60),
            Column("best nats"),
            Column("than counting"),
            Column("parameters", least=80),
            Column("corpus", left=True, least=80),
        ]
        rows = []
        for run, manifest in self.rows:
            best, characters, of = manifest.shown_loss
            share = f" ({characters / of:.0%})" if characters < of else ""
            texts = [
                run.name,
                f"{manifest.step:,}",
                f"{manifest.train.steps:,}",
                "–" if best is None else f"{best:.4f}{share}",
                compared_with_counting(manifest),
                millions(manifest.model.parameters()),
                cut(first_few(manifest.corpus.sources, 3, ", "), LONGEST),
            ]
            rows.append([*map(Cell, texts)])
        parts = any("%" in row[3].text for row in rows)
        if not rows:
            return [Title("no runs"), Note("train one: gptx train")]
        title = Title(counted(len(self), "run"), ["the newest last"])
        return [title, Table(columns, rows), *[Note(PART_NOTE)] * parts, Note(HINT)]

    def records(self) -> Records:
        """A row for each run; see `outcome_record`."""
        rows = [outcome_record(run.name, manifest) for run, manifest in self.rows]
        names = dict.fromkeys(name for row in rows for name in row)
        return Records({name: [row.get(name) for row in rows] for name in names})


@dataclass(frozen=True, repr=False)
class Overview(TableResult):
    """One run: what it was trained on and how, its losses, and the samples it wrote.

    samples: records with "step" and "text".
    """

    name: str
    manifest: Manifest
    curve: Curve
    samples: tuple[Mapping[str, Any], ...] = ()

    def __repr__(self) -> str:
        return f"<Overview of {self.name}, step {self.manifest.step:,}>"

    @property
    def loss(self) -> float | None:
        """The loss of the best step, nats per character; None if nothing was evaluated."""
        return self.manifest.shown_loss[0]

    @property
    def characters(self) -> int:
        """The number of characters that the run has trained on, repeated ones included."""
        return self.manifest.step * self.manifest.step_characters

    @property
    def elapsed(self) -> float:
        """Seconds since training began, evaluations and saves included."""
        return self.manifest.elapsed

    @property
    def parameters(self) -> int:
        return self.manifest.model.parameters()

    @property
    def ended(self) -> bool:
        """Whether the run has done all its steps, was stopped by `patience`, or was imported."""
        manifest, patience = self.manifest, self.manifest.train.patience
        return (
            bool(manifest.imported)
            or manifest.step >= manifest.train.steps
            or 0 < patience <= manifest.since_best
        )

    def blocks(self) -> list[Block]:
        """Whether more time would help, losses, facts, samples; last, what every option means."""
        manifest = self.manifest
        trained = "" if manifest.imported else f" of {manifest.train.steps:,}, {time_of(manifest)}"
        samples = [
            Fold(f"step {each['step']:,}", [Passage(str(each["text"]).strip("\n"))])
            for each in self.samples
        ]
        return [
            Title("run", [self.name, f"step {manifest.step:,}{trained}"]),
            *([Note(outlook)] if (outlook := outlook_of(manifest, self.curve)) else []),
            *(self.curve.blocks() if len(self.curve) else []),
            Facts(facts_of(manifest)),
            *samples,
            Fold("options", [self._options()]),
        ]

    def _options(self) -> Table:
        """Every option with what it means; for an imported run, only those of the model."""
        of_training = {} if self.manifest.imported else options_of(TrainConfig)
        values = {name: cut(str(value), LONGEST) for name, value in self.options.items()}
        rows = [
            [
                Cell(name, tone="name"),
                Cell(values[name]),
                Cell(with_flags(option.help), tone="dim"),
            ]
            for name, option in {**options_of(ModelConfig), **of_training}.items()
        ]
        return Table([Column(left=True), Column(left=True), Column(left=True)], rows)

    @property
    def options(self) -> dict[str, Any]:
        """Every option of the model and the training."""
        return {**vars(self.manifest.model), **vars(self.manifest.train)}

    def records(self) -> Records:
        """A row for each evaluation; facts: how the run ended, its options and its corpus."""
        corpus = self.manifest.corpus
        facts = {
            **outcome_record(self.name, self.manifest),
            "options": self.options,
            "parameters": self.parameters,
            "corpus": {
                "sources": list(corpus.sources),
                "characters": corpus.characters,
                "digest": corpus.digest,
            },
        }
        return Records(self.curve.records().columns, facts)


def overview_of(run: Run, manifest: Manifest | None = None) -> Overview:
    """Reads a run as it is now. manifest: the newest one, if the caller has read it. Raises
    CheckpointError.
    """
    manifest = manifest or run.last().manifest
    return Overview(run.name, manifest, curve_of(run, manifest), tuple(run.records("samples")))


def model_blocks(
    stored: StoredModel, manifest: Manifest | None, proof: Check, rounding: Check, example: str
) -> list[Block]:
    """What a model is, what it was trained on, how good it is, and that it computes the right
    numbers.

    manifest: None for a model file without its run. proof: the result of the probe, in float64;
    rounding: in float32. example: a text to show.
    """
    facts = facts_of(manifest) if manifest else {"model": model_facts(stored.config)}
    facts["characters"] = first_few([label(each) for each in stored.vocabulary.characters], 80)
    facts["checked"] = (
        "✓ numpy computes the logits that torch had at saving: difference "
        f"{proof.error:.0e} in float64, {rounding.error:.0e} in float32"
    )
    here, source = Path.cwd(), stored.source
    facts["file"] = str(source.relative_to(here) if source.is_relative_to(here) else source)
    asks = " · ".join(f"run.{name}({example!r})" for name in ("sample", "attn", "next"))
    size = f"{millions(stored.config.parameters())} parameters"
    return [Title("model", [stored.title, size]), Facts(facts), Note(asks)]


def facts_of(manifest: Manifest) -> dict[str, str]:
    """What was trained, on which text, and how good it is; an imported model has no losses."""
    config, imported = manifest.model, bool(manifest.imported)
    return {
        "imported": manifest.imported,
        "corpus": corpus_facts(manifest.corpus, config, manifest.parent),
        "from": parent_facts(manifest.parent),
        "model": model_facts(config),
        "best": "" if imported else best_facts(manifest),
        "to beat": "" if imported else counting_facts(manifest),
    }


def outcome_record(name: str, manifest: Manifest) -> dict[str, Any]:
    """How a run went, for programs."""
    budget = manifest.budget
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
        "minutes": None if budget is None else budget.ends / 60,
        "gpt_nats": manifest.gpt_loss,
        "parent": parent_record(manifest.parent),
        "counting": counting_record(manifest),
    }


def parent_record(parent: Parent | None) -> dict[str, Any] | None:
    """The model that a run started from, for programs."""
    return None if parent is None else asdict(parent)


def corpus_facts(corpus: CorpusId, config: ModelConfig, parent: Parent | None = None) -> str:
    """The text's sources and size; the vocabulary's share of the parameters if that is large."""
    kinds = f"{config.vocab_size:,} {'in the vocabulary' if parent else 'distinct'}"
    facts = f"{first_few(corpus.sources, 3, ', ')}: {corpus.characters:,} characters, {kinds}"
    if not corpus.sources:
        facts = f"not known, {kinds} characters"
    share = config.vocab_size * config.n_embd * (2 - config.tied) / config.parameters()
    return facts + (f" (they take {share:.0%} of the parameters)" if share > 0.5 else "")


def parent_facts(parent: Parent | None) -> str:
    """The model that the run started from, and the characters that it did not know."""
    if parent is None:
        return ""
    if not parent.added:
        return f"{parent.title}, which knows all characters"
    new = counted(len(parent.added), "new character")
    return f"{parent.title}; {new}: {quote_some(parent.added)}"


def quote_some(characters: Sequence[str], most: int = MOST_CHARACTERS) -> str:
    """The labels of the first `most` characters in quotes, and how many more there are."""
    return first_few([quoted(character) for character in characters], most)


def model_facts(config: ModelConfig) -> str:
    """The model's size, then the kinds of its parts."""
    position = config.position if config.position != "none" else "no"
    activation = config.activation if config.feed_forward else "no feed-forward"
    parts = [f"{position} positions", activation]
    if config.previous_heads:
        heads = min(config.previous_heads, config.n_head)
        starts = "start on the last characters" if heads > 1 else "starts on the last character"
        parts.insert(1, f"{counted(heads, 'head')} {starts}")
    parts += ["biases"] * config.bias
    parts += ["biases of q, k, v"] * config.qkv_bias + ["tied"] * config.tied
    parts += [f"counts of n-grams up to {config.counting}"] * (config.counting > 0)
    parts += [f"dropout {config.dropout:g}", f"{config.attention} attention"]
    shape = layers_and_heads(config.n_layer, config.n_head)
    return (
        f"{millions(config.parameters())} parameters: {shape} × {config.head_size}, "
        f"context {config.block_size}; {', '.join(parts)}"
    )


def time_of(manifest: Manifest) -> str:
    """ "1 min 58 s of the 2 min 0 s asked for, with evaluations and saves"; if a resumed training
    asked for more time, also the total time.
    """
    elapsed, budget = manifest.elapsed, manifest.budget
    asked = in_all = ""
    if budget:
        asked = f" of the {duration(budget.seconds)} {'more ' * (budget.since > 0)}asked for"
        in_all = f", {duration(elapsed)} in all" * (budget.since > 0)
        elapsed = max(0.0, elapsed - budget.since)
    return f"{duration(elapsed)}{asked}{in_all}, with evaluations and saves"
