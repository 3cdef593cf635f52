"""A trained GPT with its vocabulary: the interface for commands, notebooks and views."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, Unpack

from gpt import showing
from gpt.checks import Shown
from gpt.config import AttentionKind, SampleConfig, TrainConfig
from gpt.config.fields import require
from gpt.config.keywords import ShapingOptions, takes
from gpt.errors import CheckpointError, ConfigError
from gpt.heads.attention_map import AttentionMap, inspect
from gpt.heads.proof import OpenDevice, proven
from gpt.reading.sampler import before_all
from gpt.storage.checkpoint import Checkpoint
from gpt.storage.manifest import Manifest, Parent
from gpt.storage.model_file import StoredModel
from gpt.storage.run import Run
from gpt.trained.generation import require_decoder_only, require_kind
from gpt.trained.measuring import Measuring
from gpt.vocabulary import FIRST
from gpt.words import layers_and_heads

if TYPE_CHECKING:  # imported where they are used, so that a model opens fast
    from gpt.blocks import Block
    from gpt.explain.lesson import Lesson
    from gpt.heads.measures import Measure
    from gpt.heads.next_character import Experts, Lens, NextCharacter
    from gpt.reading.paired import Paired
    from gpt.reading.score import Score, Surprises
    from gpt.storage.curves import Curve, TrainingCurve
    from gpt.storage.runs import Steps
    from gpt.vocabulary import Ids


#: What `dir` and completion show of a model.
PUBLIC = (
    *("activation_batches", "activations", "answers", "at", "attn", "compare", "config", "curve"),
    *("experts", "explain", "heads", "lens", "live", "logits", "manifest", "next", "path"),
    *("sample", "score", "steps", "surprises", "torch", "training", "training_curve"),
    "vocabulary",
)


class NoRunError(CheckpointError, AttributeError):
    """A model file is not in a run. An AttributeError, too, so that `hasattr` is False."""


class TrainedGPT(Measuring, Shown):
    """One checkpoint's model. Opening it runs the probe; a model that fails it does not open.

    open_device puts a model on a device; called when it is first used. checkpoint: the model's
    checkpoint; None for a model file without its run.
    proof: the largest difference from torch's logits at saving, and its bound.
    """

    def __init__(
        self,
        stored: StoredModel,
        open_device: OpenDevice | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.stored = stored
        self.config, self.vocabulary = stored.config, stored.vocabulary
        self.reader, self.proof = proven(stored, open_device)
        self._open_device, self._checkpoint = open_device, checkpoint
        self._decoder_free = threading.Lock()

    def __repr__(self) -> str:
        config = self.config
        return (
            f"<TrainedGPT {self.stored.title}: "
            f"{layers_and_heads(config.n_layer, config.n_head)} × {config.head_size}, "
            f"{len(self.vocabulary)} characters>"
        )

    def __dir__(self) -> list[str]:
        """What a user calls; the other names are for commands and views."""
        return [*PUBLIC]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies open the same verified content again: they share no decoder."""
        return TrainedGPT, (self.stored, self._open_device, self._checkpoint)

    def blocks(self) -> list[Block]:
        """What the model is, what it was trained on, how good it is, and that its numbers are
        right.
        """
        from gpt.blocks import Facts, Note, Title
        from gpt.characters import label
        from gpt.storage.overview import facts_of, model_facts
        from gpt.words import millions, some

        saved = self._checkpoint
        facts = facts_of(saved.manifest) if saved else {"model": model_facts(self.config)}
        facts["characters"] = some([label(each) for each in self.vocabulary.characters], 80)
        facts["checked"] = (
            "✓ numpy computes the logits that torch had at saving: difference "
            f"{self.proof.error:.0e}, allowed {self.proof.bound:.0e}"
        )
        here, source = Path.cwd(), self.stored.source
        facts["file"] = str(source.relative_to(here) if source.is_relative_to(here) else source)
        text = repr(self.example())
        asks = " · ".join(f"run.{name}({text})" for name in ("sample", "attn", "next"))
        size = f"{millions(self.config.parameters())} parameters"
        return [Title("model", [self.stored.title, size]), Facts(facts), Note(asks)]

    @property
    def has_run(self) -> bool:
        """Whether the model was opened from a run, not from a model file alone."""
        return self._checkpoint is not None

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self._saved.path.parent

    @property
    def manifest(self) -> Manifest:
        """Everything that the checkpoint records beside its tensors: losses, corpus, versions."""
        return self._saved.manifest

    @property
    def training(self) -> TrainConfig:
        """The options of the training; `config` has those of the model."""
        return self._saved.manifest.train

    @property
    def parent(self) -> Parent | None:
        """The model whose weights the run started with; None: random weights."""
        return self._saved.manifest.parent

    @property
    def steps(self) -> list[int]:
        """The steps that are on the disk now, oldest first. `at` opens one."""
        return Run(self.path).steps()

    @property
    def curve(self) -> Curve:
        """The losses at each evaluation so far, in nats per character."""
        from gpt.storage.curves import curve_of

        return curve_of(Run(self.path))

    @property
    def training_curve(self) -> TrainingCurve:
        """Loss, gradient norm, learning rate and speed of the steps so far, also between
        evaluations.
        """
        from gpt.storage.curves import training_curve_of

        return training_curve_of(Run(self.path))

    @property
    def _saved(self) -> Checkpoint:
        if self._checkpoint is None:
            raise NoRunError(
                f"{self.stored.source} is a model file without its run, so its other steps, its "
                "losses and the options of its training are unknown; open the run's folder instead"
            )
        return self._checkpoint

    def attn(
        self,
        text: str,
        *,
        attention: AttentionKind | None = None,
        unknown: str = "error",
        truncate: bool = False,
    ) -> AttentionMap:
        """Every stage of every head for the text. truncate: use its last block_size characters.

        For a model with an encoder: text is "source TAB target", or a source, whose target the
        model writes. attention: which one, "cross" (the default), "encoder" or "decoder"; a model
        without an encoder has only "decoder". Raises TextError for an empty or too long text and
        for unknown characters, ConfigError for a kind that the model does not have and for
        `truncate` with an encoder.
        """
        require_kind(self.config, attention)
        if self.has_encoder:
            require(not truncate, "truncate", "a source is read as a whole; shorten the text")
            return self._pair_attention(text, attention or "cross", unknown)
        if truncate and unknown == "error":  # characters that are cut off may be unknown
            text = text[-self.config.block_size :]
        ids = self.vocabulary.encode(text, unknown)
        if truncate:
            ids = ids[-self.config.block_size :]
        return inspect(self.reader, self.vocabulary.decode(ids), ids, self.proof, self)

    def _pair_attention(self, text: str, kind: AttentionKind, unknown: str) -> AttentionMap:
        source, target = self.sides(text, unknown)
        read = FIRST + target
        ids, source_ids = self.vocabulary.encode(read), self.vocabulary.encode(source)
        return inspect(self.reader, read, ids, self.proof, self, (source, source_ids), kind)

    @takes(ShapingOptions.__annotations__, SampleConfig)
    def next(
        self, text: str, *, unknown: str = "error", **options: Unpack[ShapingOptions]
    ) -> NextCharacter:
        """The distribution of the next character, before and after temperature and filters.

        For a model with an encoder: the target's next character. The text is "source TAB target so
        far"; without a TAB, the target's first character is next.

        Raises TextError for a character that the model does not know, ConfigError for an option out
        of range, TypeError for an unknown option.
        """
        from gpt.heads.next_character import next_character

        config = SampleConfig(**options)
        if self.has_encoder:
            source, target = self.sides(text if FIRST in text else text + FIRST, unknown)
            memory = self.reader.encode(self.vocabulary.encode(source)[None])
            ids = self.vocabulary.encode(FIRST + target)
            return next_character(self.reader, ids, config, None, self.vocabulary, memory)
        ids = self.vocabulary.encode(text, unknown)
        ids = ids if len(ids) else self.vocabulary.encode(before_all(self.vocabulary))
        return next_character(self.reader, ids, config, self.mixture, self.vocabulary)

    def explain(
        self, text: str, layer: int = 0, head: int = 0, *, unknown: str = "error"
    ) -> Lesson:
        """How the model computes the text's next character, through one head; a table a stage.

        Raises ConfigError for a layer or head that does not exist and for a model with an encoder,
        TextError for an empty or too long text and for unknown characters.
        """
        from gpt.explain.own_model import walk

        require_decoder_only(self.config, "the lesson mine")
        attention = self.attn(text, unknown=unknown)
        return walk(self.reader, attention, self.vocabulary, layer, head)

    def measures(self, text: AttentionMap | str) -> list[Measure]:
        """Each head's measures, (L, H) values each, on a text, or on that of an attention map.

        Raises TextError as `attention`.
        """
        found = self._map(text)
        if found.source:
            from gpt.heads.pair_measures import measure_pairs

            return measure_pairs(self.reader, [found])
        from gpt.heads.measures import measure

        return measure(self.reader, [found])

    def lens(self, text: AttentionMap | str, most: int = 8) -> Lens:
        """The `most` likeliest next characters at every depth and position of a text, or of an
        attention map's text; for a model with an encoder, those of the target.

        Raises ValueError if `most` is less than 1 and for a map of the encoder's or decoder's own
        attention, TextError as `attention`.
        """
        from gpt.heads.next_character import logit_lens

        if most < 1:
            raise ValueError(f"most: {most} is less than 1")
        return logit_lens(self.reader, self._map(text), most)

    def experts(self, text: AttentionMap | str) -> Experts | None:
        """What the GPT, counting and both expect after each of the T characters of a text, or of an
        attention map's text: (T, vocab_size) probabilities each. None for a model without counting.

        Raises TextError as `attention`, CheckpointError for damaged counts.
        """
        from gpt.heads.next_character import all_experts

        if not self.mixture:
            return None
        return all_experts(self.reader, self._map(text), self.mixture)

    def _map(self, of: AttentionMap | str) -> AttentionMap:
        return self.attn(of) if isinstance(of, str) else of

    def example(self, length: int = 12) -> str:
        """An example text: the validation split's first long line, cut between words; for a model
        with an encoder, its first pair, "source TAB target".
        """
        if self.has_encoder:
            return FIRST.join(self.pairs(1)[0])
        lines = self.stored.excerpt.split("\n")
        whole = lines[1:-1] or lines  # the split may begin, and the excerpt end, within a line
        good = [line.strip() for line in whole if len(line.strip()) >= length]
        line = good[0] if good else max(map(str.strip, lines), key=len) or self.stored.excerpt
        longest = min(length, self.config.block_size)
        cut = line[:longest]
        if len(line) > longest and " " in cut and line[longest] != " ":
            cut = cut[: cut.rindex(" ")]
        return cut.rstrip() or line[:longest]

    def score(self, text: str | Ids, *, unknown: str = "error") -> Score:
        """Loss on a text of two or more characters, by training's protocol. Raises TextError.

        For a model with an encoder: those of each target character, for lines `source TAB target`.
        """
        from gpt.reading.score import Score, score

        ids = self._ids(text, unknown)
        if self.has_encoder:
            nats = self.nats_of(self.vocabulary.decode(ids))
            return Score(float(nats.mean()), len(nats))
        return score(self.reader, ids, self.mixture)

    def surprises(
        self, text: str | Ids, *, unknown: str = "error", overlapping: bool = True
    ) -> Surprises:
        """Surprise of each character after the first, with at least half of block_size before it
        where the text has it; without `overlapping` in the windows of `score`. Raises TextError,
        ConfigError for a model with an encoder.
        """
        from gpt.reading.score import surprise_of_each

        if self.has_encoder:
            raise ConfigError(
                "a model with an encoder predicts only targets; score_pairs(text).nats has the "
                "surprise of each of their characters"
            )

        ids = self._ids(text, unknown)
        given = self.mixture, self.vocabulary
        return surprise_of_each(self.reader, ids, *given, overlapping=overlapping)

    def at(self, step: str | SupportsIndex = "best") -> TrainedGPT:
        """The same run at "best", "last" or another of its `steps`, on the same device.

        Raises CheckpointError, and ConfigError if `step` is none of these.
        """
        checkpoint, stored = Run(self.path).read(step)
        return TrainedGPT(stored, self._open_device, checkpoint)

    def live(
        self,
        path: str | Path = "live.html",
        *,
        text: str | None = None,
        steps: Steps | None = None,
        precision: Literal["auto", "float32", "float16"] = "auto",
        limit: float = 8.0,
    ) -> Path:
        """Writes the model itself into one HTML file: type in it, and every head follows.

        text: to begin with; None: the first line of the validation split. With an encoder: a
        source, whose target the model writes, or "source TAB target". steps: several steps of this
        model's run for a slider, "all" or a list of numbers, "best" and "last". precision: of the
        weights; "auto" writes float32 if all fits into `limit` megabytes, else float16; what does
        not fit then is left out, and the page says so. Raises ConfigError if the model does not
        fit, TextError for a text with unknown characters and for a pair that the model cannot read,
        CheckpointError for a step that the run does not keep, StorageError.
        """
        found: Path = showing.renderer().save_live(self, path, text, steps, precision, limit)
        return found

    def compare(self, other: TrainedGPT, text: str) -> Paired:
        """How both models predict the same text, character by character. Raises TextError.

        If one of them has an encoder: the targets of a text of lines `source TAB target`.
        """
        from gpt.reading.paired import paired

        both = (self, other)
        if any(each.has_encoder for each in both):
            mine, its = (each.nats_of(text) for each in both)
        else:
            mine, its = (each.surprises(text, overlapping=False).nats for each in both)
        return paired(mine, its, (self.stored.title, other.stored.title))
