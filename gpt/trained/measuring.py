"""The part of TrainedGPT that measures attention heads, at its own step or over its training, and
reads every activation of the GPT and changes it.

Counting, which a model may add to the GPT's predictions, has no part in activations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np

from gpt.config import AttentionKind
from gpt.errors import TextError
from gpt.reading.gpt import Reader
from gpt.storage.checkpoint import Checkpoint
from gpt.trained.generation import Generation, require_decoder_only, require_kind
from gpt.vocabulary import LAST, Ids

if TYPE_CHECKING:  # imported where they are used, so that a model opens fast
    from gpt.heads.ablation import Ablation
    from gpt.heads.activations import Activations, Patch, Plan, Texts
    from gpt.heads.survey import Development, Survey
    from gpt.model import GPT
    from gpt.reading.layers import Array
    from gpt.storage.runs import Steps


class Measuring(Generation):
    """Measures of heads, activations, logits with replaced activations, and the model in torch."""

    _checkpoint: Checkpoint | None

    @overload
    def heads(
        self,
        text: str | Ids | None = None,
        *,
        steps: None = None,
        windows: int = 32,
        attention: AttentionKind | None = None,
        ablate: Ablation | None = None,
        name: str = "",
        done: Callable[[float], object] = lambda share: None,
    ) -> Survey: ...

    @overload
    def heads(
        self,
        text: str | Ids | None = None,
        *,
        steps: Steps,
        windows: int = 32,
        attention: AttentionKind | None = None,
        ablate: Ablation | None = None,
        name: str = "",
        done: Callable[[float], object] = lambda share: None,
    ) -> Development: ...

    def heads(
        self,
        text: str | Ids | None = None,
        *,
        steps: Steps | None = None,
        windows: int = 32,
        attention: AttentionKind | None = None,
        ablate: Ablation | None = None,
        name: str = "",
        done: Callable[[float], object] = lambda share: None,
    ) -> Survey | Development:
        """Every head's measures on a text, as `gptx heads` gives them for the same text.

        Without a text: on that of `default_text`. Of a model with an encoder, a text is lines
        "source TAB target", windows counts pairs, and attention is whose heads: "cross" (the
        default), "encoder" or "decoder". steps: measures the same text at two or more steps of this
        model's run, "all" or a list of numbers, "best" and "last"; opens one model at a time. name:
        the text's, in the result. done: called with the share of the work that is done. Raises
        TextError for a text too short or with unknown characters, ValueError for other arguments,
        ConfigError for a kind that the model does not have and for resampling of pairs,
        CheckpointError for a step that the run does not keep and for steps of a model file outside
        a run.
        """
        from gpt.heads.ablation import ABLATIONS
        from gpt.heads.pair_measures import survey_pairs
        from gpt.heads.survey import survey

        if windows < 1:
            raise ValueError(f"windows: {windows} is less than 1")
        if ablate not in (None, *ABLATIONS):
            known = ", ".join(ABLATIONS)
            raise ValueError(f"ablate: {ablate!r} is not one of None, {known}")
        require_kind(self.config, attention)
        if text is None:
            text, found = self.default_text()
            name = name or found
        ids = self._ids(text)
        name = name or f"a text of {len(text):,} characters"
        pairs = self.pair_ids(self.vocabulary.decode(ids)) if self.has_encoder else []

        def measured(reader: Reader, done: Callable[[float], object]) -> Survey:
            if pairs:
                last = int(self.vocabulary.encode(LAST)[0])
                chosen = attention or "cross", windows, ablate, last
                return survey_pairs(reader, pairs, *chosen, done, name)
            words = [n for n, each in enumerate(self.vocabulary.characters) if each.isalnum()]
            return survey(reader, ids, windows, ablate, done, name, np.array(words, int))

        if steps is None:
            return measured(self.reader, done)

        from gpt.heads.proof import proven
        from gpt.heads.survey import development
        from gpt.storage.runs import run_of, step_numbers

        run = run_of(self.stored)
        numbers = step_numbers(run, steps)

        def surveys() -> Iterator[Survey]:
            for n, number in enumerate(numbers):
                reader, _ = proven(run.model(number), self._open_device)

                def so_far(share: float, n: int = n) -> None:
                    done((n + share) / len(numbers))

                yield measured(reader, so_far)

        return development(numbers, surveys())

    def default_text(self) -> tuple[Ids, str]:
        """The validation split, and its name; its start, which the model file contains, for a model
        with an encoder and where the run or its corpus is not at hand.
        """
        from gpt.corpus.halves import halves_of_run

        manifest = self._checkpoint.manifest if self._checkpoint else None
        if manifest and manifest.corpus.digest and not self.has_encoder:
            with suppress(TextError):
                return halves_of_run(manifest, Path("data"))[1], "the validation split"
        excerpt = self.excerpt_lines if self.has_encoder else self.stored.excerpt
        return self.vocabulary.encode(excerpt), self.excerpt_name

    @property
    def wrote_excerpt(self) -> bool:
        """Whether the text in the model file is the model's own: it was imported without its text,
        so that its validation split is not known.
        """
        return self._checkpoint is not None and not self._checkpoint.manifest.corpus.digest

    @property
    def excerpt_name(self) -> str:
        """The name of the text that the model file contains."""
        if self.wrote_excerpt:
            return f"{len(self.stored.excerpt):,} characters that the model has written"
        return f"the validation split's first {len(self.stored.excerpt):,} characters"

    def _ids(self, text: str | Ids, unknown: str = "error") -> Ids:
        if isinstance(text, str):
            return self.vocabulary.encode(text, unknown)
        return self.vocabulary.row_of(text, "text")

    def activations(
        self,
        texts: Texts,
        names: str | Iterable[str] | None = None,
        layers: SupportsIndex | Iterable[SupportsIndex] | None = None,
        *,
        patch: Mapping[Any, Patch] | None = None,
        unknown: str = "error",
    ) -> Activations:
        """The stages of N texts as named arrays: acts["weights"] is (N, L, H, T, T).

        texts: texts, or (N, T) ids, of 1 to block_size characters each. names: stream, q, k, v,
        scores, scaled, masked, weights, context, head_output (N, L, H, T, C), each head's part of
        proj; concat, proj, residual, hidden (after the activation function), feed_forward (what is
        added to residual), output, final_norm, logits; None: all but head_output. layers: None
        keeps all.

        patch replaces stages, and everything after them is computed from the new values. Its keys
        are ("proj", layer), ("context", layer, head), "final_norm" or "logits"; a value is a
        number, an array that broadcasts to the stage of all texts, (N, …), or a function from that
        array to one of the same shape. If texts differ in length, it also gets the numbers of the
        padding at their ends: one that mixes positions, such as a mean, needs texts of one length.
        Path patching (Goldowsky-Dill et al. 2023), from head 0.2 to the queries of head 1.3, has
        three steps:

            clean = run.activations(texts, ["context", "feed_forward"])
            other = run.activations(other_texts, "context")["context", 0][:, 2]
            frozen = {(name, 0): clean[name, 0] for name in clean}
            sent = run.activations(texts, "q", 1, patch=frozen | {("context", 0, 2): other})
            logits = run.logits(texts, patch={("q", 1, 3): sent["q", 1][:, 3]})

        Raises TextError for empty and too long texts and unknown characters, ValueError for unknown
        names and other shapes, IndexError for a layer or head outside the model, OutOfMemory before
        it computes what does not fit: then use `activation_batches`.
        """
        return self._plan(texts, names, layers, patch, unknown).read()

    def activation_batches(
        self,
        texts: Texts,
        names: str | Iterable[str] | None = None,
        layers: SupportsIndex | Iterable[SupportsIndex] | None = None,
        *,
        batch: int | None = None,
        patch: Mapping[Any, Patch] | None = None,
        unknown: str = "error",
    ) -> Iterator[Activations]:
        """The same for `batch` texts at a time, when the arrays of all do not fit in memory.

        All arrays have the length T of the longest text. A function in `patch` gets the stage of
        one batch; arrays in it belong to all texts.
        """
        from gpt.heads.activations import batches

        return batches(self._plan(texts, names, layers, patch, unknown), batch)

    def logits(
        self,
        texts: Texts,
        *,
        patch: Mapping[Any, Patch] | None = None,
        unknown: str = "error",
    ) -> Array:
        """(N, T, vocab_size) logits of the next character after each character, of the GPT alone.

        texts, patch and errors: see `activations`. Zero ablation of a head:
        run.logits(texts, patch={("context", layer, head): 0}).
        """
        return self._plan(texts, "logits", None, patch, unknown).read()["logits"]

    def torch(self) -> GPT:
        """A copy of the GPT as a torch module with trainable weights, for gradients. Imports torch.

        It takes (B, T) int64 ids and returns (B, T, vocab_size) logits, without dropout:

            model = run.torch()
            ids = torch.tensor(run.vocabulary.encode(text), dtype=torch.int64)[None]
            F.cross_entropy(model(ids[:, :-1])[0], ids[0, 1:]).backward()
            model.blocks[0].attention.qkv.weight.grad  # (3C, C)
        """
        from gpt.training.checkpoint import load_gpt

        return load_gpt(self.stored, "cpu").eval()

    def _plan(
        self,
        texts: Texts,
        names: str | Iterable[str] | None,
        layers: SupportsIndex | Iterable[SupportsIndex] | None,
        patch: Mapping[Any, Patch] | None,
        unknown: str,
    ) -> Plan:
        from gpt.heads.activations import Plan, padded

        require_decoder_only(
            self.stored.config,
            "logits of texts" if names == "logits" else "activations and patches",
        )
        ids, lengths = padded(texts, self.stored.vocabulary, self.reader.config, unknown)
        return Plan(self.reader, ids, names, layers, patch=patch, lengths=lengths)
