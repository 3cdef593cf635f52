"""What is no character model of nanoGPT gives one line; no code in it runs."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign import CHARACTERS, checkpoint_of, meta_of, saved, state_of, write_nanogpt

from gpt.errors import ForeignModelError
from gpt.exchange.importing.nanogpt import read_meta, read_nanogpt


def refusal(path: Path, meta: Path | None = None) -> str:
    """The error, which names the file and has one line."""
    with pytest.raises(ForeignModelError) as raised:
        read_nanogpt(path, meta)
    message = str(raised.value)
    assert message.startswith("not a nanoGPT checkpoint: ") or message.startswith("cannot read ")
    assert "\n" not in message
    assert raised.value.exit_code == 3
    return message


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda meta: [meta], "it has no dict 'itos'"),
        (lambda meta: {**meta, "itos": {}}, "it has no dict 'itos'"),
        (lambda meta: "text", "it has no dict 'itos'"),
        (lambda meta: {**meta, "itos": {0: "a", 2: "b"}}, "are not 0, 1, 2"),
        (lambda meta: {**meta, "itos": {0: "a", 1: "the"}}, "'the' is not a character; gptx is"),
        (lambda meta: {**meta, "itos": {0: "a", 1: 7}}, "7 is not a character"),
        (lambda meta: {**meta, "itos": {0: "a", 1: "a"}}, "two ids have the same character"),
        (lambda meta: {**meta, "stoi": {}}, "'stoi' and 'itos' differ"),
        (lambda meta: meta_of(CHARACTERS[:-1]), "tokens, and"),
    ],
)
def test_meta_without_characters_is_refused(
    tmp_path: Path, change: Callable[[Any], Any], says: str
) -> None:
    path = saved(tmp_path, checkpoint_of(state_of(len(CHARACTERS)), len(CHARACTERS)))
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps(change(meta_of(CHARACTERS))))
    assert says in refusal(path)
    assert "cannot read" in refusal(path, tmp_path / "nowhere.pkl")
    assert "cannot read" in refusal(path, tmp_path)


class Payload:
    """Runs a command when a pickle of it is loaded."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


@pytest.mark.parametrize(
    ("place", "protocol"),
    [("whole", 2), ("config", 3), ("model", 4), ("key", pickle.HIGHEST_PROTOCOL)],
)
def test_code_in_a_checkpoint_never_runs(tmp_path: Path, place: str, protocol: int) -> None:
    payload = Payload(f"touch {tmp_path / 'ran'}")
    content: Any = checkpoint_of(state_of(len(CHARACTERS)), len(CHARACTERS))
    content = payload if place == "whole" else {**content, place: payload}
    path = saved(tmp_path, content)
    torch.save(content, path, pickle_protocol=protocol)
    assert re.search(r"would call (posix|nt)\.system|more than tensors", refusal(path))
    torch.save(content, path, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    assert "torch.save has not written it" in refusal(path)
    path.write_bytes(pickle.dumps(content, protocol))
    assert "torch.save has not written it" in refusal(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_code_in_meta_never_runs(tmp_path: Path, protocol: int) -> None:
    path = saved(tmp_path, checkpoint_of(state_of(len(CHARACTERS)), len(CHARACTERS)))
    hostile: Any = {**meta_of(CHARACTERS), "itos": Payload(f"touch {tmp_path / 'ran'}")}
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps(hostile, protocol))
    message = refusal(path)
    assert "meta.pkl (it would call " in message or protocol < 2
    assert not (tmp_path / "ran").exists()
    with pytest.raises(ForeignModelError):
        read_meta(tmp_path / "meta.pkl")


def test_truncated_and_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, checkpoint_of(state_of(len(CHARACTERS)), len(CHARACTERS)))
    whole = path.read_bytes()
    for length in (0, 1, 15, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refusal(path)
    random = np.random.default_rng(1)
    pickled = whole.index(b"data.pkl") + 64
    for _ in range(60):  # damage in the pickle
        changed = bytearray(whole)
        for place in random.integers(pickled, pickled + 2000, size=4):
            changed[place] = random.integers(256)
        path.write_bytes(bytes(changed))
        with suppress(ForeignModelError):
            read_nanogpt(path)
    weights = checkpoint_of(state_of(len(CHARACTERS)), len(CHARACTERS))["model"]
    numbers = bytearray(whole)
    numbers[whole.index(weights["transformer.wte.weight"].numpy().tobytes())] ^= 1
    path.write_bytes(bytes(numbers))
    assert "it is damaged" in refusal(path)
    path.write_bytes(b"a text, and no checkpoint\n" * 9)
    assert "torch.save has not written it" in refusal(path)


def test_compressed_archives_and_those_without_a_pickle_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, checkpoint_of(state_of(len(CHARACTERS)), len(CHARACTERS)))
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data + bytes(10**7) * name.endswith("/0"))
    assert "torch.save has not written it" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ckpt/data.txt", b"a")
    assert "torch.save has not written it" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ckpt/data.pkl", bytes(2**20))
    assert "it has more than 524,288 bytes" in refusal(path)


