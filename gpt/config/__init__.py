"""The options of models, trainings, runs, samples and commands; and the names of the stages that a
model computes. Imports no torch, and knows neither texts nor runs.
"""

from gpt.config.model import Ablation as Ablation
from gpt.config.model import AttnConfig as AttnConfig
from gpt.config.model import DrawnStage as DrawnStage
from gpt.config.model import EvalConfig as EvalConfig
from gpt.config.model import FilterOptions as FilterOptions
from gpt.config.model import HeadsConfig as HeadsConfig
from gpt.config.model import ModelConfig as ModelConfig
from gpt.config.model import ModelOptions as ModelOptions
from gpt.config.model import SampleConfig as SampleConfig
from gpt.config.model import Stage as Stage
from gpt.config.model import Unknown as Unknown
from gpt.config.model import WhyConfig as WhyConfig
from gpt.config.train import RunConfig as RunConfig
from gpt.config.train import TrainConfig as TrainConfig
