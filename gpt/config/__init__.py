"""The options of models, trainings, runs, samples and questions, as frozen dataclasses whose fields
are flags, keywords and keys in TOML (fields.py); and the names of stages.

Uses no torch, no text and no files.
"""

from gpt.config.model import Ablation as Ablation
from gpt.config.model import AttnConfig as AttnConfig
from gpt.config.model import DrawnStage as DrawnStage
from gpt.config.model import EvalConfig as EvalConfig
from gpt.config.model import HeadsConfig as HeadsConfig
from gpt.config.model import ModelConfig as ModelConfig
from gpt.config.model import ModelOptions as ModelOptions
from gpt.config.model import SampleConfig as SampleConfig
from gpt.config.model import Shaping as Shaping
from gpt.config.model import Stage as Stage
from gpt.config.model import Unknown as Unknown
from gpt.config.model import WhyConfig as WhyConfig
from gpt.config.train import RunConfig as RunConfig
from gpt.config.train import TrainConfig as TrainConfig
