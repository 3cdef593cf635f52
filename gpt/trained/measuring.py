"""The part of TrainedGPT that measures attention heads: at its own step, or over its training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np

from gpt.config.show import AttentionKind
from gpt.errors import TextError
from gpt.heads.proof import OpenDevice
from gpt.reading.gpt import Reader
from gpt.reading.pairs.answers import LAST
from gpt.storage.checkpoint import Checkpoint
from gpt.storage.model_file import StoredModel
from gpt.trained.pairs import Pairs, require_kind
from gpt.vocabulary import Ids, Vocabulary

if TYPE_CHECKING:  # imported where they are used, so that a model opens fast
    from gpt.heads.ablation import Ablation
    from gpt.heads.development import Development
    from gpt.heads.survey import Survey
    from gpt.storage.steps import Steps


class Measuring(Pairs):
    """Measures of heads."""

    stored: StoredModel
    _checkpoint: Checkpoint | None
    _open_device: OpenDevice | None
    reader: Reader
    vocabulary: Vocabulary

    @overload
    def heads(
        self,
        text: str | Ids | None = None,
        *,
        steps: None = None,
        windows: int = 32,
        kind: AttentionKind | None = None,
        ablation: Ablation | None = None,
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
        kind: AttentionKind | None = None,
        ablation: Ablation | None = None,
        name: str = "",
        done: Callable[[float], object] = lambda share: None,
    ) -> Development: ...

    def heads(
        self,
        text: str | Ids | None = None,
        *,
        steps: Steps | None = None,
        windows: int = 32,
        kind: AttentionKind | None = None,
        ablation: Ablation | None = None,
        name: str = "",
        done: Callable[[float], object] = lambda share: None,
    ) -> Survey | Development:
        """Every head's measures on a text, as `gptx heads` gives them for the same text.

        Without a text: on that of `default_text`. Of a model with an encoder, a text is lines
        "source TAB target", windows counts pairs, and kind chooses whose heads: "cross" (the
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
        if ablation not in (None, *ABLATIONS):
            known = ", ".join(ABLATIONS)
            raise ValueError(f"ablation: {ablation!r} is not one of None, {known}")
        require_kind(self.config, kind)
        if text is None:
            text, found = self.default_text()
            name = name or found
        ids = self._ids(text)
        name = name or f"a text of {len(text):,} characters"
        pairs = self.pair_ids(self.vocabulary.decode(ids)) if self.has_encoder else []

        def measured(reader: Reader, done: Callable[[float], object]) -> Survey:
            if pairs:
                last = int(self.vocabulary.encode(LAST)[0])
                chosen = kind or "cross", windows, ablation, last
                return survey_pairs(reader, pairs, *chosen, done, name)
            words = [n for n, each in enumerate(self.vocabulary.characters) if each.isalnum()]
            return survey(reader, ids, windows, ablation, done, name, np.array(words, int))

        if steps is None:
            return measured(self.reader, done)

        from gpt.heads.development import development
        from gpt.heads.proof import proven
        from gpt.storage.steps import run_of, step_numbers

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
