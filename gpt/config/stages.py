"""The names of the stages that a model computes; docs/heads.md says what each is."""

from __future__ import annotations

from typing import Literal, get_args

#: Stages of a head with a row for each query and a column for each key.
SquareStage = Literal["scores", "scaled", "masked", "weights"]
#: Stages with an axis of heads.
HeadStage = Literal["q", "k", "v", SquareStage, "context", "head_output"]
#: Stages after the last layer; the others belong to a layer.
FinalStage = Literal["final_norm", "logits"]
_Later = Literal["concat", "proj", "resid_mid", "ffn_hidden", "ffn_out", "resid_post"]
#: Every stage, in the order of computation.
Stage = Literal["resid_pre", HeadStage, _Later, FinalStage]
#: Stages that `gptx attn`, its page and figures draw.
DrawnStage = Literal[SquareStage, "context", "concat", "proj", "resid_mid"]

SQUARE, OF_HEADS, FINAL, STAGES = map(get_args, (SquareStage, HeadStage, FinalStage, Stage))
