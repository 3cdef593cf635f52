"""One saved step of a run: the model, the optimizer's state, and the manifest that records both.

    checkpoints/RUN/step-00001000/model.safetensors · state.safetensors · manifest.json

A step exists once its manifest is in place; opening it fails if any byte differs from the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpt.errors import CheckpointError
from gpt.storage import files
from gpt.storage.manifest import Manifest
from gpt.storage.model_file import Shapes, StoredModel, Tensors, read_model, read_sealed, unpack
from gpt.words import shown

MODEL, STATE, MANIFEST = "model.safetensors", "state.safetensors", "manifest.json"
MANIFEST_LIMIT = 16 * 2**20  # bytes


def step_folder(step: int) -> str:
    """The folder name of a step: "step-00001000"."""
    return f"step-{step:08d}"


@dataclass(frozen=True)
class Checkpoint:
    """One committed step of a run."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: Path) -> Checkpoint:
        """Reads the manifest. Raises CheckpointError."""
        source = path / MANIFEST
        manifest = Manifest.from_json(files.read(source, MANIFEST_LIMIT), source)
        if step_folder(manifest.step) != path.name:
            raise CheckpointError(f"damaged: {source} is of step {manifest.step}")
        return cls(path, manifest)

    def model(self) -> StoredModel:
        """The verified model file. Raises CheckpointError."""
        stored = read_model(self.path / MODEL, self._recorded(MODEL))
        described = (stored.config, stored.vocabulary.characters, stored.step)
        if described != (self.manifest.model, self.manifest.characters, self.manifest.step):
            raise CheckpointError(f"damaged: {self.path} (model and manifest differ)")
        return stored

    def state(self, expected: Shapes) -> Tensors:
        """The verified optimizer state. Raises CheckpointError."""
        path = self.path / STATE
        data, header, _ = read_sealed(path, self._recorded(STATE))
        return unpack(data, header, expected, path)

    def verify(self) -> StoredModel:
        """Reads every byte that the manifest records. Raises CheckpointError."""
        stored = self.model()
        for name in self.manifest.files.keys() - {MODEL, STATE}:
            raise CheckpointError(f"damaged: {self.path} lists a foreign file {shown(name)}")
        if STATE in self.manifest.files:
            read_sealed(self.path / STATE, self._recorded(STATE))
        return stored

    def _recorded(self, name: str) -> tuple[int, str]:
        if name not in self.manifest.files:
            raise CheckpointError(f"damaged: {self.path / MANIFEST} does not list {name}")
        return self.manifest.files[name]
