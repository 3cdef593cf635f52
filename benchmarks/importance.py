"""How far single ablations and attribution patching are from the exact effects of heads.

For each run, over windows of its validation split: the rise of the loss without each head, for
three replacements; its exact Shapley value (mean replacement); the first-order estimate of
attribution patching (Nanda 2023), the gradient times what changes; and for each path between two
heads the exact effect beside the gradient's estimate. Prints for each pair of columns the mean
absolute difference, Pearson's and Spearman's correlation; then the seconds that the exact numbers
take. The last line is JSON.

    python benchmarks/importance.py RUN_FOLDER … [--windows 16]
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import gpt
from gpt.heads.ablation import Texts, ablate, mean_contexts, shapley
from gpt.heads.paths import PathPatching, Paths, Route
from gpt.heads.survey import loss_paths, spread_windows
from gpt.interface.trained import TrainedGPT
from gpt.model import GPT
from gpt.reading.layers import Array
from gpt.vocabulary import Ids


def gradients(run: TrainedGPT, windows: Ids) -> tuple[dict[str, Array], dict[str, Array]]:
    """q, k, v and context, (L, N, H, T, D) each, and the gradients of the loss, in nats per
    character, with respect to them.
    """
    model = GPT(replace(run.config, attention="heads"))
    model.load_parameters(run.torch().stored_parameters())
    kept = defaultdict[str, list[Tensor]](list)

    def keep(**found: Tensor) -> None:
        for name in {"q", "k", "v", "context"} & found.keys():
            found[name].retain_grad()
            kept[name].append(found[name])

    ids = torch.tensor(windows.astype(np.int64))
    logits = model.lm_head(model.eval().stream(ids[:, :-1], keep=keep))
    F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
    shape = run.config.n_layer, run.config.n_head

    def stacked(tensors: list[Any]) -> Array:
        found: Array = torch.stack(tensors).detach().double().numpy()
        return found.reshape(*shape, *found.shape[1:]).swapaxes(1, 2)

    values = {name: stacked(each) for name, each in kept.items()}
    return values, {name: stacked([x.grad for x in each]) for name, each in kept.items()}


def estimates(run: TrainedGPT, windows: Ids, means: Array) -> tuple[Array, dict[Route, float]]:
    """Attribution patching: (L, H) of heads, and of each path to a later head. What a path brings
    to the receiver is exact; only its effect from there on is estimated.
    """
    values, slopes = gradients(run, windows)
    changed = means[:, None, :, None] - values["context"]
    heads = (slopes["context"] * changed).sum(axis=(1, 3, 4))
    sent = PathPatching(
        run.reader, windows[:, :-1], [*means[:, :, None]], lambda x: np.zeros(len(x))
    )
    paths = dict[Route, float]()
    for at in np.ndindex(means.shape[:2]):
        for route, new in sent.reads(*at).items():
            layer, head = route.to
            before = values[str(route.read)][layer][:, head]
            slope = slopes[str(route.read)][layer][:, head]
            paths[route] = float((slope * (new - before)).sum())
    return heads, paths


def compared(found: Array, exact: Array) -> dict[str, float]:
    """How far some numbers are from the exact ones."""
    ranks = [each.argsort().argsort() for each in (found, exact)]
    return {
        "apart": float(np.abs(found - exact).mean()),
        "mean_exact": float(np.abs(exact).mean()),
        "pearson": float(np.corrcoef(found, exact)[0, 1]),
        "spearman": float(np.corrcoef(*ranks)[0, 1]),
    }


def measured(run: TrainedGPT, count: int) -> dict[str, Any]:
    """All comparisons for one run."""
    ids, _ = run.default_text()
    windows = spread_windows(ids, run.config.block_size, count)
    texts, reader = Texts.of_windows(windows), run.reader
    started = time.perf_counter()
    alone = {how: ablate(reader, texts, how).values.ravel() for how in ("mean", "zero", "resample")}
    between = time.perf_counter()
    exact = shapley(reader, texts, "mean")
    after = time.perf_counter()
    paths: Paths = loss_paths(reader, ids, count, "mean", lambda share: None)
    ended = time.perf_counter()
    heads, of_paths = estimates(run, windows, mean_contexts(reader, texts))
    effects = dict(zip(paths.routes, paths.effects.tolist(), strict=True))
    both = np.array([(value, effects[route]) for route, value in of_paths.items()]).T
    values = exact.values.ravel()
    names = {f"Δloss, {how}": each for how, each in alone.items()}
    result = {name: compared(each, values) for name, each in names.items()}
    result["attribution patching"] = compared(heads.ravel(), values)
    return {
        "run": run.title,
        "heads": f"{run.config.n_layer} × {run.config.n_head}",
        "windows": f"{len(windows)} × {windows.shape[1] - 1}, Shapley {exact.windows}",
        "to Shapley": result,
        "attribution patching to Δloss, mean": compared(heads.ravel(), alone["mean"]),
        "attribution patching of paths": compared(*both) if both.size else None,
        "seconds": {
            "three ablations": between - started,
            "Shapley": after - between,
            "paths": ended - after,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--windows", type=int, default=16)
    options = parser.parse_args()
    found = [measured(gpt.load(path), options.windows) for path in options.runs]
    for each in found:
        print(f"\n{each['run']} · {each['heads']} heads · {each['windows']}")
        rows = {f"{name} | Shapley": row for name, row in each["to Shapley"].items()}
        rows |= {name: each[name] for name in each if name.startswith("attribution")}
        for name, row in rows.items():
            numbers = "  ".join(f"{key} {value:.4f}" for key, value in (row or {}).items())
            print(f"  {name:38} {numbers}")
        print("  seconds:", ", ".join(f"{k} {v:.1f}" for k, v in each["seconds"].items()))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
