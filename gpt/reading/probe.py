"""The probe proves that numpy computes here what torch computed when the model was saved.

The probe is a text with the logits that torch computed for it in float64, with other code. Whoever
opens the model computes them again in float64. So the two agree up to the rounding of the stored
float32 logits. float32 could not judge: in a healthy model with sharp attention, a rounding error
selects another key, and the logits differ by a hundredth of the largest one. Its difference is only
measured, and shows how exact the numbers of this model are.
"""

from __future__ import annotations

import numpy as np

from gpt.checks import Check
from gpt.config import ModelConfig
from gpt.errors import CheckpointError
from gpt.reading.gpt import Reader
from gpt.storage.model_file import Probe, StoredModel, Tensors

PROBE = "logits = torch's at saving"
TOLERANCE = 1e-6  # of the largest logit
#: How far another program's float32 logits may be from those in float64, as a multiple of numpy's
#: float32 error; at least LEAST times the largest logit.
TIMES, LEAST = 10, 1e-4


def open_proven(stored: StoredModel) -> tuple[Reader, Check]:
    """The reader of a model file, and its proof. Raises CheckpointError if the probe fails."""
    reader = Reader(stored.config, stored.tensors)
    proof = prove(reader, stored.probe)
    if not proof.passed:
        raise CheckpointError(
            f"damaged: {stored.source} computes other logits than torch did at saving "
            f"(difference {proof.error:.1e}; rounding allows {proof.bound:.1e})"
        )
    return reader, proof


def prove_tensors(config: ModelConfig, tensors: Tensors, probe: Probe) -> Check:
    """Does what `prove` does, for a model that has no reader yet."""
    return prove(Reader(config, tensors), probe)


def prove(reader: Reader, probe: Probe) -> Check:
    """Checks that the reader's code, in float64, computes the logits of the probe."""
    bound = TOLERANCE * float(np.abs(probe.logits).max())
    return Check(PROBE, difference(reader.in_float64(), probe), bound)


def difference(reader: Reader, probe: Probe) -> float:
    """The largest difference between the reader's logits of the probe and those that it stores;
    NaN if a number overflows.
    """
    with np.errstate(all="ignore"):
        logits = probe.of(map(reader.logits, reader.forward(probe.ids)))
        return float(np.abs(logits - probe.logits).max())


def allowed_in_float32(error: float, largest: float) -> float:
    """How far another program's float32 logits may be from those in float64. error: numpy's in
    float32; largest: the largest logit.
    """
    return max(TIMES * error, LEAST * largest)
