"""Effects of heads along single paths, compared with hooks on the modules of torch's heads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from variants import VARIANTS, name_of, random_weights, reader_of, torch_model

from gpt.config import ModelConfig
from gpt.errors import ConfigError
from gpt.heads.ablation import Texts, mean_contexts
from gpt.heads.paths import READ, PathPatching, Paths, Route, path_effects
from gpt.heads.survey import spread_windows
from gpt.interface.trained import TrainedGPT
from gpt.model import GPT
from gpt.reading.gpt import Reader

IDS = np.random.default_rng(3).integers(11, size=(3, 9))
TOKEN = 4
LINEAR = {"q": "query", "k": "key", "v": "value"}


def hooked(model: GPT, hooks: dict[nn.Module, Callable[[Tensor], Tensor | None]]) -> Tensor:
    """(B,) the logits of TOKEN after the last character, with hooks on outputs of modules."""
    with ExitStack() as stack:
        for module, hook in hooks.items():
            wrapped = module.register_forward_hook(lambda m, x, out, hook=hook: hook(out))
            stack.callback(wrapped.remove)
        with torch.no_grad():
            logits: Tensor = model(torch.tensor(IDS))[:, -1, TOKEN]
    return logits


def of_torch(model: GPT, route: Route, output: Tensor) -> Tensor:
    """The effect of a path: a run in which all other outputs are kept, then one with what the
    receiver reads in the first.
    """
    heads: Any = [block.attention.heads for block in model.blocks]
    kept = dict[nn.Module, Tensor]()
    fed = [each.feed_forward for each in model.blocks if each.feed_forward is not None]
    modules = [*(head for each in heads for head in each), *fed]
    before = hooked(model, {m: lambda out, m=m: kept.update({m: out}) for m in modules})  # type: ignore[misc]
    sender, found = heads[route.sender[0]][route.sender[1]], list[Tensor]()
    hooks: dict[nn.Module, Callable[[Tensor], Tensor | None]] = {
        m: lambda out, m=m: kept[m]
        for m in modules  # type: ignore[misc]
    }
    hooks[sender] = lambda out: output.expand_as(out)
    if route.read == "all":
        return hooked(model, {sender: hooks[sender]}) - before
    if route.read:
        receiver = getattr(heads[route.to[0]][route.to[1]], LINEAR[route.read])
        hooked(model, hooks | {receiver: found.append})
        return hooked(model, {receiver: lambda out: found[0]}) - before
    return hooked(model, hooks) - before


def found_by(reader: Reader, outputs: np.ndarray) -> dict[Route, np.ndarray]:  # type: ignore[type-arg]
    def logit(x: Any) -> Any:
        return reader.logits(reader.final_norm(x[:, -1]))[:, TOKEN]

    sent = PathPatching(reader, IDS, [*outputs[:, :, None]], logit)
    every = [sent.paths_from_head(*at) for at in np.ndindex(outputs.shape[:2])]
    return {route: effect() for each in every for route, effect in each.items()}


@pytest.mark.parametrize("config", VARIANTS, ids=name_of)
def test_every_path_has_the_effect_that_hooks_in_torch_measure(config: ModelConfig) -> None:
    weights = {name: each.double() for name, each in random_weights(config).items()}
    torch.set_default_dtype(torch.float64)
    try:
        model = torch_model(config, weights, "heads")
    finally:
        torch.set_default_dtype(torch.float32)
    H, D = config.n_head, config.head_size
    outputs = np.random.default_rng(8).normal(size=(2, H, D))
    found = found_by(reader_of(config, weights), outputs)
    direct = [Route((n, h), (n, h), None) for n in range(2) for h in range(H)]
    routes = [Route((0, h), (1, to), r) for h in range(H) for to in range(H) for r in READ]
    whole = [Route(sender, sender, "all") for sender, _, _ in direct]
    assert {*found} == {*direct, *whole, *routes}
    for route, effects in found.items():
        expected = of_torch(model, route, torch.tensor(outputs[route.sender])).numpy()
        np.testing.assert_allclose(effects, expected, atol=1e-9, err_msg=str(route))
        assert np.abs(expected).max() > 1e-6


def test_a_path_of_why_is_that_of_three_patched_forwards(trained: TrainedGPT) -> None:
    text = "the cat on the m"
    paths = trained.why(text, char="a", against="t", paths=True, ablate="zero").paths
    assert paths is not None
    clean = trained.activations(text, ["context", "ffn_out"])
    frozen: dict[Any, Any] = {(name, 0): clean[name, 0] for name in clean}
    a, t = trained.vocabulary.encode("at")
    logits = trained.logits(text)[0, -1]
    for to in (0, 1):
        sent = trained.activations(text, "k", 1, patch=frozen | {("context", 0, 1): 0})
        patched = trained.logits(text, patch={("k", 1, to): sent["k", 1, to]})[0, -1]
        expected = (patched[a] - patched[t]) - (logits[a] - logits[t])
        effect = paths.effects[paths.routes.index(Route((0, 1), (1, to), "k"))]
        assert effect == pytest.approx(expected, abs=1e-5)
    frozen_ffn = {("context", 1, 0): 0, ("ffn_out", 1): clean["ffn_out", 1]}
    direct = trained.logits(text, patch=frozen_ffn)[0, -1] - logits
    effect = paths.effects[paths.routes.index(Route((1, 0), (1, 0), None))]
    assert effect == pytest.approx(direct[a] - direct[t], abs=1e-5)
    means = trained.why(text, char="a", paths=True).paths
    assert means is not None
    assert "how the logit changes if only this connection gets its mean" in str(means.blocks())
    assert "its mean over the validation split" in means.replaced
    assert not np.allclose(means.effects, paths.effects)


def test_paths_on_the_loss_have_errors_over_windows(trained: TrainedGPT) -> None:
    shares = list[float]()
    found = trained.heads(windows=3, ablate="mean", paths=True, done=shares.append)
    paths, alone = found.paths, trained.heads(windows=3, ablate="mean")
    assert paths is not None
    assert paths.texts == 3
    assert (paths.errors > 0).all()
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)
    last = paths.routes.index(Route((1, 1), (1, 1), None))
    assert [each.name for each in found.measures] == [each.name for each in alone.measures]
    windows = spread_windows(trained.default_text()[0], 16, 3)
    mean = mean_contexts(trained.reader, Texts.of_windows(windows))[1, 1]
    kept = trained.activations(windows[:, :-1], "ffn_out", 1)["ffn_out", 1]
    patch = {("context", 1, 1): mean, ("ffn_out", 1): kept}
    losses = [
        np.logaddexp.reduce(each, axis=-1)
        - np.take_along_axis(each, windows[:, 1:, None].astype(int), axis=-1)[..., 0]
        for each in (trained.logits(windows[:, :-1], patch=p) for p in ({}, patch))
    ]
    assert paths.effects[last] == pytest.approx((losses[1] - losses[0]).mean(), abs=1e-6)
    assert found.records().facts["paths"][0]["change"] == paths.effects[paths.order[0]]
    strongest = paths.rows[0]
    assert strongest["path"] in str(found.blocks())
    assert abs(strongest["change"]) == np.abs(paths.effects).max()


def test_wrong_questions_for_paths_are_refused(trained: TrainedGPT) -> None:
    with pytest.raises(ConfigError, match="paths: needs `ablate`"):
        trained.heads(paths=True)
    with pytest.raises(ConfigError, match="paths: of one step"):
        trained.heads(paths=True, ablate="mean", steps=[0, 12])


def test_effects_of_several_parts_stand_in_the_order_of_texts() -> None:
    config = VARIANTS[0]
    reader = reader_of(config, {n: each.double() for n, each in random_weights(config).items()})
    outputs = [np.zeros((config.n_head, 1, config.head_size))] * 2

    def first(x: Any) -> Any:
        return x[:, -1, 0]

    whole = path_effects([PathPatching(reader, IDS, outputs, first)], "it", "0", lambda share: None)
    two = [PathPatching(reader, IDS[part], outputs, first) for part in (slice(2), slice(2, None))]
    parts = path_effects(two, "it", "0", lambda share: None)
    assert isinstance(parts, Paths)
    assert (parts.routes, parts.texts) == (whole.routes, 3)
    np.testing.assert_allclose(parts.effects, whole.effects, atol=1e-12)
    np.testing.assert_allclose(parts.errors, whole.errors, atol=1e-12)
