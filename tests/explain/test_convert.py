"""Each rung of the ladder equals the one above it: outputs, and gradients where both learn."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from gpt.explain.convert import (
    PARTS,
    from_nothing,
    to_causal,
    to_heads,
    to_linear,
    to_model,
    to_parameters,
    to_split,
)
from gpt.explain.ladder import (
    CausalAttention,
    ParameterAttention,
    SelfAttention,
    SideBySide,
    SplitAttention,
    attend,
)

TIGHT = {torch.float64: 1e-13, torch.float32: 2e-6}
both_precisions = pytest.mark.parametrize("dtype", TIGHT)


def start(seed: int, dtype: torch.dtype, *shape: int) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(*shape, dtype=dtype)


def learned(
    module: nn.Module, x: Tensor, run: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Output, and the gradients of a loss that treats no two numbers alike."""
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
    torch.testing.assert_close(one, other, rtol=0, atol=TIGHT[one.dtype] * 10)


@both_precisions
def test_attention_without_weights_is_one_with_unit_matrices(dtype: torch.dtype) -> None:
    x = start(1, dtype, 5, 3)
    close(from_nothing(3, dtype)(x), attend(x))


@both_precisions
def test_parameters_and_linear_are_each_other_turned_over(dtype: torch.dtype) -> None:
    x = start(2, dtype, 6, 3)
    parameters = ParameterAttention(3, 2).to(dtype)
    linear = to_linear(parameters)
    output, onto_x, gradients = learned(parameters, x)
    same_output, same_onto_x, turned = learned(linear, x)
    close(output, same_output)
    close(onto_x, same_onto_x)
    for part in PARTS:
        close(gradients[part], turned[f"{part}.weight"].T)
    back = to_parameters(linear)
    for part in PARTS:
        assert torch.equal(getattr(back, part), getattr(parameters, part))


@both_precisions
def test_a_causal_row_is_the_last_of_a_text_that_ends_there(dtype: torch.dtype) -> None:
    x = start(3, dtype, 6, 3)
    linear = SelfAttention(3, 2).to(dtype)
    causal = to_causal(linear, block_size=8)
    prefixes = learned(linear, x, lambda x: torch.stack([linear(x[: t + 1])[t] for t in range(6)]))
    whole = learned(causal, x[None])
    close(whole[0][0], prefixes[0])
    close(whole[1][0], prefixes[1])
    for part in PARTS:
        close(whole[2][f"{part}.weight"], prefixes[2][f"{part}.weight"])


@both_precisions
def test_side_by_side_is_every_head_on_its_own(dtype: torch.dtype) -> None:
    x = start(4, dtype, 2, 6, 3)
    heads = [CausalAttention(3, 2, block_size=6).to(dtype) for _ in range(3)]
    joined, onto_x, gradients = learned(to_heads(heads), x)
    singly = nn.ModuleList(heads)
    output, same_onto_x, of_heads = learned(
        singly, x, lambda x: torch.cat([head(x) for head in heads], dim=-1)
    )
    assert joined.shape == (2, 6, 6)
    close(joined, output)
    close(onto_x, same_onto_x)
    for name, gradient in of_heads.items():
        close(gradients[f"heads.{name}"], gradient)


@both_precisions
def test_split_heads_are_heads_side_by_side(dtype: torch.dtype) -> None:
    x = start(5, dtype, 2, 6, 3)
    looped = SideBySide(3, 2, block_size=6, n_head=3).to(dtype)
    split = to_split(looped)
    output, onto_x, gradients = learned(looped, x)
    before, same_onto_x, packed = learned(split, x, split.join)
    close(before, output)
    close(split(x).detach(), output)  # the projection changes nothing yet
    close(same_onto_x, onto_x)
    for part in PARTS:
        rows = torch.cat([gradients[f"heads.{head}.{part}.weight"] for head in range(3)])
        close(packed[f"{part}.weight"], rows)


@both_precisions
@pytest.mark.parametrize("kind", ["heads", "fused"])
def test_the_models_attention_is_the_split_form(kind: str, dtype: torch.dtype) -> None:
    x = start(6, dtype, 2, 6, 8)
    split = SplitAttention(8, 8, block_size=6, n_head=4).to(dtype)
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


def test_dropout_goes_along_and_drops_while_training_only() -> None:
    torch.manual_seed(7)
    causal = to_causal(SelfAttention(4, 2), block_size=6, dropout=0.5)
    looped = to_heads([causal, causal])
    split = to_split(looped)
    model = to_model(SplitAttention(4, 4, 6, n_head=2, dropout=0.5), "heads")
    x = torch.randn(1, 6, 4)
    for module in (causal, looped, split):
        assert not torch.equal(module.train()(x), module(x))
        assert torch.equal(module.eval()(x), module(x))
    assert model.heads[0].dropout.p == 0.5  # type: ignore[index, union-attr]
    assert to_split(looped.eval()).training is False


def test_a_stream_that_changes_its_width_is_refused() -> None:
    with pytest.raises(ValueError, match="as wide behind as before, not 3 and 4"):
        to_model(SplitAttention(3, 4, 6, n_head=2), "fused")
    with pytest.raises(ValueError, match="d_out 4 does not divide into 3 heads"):
        SplitAttention(3, 4, 6, n_head=3)


def test_what_comes_out_is_a_copy() -> None:
    linear = SelfAttention(3, 2)
    causal, parameters = to_causal(linear, 4), to_parameters(linear)
    with torch.no_grad():
        linear.query.weight.zero_()
    assert causal.query.weight.abs().max() > 0
    assert parameters.query.abs().max() > 0
