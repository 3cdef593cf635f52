"""The options of models, trainings, runs, samples and commands, and the names of the stages that a
model computes. Imports neither torch nor the modules that read texts and runs.
"""

from gpt.config.model import Ablation as Ablation
from gpt.config.model import DrawnStage as DrawnStage
from gpt.config.model import ExplanationOptions as ExplanationOptions
from gpt.config.model import FilterOptions as FilterOptions
from gpt.config.model import ModelConfig as ModelConfig
from gpt.config.model import ModelOptions as ModelOptions
from gpt.config.model import SampleConfig as SampleConfig
from gpt.config.model import Stage as Stage
from gpt.config.model import SurveyOptions as SurveyOptions
from gpt.config.model import Unknown as Unknown
from gpt.config.train import RunConfig as RunConfig
from gpt.config.train import TrainConfig as TrainConfig
