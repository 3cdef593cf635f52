"""The run that a trained GPT comes from: its other steps, its losses and its options.

`Origin` is a base class of TrainedGPT.
"""

from __future__ import annotations

from pathlib import Path

from gpt.config import TrainConfig
from gpt.errors import CheckpointError
from gpt.storage.checkpoint import Checkpoint
from gpt.storage.manifest import Manifest, Parent
from gpt.storage.model_file import StoredModel
from gpt.storage.overview import Curve, TrainingCurve, curve_of, training_curve_of
from gpt.storage.run import Run


class NoRunError(CheckpointError, AttributeError):
    """A model file is not in a run. An AttributeError, too, so that `hasattr` is False."""


class Origin:
    """The run of a model. All except has_run raise CheckpointError for a model file without its
    run.
    """

    stored: StoredModel
    _checkpoint: Checkpoint | None

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
        return curve_of(Run(self.path))

    @property
    def training_curve(self) -> TrainingCurve:
        """Loss, gradient norm, learning rate and speed of the steps so far, also between
        evaluations.
        """
        return training_curve_of(Run(self.path))

    @property
    def _saved(self) -> Checkpoint:
        if self._checkpoint is None:
            raise NoRunError(
                f"{self.stored.source} is a model file without its run, so its other steps, its "
                "losses and the options of its training are unknown; open the run's folder instead"
            )
        return self._checkpoint
