"""The parts of a model that do not train, named by the option `freeze`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache

from gpt.config.fields import require
from gpt.config.model import ModelConfig

#: What `embeddings` names. Tied output weights are the token embedding; others train.
EMBEDDINGS = ("token_embedding.weight", "position.weight")
_LAYERS = re.compile(r"layers:([0-9]{1,4})(?:-([0-9]{1,4}))?")
_BLOCK = re.compile(r"blocks\.([0-9]+)\.")


@dataclass(frozen=True)
class Frozen:
    """embeddings: of characters and positions, of both sides. layers: numbers of the GPT's blocks;
    those of an encoder train.
    """

    embeddings: bool = False
    layers: tuple[range, ...] = ()

    def holds(self, parameter: str) -> bool:
        """Whether the parameter of this name stays as it is."""
        if parameter.removeprefix("encoder.") in EMBEDDINGS:
            return self.embeddings
        block = _BLOCK.match(parameter)
        return block is not None and any(int(block[1]) in each for each in self.layers)


@cache
def parse_freeze(text: str) -> Frozen:
    """ "embeddings,layers:0-1". Raises ConfigError."""
    embeddings, layers = False, list[range]()
    for word in text.split(",") if text else ():
        found = _LAYERS.fullmatch(word.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
        right = word.strip() == "embeddings" or first <= last
        known = "embeddings, layers:N, layers:FROM-TO, or several with commas between them"
        require(right, "freeze", f"{word!r} is not one of {known}")
        embeddings = embeddings or not found
        layers += [range(first, last + 1)] * bool(found)
    return Frozen(embeddings, tuple(layers))


def trained_parameters(model: ModelConfig, freeze: str) -> int:
    """The number of parameters that train. Raises ConfigError if there is none, and for a layer
    that the model does not have.
    """
    frozen = parse_freeze(freeze)
    last = max((each[-1] for each in frozen.layers), default=0)
    has = "only layer 0" if model.n_layer == 1 else f"layers 0 to {model.n_layer - 1}"
    require(last < model.n_layer, "freeze", f"there is no layer {last}; the model has {has}")
    shapes = model.shapes().items()
    count = sum(math.prod(shape) for name, shape in shapes if not frozen.holds(name))
    require(count > 0, "freeze", f"{freeze!r} leaves nothing to train; freeze less")
    return count
