"""gptx as a library: `import gpt; run = gpt.load("checkpoints/…"); run.generate("To be")`.

Names are imported when first used, so that `import gpt` alone imports neither numpy nor torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpt.version import __version__

if TYPE_CHECKING:
    from gpt.config import ModelConfig as ModelConfig
    from gpt.config import SampleConfig as SampleConfig
    from gpt.config import TrainConfig as TrainConfig
    from gpt.errors import GptxError as GptxError
    from gpt.loading import load as load
    from gpt.trained import TrainedGPT as TrainedGPT

_HOMES = {
    "GptxError": "gpt.errors",
    "ModelConfig": "gpt.config",
    "SampleConfig": "gpt.config",
    "TrainConfig": "gpt.config",
    "TrainedGPT": "gpt.trained",
    "load": "gpt.loading",
}
__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gpt' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
