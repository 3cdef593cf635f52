"""Each form of attention equals the next: outputs, and gradients where both have weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from gpt.lessons.ladder import (
    PARTS,
    CausalAttention,
    ParameterAttention,
    SelfAttention,
    SideBySide,
    SplitAttention,
    attend,
    from_nothing,
    to_model,
    to_parameters,
    to_split,
)


def start(seed: int, *shape: int) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64)


def learned(
    module: nn.Module, x: Tensor, run: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Output, and the gradients of a loss that weights every number differently."""
    x = x.clone().requires_grad_()
    module.zero_grad()
    output = (run or module)(x)
    torch.manual_seed(5)
    (output * torch.randn_like(output)).sum().backward()
    assert x.grad is not None
    gradients = {
        name: each.grad for name, each in module.named_parameters() if each.grad is not None
    }
    assert gradients
    assert all(each.abs().max() > 0 for each in gradients.values())
    return output.detach(), x.grad, gradients


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_attention_without_weights_equals_attention_with_identity_matrices() -> None:
    x = start(1, 5, 3)
    close(from_nothing(3)(x), attend(x))


def test_parameters_equal_the_transposed_linear_weights() -> None:
    x = start(2, 6, 3)
    linear = SelfAttention(3, 2).double()
    parameters: ParameterAttention = to_parameters(linear)
    output, onto_x, gradients = learned(parameters, x)
    same_output, same_onto_x, turned = learned(linear, x)
    close(output, same_output)
    close(onto_x, same_onto_x)
    for part in PARTS:
        close(gradients[part], turned[f"{part}.weight"].T)
        assert torch.equal(getattr(parameters, part), getattr(linear, part).weight.T)


def test_each_causal_row_equals_the_last_row_of_the_text_cut_there() -> None:
    x = start(3, 6, 3)
    linear = SelfAttention(3, 2).double()
    causal = CausalAttention(3, 2, block_size=8).double()
    causal.load_state_dict(linear.state_dict())
    prefixes = learned(linear, x, lambda x: torch.stack([linear(x[: t + 1])[t] for t in range(6)]))
    whole = learned(causal, x[None])
    close(whole[0][0], prefixes[0])
    close(whole[1][0], prefixes[1])
    for part in PARTS:
        close(whole[2][f"{part}.weight"], prefixes[2][f"{part}.weight"])


def test_side_by_side_equals_each_head_alone() -> None:
    x = start(4, 2, 6, 3)
    heads = [CausalAttention(3, 2, block_size=6).double() for _ in range(3)]
    side_by_side = SideBySide(3, 2, block_size=6, n_head=3).double()
    for mine, given in zip(side_by_side.heads, heads, strict=True):
        mine.load_state_dict(given.state_dict())
    joined, onto_x, gradients = learned(side_by_side, x)
    singly = nn.ModuleList(heads)
    output, same_onto_x, of_heads = learned(
        singly, x, lambda x: torch.cat([head(x) for head in heads], dim=-1)
    )
    assert joined.shape == (2, 6, 6)
    close(joined, output)
    close(onto_x, same_onto_x)
    for name, gradient in of_heads.items():
        close(gradients[f"heads.{name}"], gradient)


def test_split_attention_equals_heads_side_by_side() -> None:
    x = start(5, 2, 6, 3)
    looped = SideBySide(3, 2, block_size=6, n_head=3).double()
    split = to_split(looped)
    output, onto_x, gradients = learned(looped, x)
    before, same_onto_x, packed = learned(split, x, split.join)
    close(before, output)
    close(split(x).detach(), output)  # the projection changes nothing yet
    close(same_onto_x, onto_x)
    for part in PARTS:
        rows = torch.cat([gradients[f"heads.{head}.{part}.weight"] for head in range(3)])
        close(packed[f"{part}.weight"], rows)


@pytest.mark.parametrize("kind", ["heads", "fused"])
def test_the_models_attention_equals_split_attention(kind: str) -> None:
    x = start(6, 2, 6, 8)
    split = SplitAttention(8, 8, block_size=6, n_head=4).double()
    model = to_model(split, kind)  # type: ignore[arg-type]
    output, onto_x, gradients = learned(split, x)
    found, same_onto_x, _ = learned(model, x, lambda x: model(x, lambda q, k: (q, k)))
    close(found, output)
    close(same_onto_x, onto_x)
    of_model = dict(model.named_parameters())
    for part, name in enumerate(PARTS):
        if kind == "fused":
            gradient = of_model["qkv.weight"].grad
            assert gradient is not None
            close(gradient.chunk(3)[part], gradients[f"{name}.weight"])
        else:
            rows = [of_model[f"heads.{head}.{name}.weight"].grad for head in range(4)]
            close(
                torch.cat([each for each in rows if each is not None]), gradients[f"{name}.weight"]
            )
    for name in ("weight", "bias"):
        gradient = of_model[f"proj.{name}"].grad
        assert gradient is not None
        close(gradient, gradients[f"proj.{name}"])


def test_conversion_keeps_dropout_which_is_active_only_while_training() -> None:
    torch.manual_seed(7)
    looped = SideBySide(4, 2, block_size=6, n_head=2, dropout=0.5).double()
    split = to_split(looped)
    model = to_model(SplitAttention(4, 4, 6, n_head=2, dropout=0.5), "heads")
    x = torch.randn(1, 6, 4).double()
    for module in (looped, split):
        assert not torch.equal(module.train()(x), module(x))
        assert torch.equal(module.eval()(x), module(x))
    assert model.heads[0].dropout.p == 0.5  # type: ignore[index, union-attr]


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match="d_out 4 is not divisible by 3 heads"):
        SplitAttention(3, 4, 6, n_head=3)


def test_conversion_copies_the_weights() -> None:
    linear, side_by_side = SelfAttention(3, 2), SideBySide(4, 2, block_size=6, n_head=2)
    parameters, split = to_parameters(linear), to_split(side_by_side)
    model = to_model(split, "fused")
    with torch.no_grad():
        for module in (linear, side_by_side):
            for weight in module.parameters():
                weight.zero_()
    assert parameters.query.abs().max() > 0
    assert split.query.weight.abs().max() > 0
    with torch.no_grad():
        split.query.weight.zero_()
    assert model.state_dict()["qkv.weight"][:4].abs().max() > 0
