"""Stages of models with an encoder are torch's, and so are the logits after one is replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
import torch
from encoded import SPOKEN, SYMBOLS, encoded_file, reader_of
from torch import Tensor

import gpt
from gpt.config import AnyStage, ModelConfig
from gpt.errors import TextError
from gpt.heads.activations import ActivationPlan, stage_shapes
from gpt.interface.trained import TrainedGPT
from gpt.model import GPT
from gpt.reading import score as scoring
from gpt.reading.gpt import Reader

SHAPE: dict[str, Any] = {"vocab_size": 9, "block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 8}
LENGTHS, SOURCES = np.array([5, 3, 1]), np.array([4, 7, 2])
N, T, S = 3, 5, 7
IDS = np.random.default_rng(2).integers(1, 9, size=(N, T))
SOURCE = np.random.default_rng(3).integers(1, 9, size=(N, S))
VARIANTS: list[dict[str, Any]] = [
    {"position": "rotary", "norm": "rms"},
    {"position": "learned", "norm": "layer", "bias": True, "qkv_bias": True},
    {"position": "sinusoidal", "norm": "layer", "post_norm": True, "shared_embedding": True},
]


def both(**options: Any) -> tuple[GPT, Reader]:
    """A torch model with random weights in float64, and its reader."""
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    try:
        config = ModelConfig(**SHAPE | options, encoder_layers=3, attention="heads")
        model = GPT(config).eval()
        for parameter in model.parameters():
            parameter.data = 0.5 * torch.randn(parameter.shape)
    finally:
        torch.set_default_dtype(torch.float32)
    return model, reader_of(model)


def plan(
    reader: Reader, names: Any = None, patch: Any = None, layers: Any = None
) -> ActivationPlan:
    options = {"patch": patch, "lengths": LENGTHS, "sources": (SOURCE, SOURCES)}
    return ActivationPlan(reader, IDS, names, layers, **options)


def torch_logits(model: GPT) -> npt.NDArray[Any]:
    seen = torch.arange(S) < torch.from_numpy(SOURCES)[:, None]
    with torch.no_grad():
        found: Tensor = model(torch.from_numpy(IDS), source=torch.from_numpy(SOURCE), seen=seen)
    return found.numpy()


#: Stage -> the module whose output it is, of a block.
OUTPUTS: dict[str, Callable[[Any], Any]] = {
    "proj": lambda block: block.attention,
    "cross_proj": lambda block: block.cross,
    "cross_v": lambda block: block.cross.heads[1].value,
    "cross_context": lambda block: block.cross.heads[1],
    "context": lambda block: block.attention.heads[1],
    "v": lambda block: block.attention.heads[1].value,
    "ffn_out": lambda block: block.feed_forward,
    "resid_post": lambda block: block,
}
#: Stage -> the module whose input it is.
INPUTS: dict[str, Callable[[Any], Any]] = {
    "resid_pre": lambda block: block,
    "concat": lambda block: block.attention.proj,
    "cross_concat": lambda block: block.cross.proj,
    "ffn_hidden": lambda block: block.feed_forward.down,
}


def keys() -> Iterator[tuple[Any, Callable[[GPT], Any], bool]]:
    """A key, its module in torch, and whether it is the input of it."""
    for name, of in (OUTPUTS | INPUTS).items():
        head = (1,) if name.split("_")[-1] in ("v", "context") else ()
        yield (name, 1, *head), lambda model, of=of: of(model.blocks[1]), name in INPUTS
        if "cross" not in name:
            key = (f"encoder_{name}", 2, *head)
            yield key, lambda model, of=of: of(model.encoder.blocks[2]), name in INPUTS
    yield "encoder_final_norm", lambda model: model.encoder.norm, False
    yield "final_norm", lambda model: model.norm, False


def replaced(x: Any) -> Any:
    """A new value for numpy's and torch's arrays."""
    return 0.5 - 2 * x


@pytest.mark.parametrize("options", VARIANTS)
def test_stages_and_patched_logits_are_torchs_with_forward_hooks(options: dict[str, Any]) -> None:
    model, reader = both(**options)
    acts, real = plan(reader).read(), np.arange(T) < LENGTHS[:, None]
    np.testing.assert_allclose(acts["logits"][real], torch_logits(model)[real], rtol=0, atol=1e-10)
    assert (acts["logits"][~real] == 0).all()
    for key, module, is_input in keys():
        kept: list[Tensor] = []

        def see(_: Any, given: Any, out: Any = None, kept: list[Tensor] = kept) -> Any:
            kept.append(given[0] if out is None else out)
            new = replaced(kept[-1])
            return (new, *given[1:]) if out is None else new

        at = module(model)
        register = at.register_forward_pre_hook if is_input else at.register_forward_hook
        hook = register(see)
        logits = torch_logits(model)
        hook.remove()
        name = key if isinstance(key, str) else key[0]
        rows = acts.mask if name[0] != "e" and name != "cross_v" else acts.source_mask
        stage = acts[key]
        np.testing.assert_allclose(stage[rows], kept[0].numpy()[rows], rtol=0, atol=1e-10)
        found = plan(reader, "logits", {key: replaced}).read()["logits"]
        np.testing.assert_allclose(found[real], logits[real], rtol=0, atol=1e-10, err_msg=name)
        assert np.abs(found - acts["logits"]).max() > 1e-3, key
        same = plan(reader, "logits", {key: stage}).read()["logits"]
        np.testing.assert_allclose(same[real], acts["logits"][real], rtol=0, atol=1e-10)


def test_all_names_have_the_shapes_that_are_announced_and_none_of_padding_counts() -> None:
    _, reader = both()
    known = stage_shapes(reader.config, T, S)
    acts = plan(reader, list(known)).read()
    assert acts.names == tuple(known)
    assert {*known} == {name for each in get_args(AnyStage) for name in get_args(each)}
    for name, array in acts.arrays.items():
        depth = {"e": 3}.get(name[0], 2)
        axis = () if "final_norm" in name or name == "logits" else (depth,)
        assert array.shape == (N, *axis, *known[name])
    for n in range(N):
        ids, source = IDS[n : n + 1, : LENGTHS[n]], SOURCE[n : n + 1, : SOURCES[n]]
        alone = ActivationPlan(reader, ids, [*known], sources=(source, SOURCES[n : n + 1])).read()
        for name in known:
            of_source = name[0] == "e" or name in ("cross_k", "cross_v")
            rows = SOURCES[n] if of_source else LENGTHS[n]
            kept = acts[name][n][..., :rows, :]
            if name.split("_")[-1] in ("scores", "scaled", "masked", "weights"):
                kept = kept[..., : SOURCES[n] if "_" in name else LENGTHS[n]]
            np.testing.assert_allclose(kept, alone[name][0], rtol=0, atol=1e-10, err_msg=name)
            assert (acts[name][n][..., rows:, :] == 0).all()
        for name in ("cross_weights", "cross_scores", "encoder_weights", "encoder_scaled"):
            assert (acts[name][n][..., SOURCES[n] :] == 0).all()
        assert (acts["cross_scores"][n][..., : LENGTHS[n], : SOURCES[n]] != 0).all()
    by_head = acts["cross_head_output"].sum(axis=2)
    np.testing.assert_allclose(by_head, acts["cross_proj"], rtol=0, atol=1e-10)
    by_head = acts["encoder_head_output", 2].sum(axis=1)
    np.testing.assert_allclose(by_head, acts["encoder_proj", 2], rtol=0, atol=1e-10)


@pytest.mark.parametrize("at_once", [1, 99])
def test_a_patch_of_one_text_and_position_changes_that_texts_target_alone(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, reader = both()
    clean = plan(reader).read()
    monkeypatch.setattr(scoring, "NUMBERS_AT_ONCE", at_once * 8 * 32)
    for key in (("encoder_context", 0, 1, 3, 1), ("cross_k", 1, 0, range(2), 1)):
        found = plan(reader, patch={key: 7.0}).read()
        assert (found[key] == 7).all()
        changed = np.abs(found["logits"] - clean["logits"]).max(axis=(1, 2))
        assert (changed > 1e-3).tolist() == [False, True, False]
    with pytest.raises(IndexError, match="position -1 is not in 0 … 6"):
        plan(reader, patch={("cross_k", 0, 0, -1): 0})


def test_layers_of_the_encoder_and_the_decoder_are_chosen_by_name() -> None:
    _, reader = both()
    acts = plan(reader, ["encoder_q", "cross_q"], layers=1).read()
    assert (acts.layers, acts.encoder_layers) == ((1,), (1,))
    assert acts["encoder_q"].shape[:2] == acts["cross_q"].shape[:2] == (N, 1)
    acts = plan(reader, "encoder_q", layers=2).read()
    assert (acts.layers, acts.encoder_layers) == ((), (2,))
    with pytest.raises(IndexError, match="layer 2 is not in 0 … 1"):
        plan(reader, ["encoder_q", "q"], layers=2)
    with pytest.raises(IndexError, match="layer 1 was not kept; kept: 2"):
        acts["encoder_q", 1]
    with pytest.raises(ValueError, match="encoder_final_norm has no layers"):
        plan(reader, patch={("encoder_final_norm", 0): 0})
    with pytest.raises(ValueError, match="head_output and the mean of heads can only"):
        plan(reader, patch={("cross_head_output", 0): 0})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TrainedGPT:
    return gpt.load(encoded_file(tmp_path_factory.mktemp("run") / "pairs.safetensors"))


def test_activations_of_a_pair_are_those_of_its_attention_maps(run: TrainedGPT) -> None:
    pairs = ["01-2ab\t4c0", "5b\t6"]
    acts = run.activations(pairs)
    assert acts.lengths.tolist() == [4, 2]  # with the TAB
    assert acts.source_lengths is not None
    assert acts.source_lengths.tolist() == [6, 2]
    for kind, prefix in (("encoder", "encoder_"), ("decoder", ""), ("cross", "cross_")):
        for n, pair in enumerate(pairs):
            seen = run.attn(pair, attention=kind)  # type: ignore[arg-type]
            for name in ("q", "k", "weights", "proj"):
                stage: Any = seen[name]  # type: ignore[index]
                found = acts[prefix + name][n]  # type: ignore[index]
                found = found[tuple(slice(each) for each in stage.shape)]
                np.testing.assert_allclose(found, stage, rtol=0, atol=1e-5)
    assert np.array_equal(run.logits(pairs), acts["logits"])
    following = run.next(pairs[0]).expected
    chances = np.exp(acts["logits"][0, 3].astype(float))
    np.testing.assert_allclose(chances / chances.sum(), following, atol=1e-5)
    assert "sources of 6, layers 0, 1 and 0, 1, 2 of the encoder" in repr(acts)


def test_a_source_alone_gets_the_target_that_the_model_writes(run: TrainedGPT) -> None:
    (target,) = run.answers(["0b"])
    assert np.array_equal(run.logits("0b"), run.logits(f"0b\t{target}"))
    ids = run.vocabulary.encode("0b\t1")
    assert np.array_equal(run.logits(ids), run.logits("0b\t1"))
    parts = [*run.activation_batches(["0b\t1", "1b\t2", "2\t3"], "encoder_q", 0, batch=2)]
    assert [len(each.ids) for each in parts] == [2, 1]
    whole = run.activations(["0b\t1", "1b\t2", "2\t3"], "encoder_q", 0)
    joined = np.concatenate([each["encoder_q"] for each in parts])
    np.testing.assert_allclose(joined, whole["encoder_q"], rtol=0, atol=1e-6)


def test_a_wrong_pair_is_named_by_its_number(run: TrainedGPT) -> None:
    for texts, problem in (
        (["0b\t1", "\t1"], "^text 1: no source"),
        (["0\t1\t2"], "^text 0: the text has several TABs"),
        (["0b\t1", "z\t1"], r"^text 1: 'z' \(U\+007A"),
        (["0b\t" + "1" * 40], "^text 0: the text"),
    ):
        with pytest.raises(TextError, match=problem):
            run.logits(texts)
    with pytest.raises(ValueError, match="texts: there is none"):
        run.activations([])
    with pytest.raises(ValueError, match="names: 'cross_x' is not one of encoder_resid_pre, "):
        run.activations("0b", "cross_x")  # type: ignore[arg-type]


def test_symbols_of_several_characters_are_read_as_such(tmp_path: Path) -> None:
    path = encoded_file(tmp_path / "symbols.safetensors", SPOKEN, vocabulary=SYMBOLS)
    acts = gpt.load(path).activations("1ba\t2 t͡s bː", "logits")
    assert acts.lengths.tolist() == [4]
