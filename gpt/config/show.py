"""The names that options use for the stages and views of attention."""

from __future__ import annotations

from typing import Literal

Stage = Literal["scores", "scaled", "masked", "weights", "context", "concat", "proj", "residual"]
Drawing = Literal["auto", "numbers", "heat", "top", "heads"]
View = Literal[Drawing, "rollout", "lens"]
Scale = Literal["fixed", "row"]
#: Kinds of attention; a model without an encoder has only the decoder's self-attention.
AttentionKind = Literal["encoder", "decoder", "cross"]
