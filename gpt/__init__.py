"""gptx as a library: train a character-level GPT, sample from it, look at its attention heads.

    import gpt

    run = gpt.train("corpus.txt", minutes=2)    # or: run = gpt.load("checkpoints")
    run.sample("Once", length=200)              # a text that the model writes
    run.curve                                   # the losses of the training
    run.at(500)                                 # the same run at an earlier step
    seen = run.attn("Once upon a time")         # what every head does with a text
    seen["weights", 0, 0]                       # attention weights of layer 0, head 0: (T, T)
    run.heads()                                 # what every head looks at, with measures
    run.next("Once upon")                       # the distribution of the next character
    run.eval("A text.")                         # the loss on a text: nats and bits per character

Functions:

    train    trains a new run with a progress bar and returns it
    resume   trains a run further
    load     opens a run, one of its steps, or a model file
    runs     lists the runs of a folder, and compares them
    export   writes a model for other programs

Classes:

    TrainedGPT       what train, resume and load return; help(gpt.TrainedGPT) lists its methods
    ModelConfig      the shape of a model: run.config
    TrainConfig      the options of a training: run.training
    SampleConfig     the options of sampling
    GptxError        the base class of all errors of gptx
    ConfigError      an option is wrong; also a ValueError
    TextError        a text cannot be used; also a ValueError
    CheckpointError  a saved model is missing or damaged

Losses are in nats per character. Arrays are read-only numpy arrays. `T` is the length of a text.
gptx imports torch only to train, to compute on a GPU, and for `run.torch()`. `import gpt` imports
neither numpy nor torch: Python imports a name of this module when it is first used.
"""

from __future__ import annotations

__version__ = "1.0.0rc1"

TYPE_CHECKING = False  # importing it from typing would double this module's loading time
if TYPE_CHECKING:
    from typing import Any

    from gpt.config import ModelConfig as ModelConfig
    from gpt.config import SampleConfig as SampleConfig
    from gpt.config import TrainConfig as TrainConfig
    from gpt.errors import CheckpointError as CheckpointError
    from gpt.errors import ConfigError as ConfigError
    from gpt.errors import GptxError as GptxError
    from gpt.errors import TextError as TextError
    from gpt.exchange.to_transformers import export as export
    from gpt.interface.trained import TrainedGPT as TrainedGPT
    from gpt.interface.trained import load as load
    from gpt.interface.trained import runs as runs
    from gpt.interface.training import resume as resume
    from gpt.interface.training import train as train

_MODULES = {
    **dict.fromkeys(("train", "resume"), "gpt.interface.training"),
    "export": "gpt.exchange.to_transformers",
    **dict.fromkeys(("load", "runs", "TrainedGPT"), "gpt.interface.trained"),
    **dict.fromkeys(("ModelConfig", "TrainConfig", "SampleConfig"), "gpt.config"),
    **dict.fromkeys(("GptxError", "ConfigError", "TextError", "CheckpointError"), "gpt.errors"),
}
__all__ = [*_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'gpt' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