def test_state_dict_alone_and_other_contents_are_named(tmp_path: Path) -> None:
    state = state_of(len(CHARACTERS))
    assert "it is a state dict alone; train.py saves a dict" in refusal(saved(tmp_path, state))
    assert "it is something else" in refusal(saved(tmp_path, {"a": 1}))
    for content in (state["lm_head.weight"], [1, 2], "text", 5):
        assert "it has no dict" in refusal(saved(tmp_path, content))
    assert "cannot read" in refusal(tmp_path / "nowhere.pt")
    assert "cannot read" in refusal(tmp_path)
    shared: dict[str, Any] = {
        f"transformer.h.{n}.ln_1.weight": state["lm_head.weight"] for n in range(50)
    }
    path = saved(tmp_path, checkpoint_of(shared, len(CHARACTERS)))
    assert "claim more numbers than the file has" in refusal(path)
    write_nanogpt(tmp_path / "files")
    shutil.rmtree(tmp_path / "files" / "data")
    message = refusal(tmp_path / "files" / "out" / "ckpt.pt")
    assert "gptx is character-level and found no meta.pkl" in message
    assert "--meta" in message
    assert "GPT-2's tokens" in message


WEIGHT = "transformer.h.1.mlp.c_fc.weight"
HEAD = torch.ones(len(CHARACTERS), 8)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({WEIGHT: None}, "lacks blocks.1.feed_forward.up.weight"),
        ({WEIGHT: torch.zeros(32, 9)}, "has the shape (32, 9), not (32, 8)"),
        ({WEIGHT: torch.full((32, 8), torch.nan)}, "has numbers that are not finite"),
        ({WEIGHT: torch.zeros(32, 8, dtype=torch.float64)}, "is not a float32 tensor"),
        ({WEIGHT: torch.zeros(34, 8)[1:-1]}, "is not a float32 tensor"),
        ({WEIGHT: torch.zeros(1, 1).expand(32, 8)}, "is not a float32 tensor"),
        ({WEIGHT: torch.zeros(32, 8).to_sparse()}, "is not a float32 tensor"),
        ({WEIGHT: "text"}, "is not a float32 tensor"),
        ({"transformer.h.9.ln_1.weight": torch.zeros(8)}, "it has blocks.9.norm1.weight, which"),
        ({"transformer.router.weight": torch.zeros(8)}, "which is no parameter of GPT-2"),
        ({"transformer.wte.weight": torch.zeros(3, 8)}, "has the shape (3, 8)"),
        ({5: torch.zeros(8)}, "its weights are not a dict of tensors"),
        ({"lm_head.weight": HEAD.to(torch.float8_e4m3fn)}, "is not a float32 tensor"),
        ({"lm_head.weight": HEAD.to("meta")}, "is not a float32 tensor"),
        ({"lm_head.weight": torch.zeros(8, 0)}, "is not a float32 tensor"),
        ({"transformer.h.00.ln_1.weight": torch.zeros(8)}, "is no parameter of GPT-2"),
        ({"transformer.h.\u0661.ln_1.weight": torch.zeros(8)}, "is no parameter of GPT-2"),
        ({"_orig_mod.h.0.ln_1.weight": torch.zeros(8)}, "it has blocks.0.norm1.weight twice"),
        ({10_000 * "x": torch.zeros(8)}, "xxx', which is no parameter"),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_weights_of_another_model_are_refused(
    tmp_path: Path, change: dict[Any, Any], says: str
) -> None:
    state = {**state_of(len(CHARACTERS)), **change}
    state = {name: tensor for name, tensor in state.items() if tensor is not None}
    assert says in refusal(saved(tmp_path, checkpoint_of(state, len(CHARACTERS))))


