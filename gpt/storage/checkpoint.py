"""One saved step of a run: the model, the optimizer's state, and the manifest that records both.

    checkpoints/RUN/step-00001000/model.safetensors · state.safetensors · manifest.json

A step exists once its manifest is in place; opening it fails if any byte differs from the record.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from gpt.errors import CheckpointError
from gpt.storage import files
from gpt.storage.manifest import Manifest
from gpt.storage.model_file import Shapes, StoredModel, Tensors, read_header, read_model, unpack
from gpt.words import shown

MODEL, STATE, MANIFEST = "model.safetensors", "state.safetensors", "manifest.json"
MANIFEST_LIMIT = 16 * 2**20  # bytes


def step_folder(step: int) -> str:
    """The folder name of a step: "step-00001000"."""
    return f"step-{step:08d}"


def fingerprint(data: bytes) -> tuple[int, str]:
    """A file's record in a manifest: its size in bytes and its SHA-256."""
    return len(data), hashlib.sha256(data).hexdigest()


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
        path, data = self.path / STATE, self._state_bytes()
        return unpack(data, read_header(data, path), expected, path)

    def verify(self) -> StoredModel:
        """Reads every byte that the manifest records. Raises CheckpointError."""
        stored = self.model()
        for name in self.manifest.files.keys() - {MODEL, STATE}:
            raise CheckpointError(f"damaged: {self.path} lists a foreign file {shown(name)}")
        if STATE in self.manifest.files:
            self._state_bytes()
        return stored

    def _state_bytes(self) -> bytes:
        recorded = self._recorded(STATE)
        data = files.read(self.path / STATE, limit=recorded[0])
        if fingerprint(data) != recorded:
            raise CheckpointError(f"damaged: {self.path / STATE} has changed since it was written")
        return data

    def _recorded(self, name: str) -> tuple[int, str]:
        if name not in self.manifest.files:
            raise CheckpointError(f"damaged: {self.path / MANIFEST} does not list {name}")
        return self.manifest.files[name]
