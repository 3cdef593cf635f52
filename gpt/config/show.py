"""What can be shown of attention, by the names that options use."""

from __future__ import annotations

from typing import Literal

Stage = Literal["scores", "scaled", "masked", "weights", "context", "concat", "proj", "residual"]
Drawing = Literal["auto", "numbers", "heat", "top", "heads"]
View = Literal[Drawing, "rollout", "lens"]
Scale = Literal["fixed", "row"]