SHARED: Any = 1
for _ in range(99):
    SHARED = [SHARED, SHARED]  # a value of 2^99 parts


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"n_layer": 10**9}, "n_layer"),
        ({"n_layer": 0}, "n_layer"),
        ({"n_layer": 3}, "lacks blocks.2.norm1.weight"),
        ({"n_embd": 2 * 10**6}, "has the shape"),
        ({"n_embd": 9}, "n_embd: 9 does not divide into n_head=2 heads"),
        ({"n_head": True}, "no whole number n_head"),
        ({"block_size": "12"}, "no whole number block_size"),
        ({"vocab_size": 50304}, "it has 50,304 tokens, and"),
        ({"dropout": "half"}, "dropout"),
        ({"dropout": 1.0}, "dropout"),
        ({"dropout": SHARED}, "dropout: [[[...], [...]], [[...], [...]]] is not a number"),
        ({"n_layer": SHARED}, "no whole number n_layer"),
        ({"n_embd": 10**400}, "no whole number n_embd"),
        ({"dropout": 10**400}, "dropout"),
        ({"vocab_size": -(10**400)}, "no whole number vocab_size"),
    ],
    ids=lambda it: f"{it!r:.40}" if it.__class__ is str else "",
)
def test_sizes_that_do_not_fit_are_refused(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    content = checkpoint_of(state_of(len(CHARACTERS)), len(CHARACTERS))
    content["model_args"].update(change)
    assert says in refusal(saved(tmp_path, content))


@pytest.mark.parametrize("levels", [30, 5_000])
def test_characters_that_are_deep_or_shared_dicts_are_refused(tmp_path: Path, levels: int) -> None:
    path = saved(tmp_path, checkpoint_of(state_of(len(CHARACTERS)), len(CHARACTERS)))
    pairs = [b"}r%b(K\x00" % level.to_bytes(4, "little") for level in range(levels)]
    again = [b"K\x01j%bu" % level.to_bytes(4, "little") for level in range(1, levels)]
    token = b"".join([*pairs, b"K\x07u", *again[::-1]])
    meta = b"\x80\x02}(X\x04\x00\x00\x00itos}K\x00" + token + b"sX\x04\x00\x00\x00stoi}u."
    (tmp_path / "meta.pkl").write_bytes(meta)
    assert "its token {0: {0: {...}, 1: {...}}, 1: " in refusal(path)
    assert len(refusal(path)) < 400


def test_a_loss_and_a_step_of_any_size_are_left_out(tmp_path: Path) -> None:
    content = checkpoint_of(state_of(len(CHARACTERS)), len(CHARACTERS))
    for odd in (10**400, -(10**400), "9" * 5000, SHARED, None, torch.ones(9), 1 > 0, torch.inf):
        path = saved(tmp_path, {**content, "iter_num": odd, "best_val_loss": odd})
        assert read_nanogpt(path)[0].origin == "nanoGPT, ckpt.pt: iteration 0"


@pytest.mark.parametrize("kind", ["pipe", "device", "link to a device"])
def test_what_is_no_regular_file_is_refused_and_never_read(tmp_path: Path, kind: str) -> None:
    path = saved(tmp_path, checkpoint_of(state_of(len(CHARACTERS)), len(CHARACTERS)))
    other = Path("/dev/zero")
    if kind != "device":
        other = tmp_path / "other"
        os.mkfifo(other) if kind == "pipe" else other.symlink_to("/dev/zero")
    assert "it is missing, or not a file" in refusal(other)
    assert "it is missing, or not a file" in refusal(path, other)


def test_a_table_of_many_records_is_not_read_as_a_whole(tmp_path: Path) -> None:
    path, count = tmp_path / "ckpt.pt", 200_000
    record = b"PK\1\2" + bytes(24) + b"\1" + bytes(17) + b"a"
    end = b"PK\5\6" + bytes(8) + (count * len(record)).to_bytes(4, "little") + bytes(6)
    path.write_bytes(record * count + end)
    tracemalloc.start()
    assert "torch.save has not written it" in refusal(path)
    assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    tracemalloc.stop()
