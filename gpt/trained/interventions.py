"""The part of TrainedGPT that reads every activation of the GPT and changes it.

Counting, which a model may add to the GPT's predictions, has no part in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex

from gpt.reading.gpt import Reader
from gpt.storage.model_file import StoredModel
from gpt.trained.pairs import require_decoder_only

if TYPE_CHECKING:  # imported where they are used, so that a model opens fast
    from gpt.heads.activations import Activations, Plan, Texts
    from gpt.heads.patching import Patch
    from gpt.model import GPT
    from gpt.reading.layers import Array


class Interventions:
    """Activations, logits with replaced activations, and the model in torch."""

    stored: StoredModel
    reader: Reader

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
