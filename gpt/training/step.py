"""Makes optimizer steps with torch, on one rank or on several that share every batch; computes
validation losses, in float32; and says what to do if memory is too small.

The optimizer is AdamW, with Muon for the matrices of the blocks. An update of AdamW has a few large
singular values and many small ones. Muon (Jordan et al. 2024) makes all of them about equal, so a
matrix learns equally fast in every direction of its input. A step with Muon takes longer, but a
training needs far fewer steps (benchmarks/LOG.md).
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt.config import ModelConfig, TrainConfig
from gpt.corpus.corpus import DROPOUT, batch_starts, philox, windows
from gpt.counting.baseline import HeldOutPieces
from gpt.counting.mixture import Mixture
from gpt.devices import error_summary
from gpt.errors import ConfigError, OutOfMemory
from gpt.model import GPT
from gpt.model.attention import FusedAttention, MultiHeadAttention
from gpt.model.layers import FeedForward
from gpt.storage.checkpoint_files import Clock, characters_to_evaluate
from gpt.training import ranks
from gpt.training.progress import learning_rate
from gpt.vocabulary import Ids

IGNORED = -100  # the target of held-out text; torch's cross_entropy leaves this target out
EMBEDDING_AND_OUTPUT = ("token_embedding.weight", "lm_head.weight")
#: Factors a, b, c of steps s ← a·s + b·s³ + c·s⁵. The steps bring all singular values s from 0.001
#: to 1 near 1 (Polar Express, Amsel et al. 2025).
FACTORS = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
)
MARGIN = 1.01  # factor on the norm, so that rounding brings no singular value above 1
NUMBERS_AT_ONCE = {"cpu": 2**20}  # most in the widest layer; a CPU's cache holds no more
NUMBERS_ELSEWHERE = 2**23  # the same on other devices

#: Matrices of one shape: the parameters that hold their rows, and the number of matrices.
Matrices: TypeAlias = tuple[list[Tensor], int]
#: Windows of one length: their starts and the length.
Span: TypeAlias = tuple[npt.NDArray[np.int64], int]


class Optimizer:
    """AdamW (Loshchilov & Hutter 2019); with matrix_lr, Muon for the matrices of the blocks.

    Weight decay applies only to matrices. Embedding and output may have their own learning rate.
    state: "kind.parameter" -> its number of steps or a moment. Steps change these tensors in place.
    """

    def __init__(self, model: nn.Module, config: TrainConfig) -> None:
        _spare_the_compiler()
        self.config = config
        groups: dict[tuple[float, float], list[Tensor]] = {}
        low = torch.bfloat16 if config.precision == "bfloat16" else torch.float32
        matrices = list(find_matrices(model)) if config.matrix_lr else []
        self._muon = Muon(matrices, config.beta1, low)
        for name, parameter in model.named_parameters():
            if parameter in self._muon.state:
                continue
            rate = config.learning_rate
            if name in EMBEDDING_AND_OUTPUT:
                rate = config.embedding_lr or rate
            decay = config.weight_decay if parameter.dim() >= 2 else 0.0
            groups.setdefault((rate, decay), []).append(parameter)
        self._adamw = torch.optim.AdamW(
            [
                {"params": parameters, "lr": rate, "peak": rate, "weight_decay": decay}
                for (rate, decay), parameters in groups.items()
            ],
            betas=(config.beta1, config.beta2),
            fused=next(model.parameters()).device.type in ("cpu", "cuda"),
        )
        self.param_groups = self._adamw.param_groups  # of AdamW; "peak": its highest learning rate
        self.state: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            state = {"step": torch.zeros((), device=parameter.device)}
            if parameter in self._muon.state:
                self._muon.state[parameter] = state
            else:
                self._adamw.state[parameter] = state
                state["exp_avg_sq"] = torch.zeros_like(parameter)
            state["exp_avg"] = torch.zeros_like(parameter)
            for kind, tensor in state.items():
                self.state[f"{kind}.{name}"] = tensor.reshape(tensor.shape or (1,))

    def step(self, step: int, clock: Clock | None = None) -> None:
        """Makes the update after `step` updates. clock: that of a run with a time budget."""
        config = self.config
        share = learning_rate(config, step, clock) / config.learning_rate
        for group in self.param_groups:
            group["lr"] = group["peak"] * share
        decay = share * (config.learning_rate * config.weight_decay)
        self._muon.step(share * config.matrix_lr, decay)
        with torch.no_grad():  # replaces the wrapper around `step`, which imports the compiler
            inspect.unwrap(torch.optim.AdamW.step)(self._adamw)


def _spare_the_compiler() -> None:
    """Marks `add_param_group` of torch's optimizers as never compiled. Without this mark, its first
    call imports torch's compiler, which costs 1.4 CPU seconds and 70 MB; gptx compiles no
    optimizer. A torch that reads another mark imports the compiler as usual.
    """
    function = getattr(torch.optim.Optimizer.add_param_group, "__wrapped__", None)
    if function is not None:
        vars(function).setdefault("__dynamo_disable", function)


def find_matrices(model: nn.Module) -> Iterator[Matrices]:
    """Yields the matrices of a model's blocks, in which heads are fused or separate: queries, keys
    and values of all heads, projections, and feed-forward layers.
    """
    for module in model.modules():
        if isinstance(module, FusedAttention):
            yield [module.qkv.weight], 3
            yield [module.proj.weight], 1
        elif isinstance(module, MultiHeadAttention):
            heads: Any = list(module.heads)
            for part in ("query", "key", "value"):
                yield [getattr(head, part).weight for head in heads], 1
            yield [module.proj.weight], 1
        elif isinstance(module, FeedForward):
            yield [module.up.weight], 1
            yield [module.down.weight], 1


def orthogonalise(stack: Tensor) -> Tensor:
    """Approximates U·Vᵀ for each of (n, r, c) matrices with r ≥ c and the singular value
    decomposition U·S·Vᵀ. A zero matrix stays zero.
    """
    norms = torch.linalg.vector_norm(stack, dim=(1, 2), keepdim=True)
    stack = stack / (MARGIN * norms).clamp(min=torch.finfo(stack.dtype).tiny)
    for a, b, c in FACTORS:
        gram = stack.mT @ stack  # (n, c, c)
        gram = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        stack = torch.baddbmm(stack, stack, gram, beta=a)
    return stack


class Muon:
    """Changes matrices by their orthogonalised mean gradient (Jordan et al. 2024).

    momentum: decay of the mean gradient. dtype: the type in which products are computed. state:
    parameter -> the number of its steps and its mean gradient.
    """

    def __init__(self, matrices: list[Matrices], momentum: float, dtype: torch.dtype) -> None:
        self.momentum, self.dtype = momentum, dtype
        self._alike: dict[tuple[int, int], list[Matrices]] = defaultdict(list)
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        for parameters, count in matrices:
            rows, columns = sum(map(len, parameters)) // count, parameters[0].shape[1]
            self._alike[max(rows, columns), min(rows, columns)].append((parameters, count))
            self.state |= {parameter: {} for parameter in parameters}

    @torch.no_grad()
    def step(self, rate: float, decay: float) -> None:
        """Makes an update. decay: the share of every weight that is subtracted first."""
        for alike in self._alike.values():
            directions = [self._direction(parameters, count) for parameters, count in alike]
            turned = orthogonalise(torch.cat(directions).to(self.dtype)).float()
            changes = torch.split(turned, [count for _, count in alike])
            for (parameters, _), change in zip(alike, changes, strict=True):
                columns = parameters[0].shape[1]
                if change.shape[2] != columns:
                    change = change.mT
                scale = rate * max(1.0, change.shape[1] / columns) ** 0.5
                parts = torch.split(change.reshape(-1, columns), list(map(len, parameters)))
                for parameter, part in zip(parameters, parts, strict=True):
                    parameter.mul_(1 - decay)
                    parameter.add_(part, alpha=-scale)

    def _direction(self, parameters: list[Tensor], count: int) -> Tensor:
        """Returns the updated mean gradients one step ahead (Nesterov): (count, r, c), r ≥ c."""
        ahead = []
        for parameter in parameters:
            state = self.state[parameter]
            state["step"] += 1
            mean, gradient = state["exp_avg"], parameter.grad
            assert gradient is not None
            mean.lerp_(gradient, 1 - self.momentum)
            ahead.append(gradient.lerp(mean, self.momentum))
        stack = torch.cat(ahead).view(count, -1, parameters[0].shape[1])
        return stack if stack.shape[1] >= stack.shape[2] else stack.mT


class Average:
    """An exponential moving average of a model's weights (Polyak & Juditsky 1992). It removes the
    noise of small batches.
    """

    def __init__(self, model: GPT, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self, model: GPT, step: int) -> None:
        """Sets average ← decay · average + (1 − decay) · weights, after `step` steps. The decay
        grows from 2/11 to its final value, so that the first weights soon count little.
        """
        share = 1 - min(self.decay, (1 + step) / (10 + step))
        averages, weights = ([p.detach() for p in m.parameters()] for m in (self.model, model))
        torch._foreach_lerp_(averages, weights, share)


class Learner:
    """A model that learns a text.

    Every rank computes its rows of a batch, one micro-batch after another, with its own dropout
    masks. Then torch's DistributedDataParallel averages the gradients of all ranks (Li et al.
    2020), which gives the gradients of the whole batch.

    held: the parts of the text that are no targets. separator (n,): the ids between two items, if
    windows begin at items. Raises ConfigError if there are more ranks than sequences in a step.
    """

    def __init__(
        self,
        model: GPT,
        text: Ids,
        config: TrainConfig,
        held: HeldOutPieces | None = None,
        separator: Ids | None = None,
    ) -> None:
        size = ranks.world_size()
        if config.batch_size < size:
            raise ConfigError(
                "batch_size",
                f"{config.batch_size} sequences are too few for {size} ranks; every rank needs one",
            )
        if config.deterministic:  # cuBLAS reads this variable when it is first used
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        if torch.are_deterministic_algorithms_enabled() != config.deterministic:
            torch.use_deterministic_algorithms(config.deterministic)  # imports the compiler
        self.model, self.text, self.config = model, text, config
        self.held, self.separator = held, separator
        self.optimizer = Optimizer(model, config)
        self._net: Any = model
        if size > 1:
            self._net = nn.parallel.DistributedDataParallel(model)
            # DistributedDataParallel changes the order of additions after its first step, so the
            # first step of a resumed run would differ. This first step on zeros prevents that.
            zeros = torch.zeros((1, 1), dtype=torch.int64, device=next(model.parameters()).device)
            self._net(zeros).sum().backward()
            self._net.zero_grad()
        self._compute = torch.compile(self._net) if config.compile else self._net

    def step(self, step: int, clock: Clock | None = None) -> tuple[float, float]:
        """Makes the step after `step` steps. Returns its loss in nats, without held-out characters,
        and the norm of its gradient before clipping. If one of them is not finite, no weight
        changes.
        """
        model, config, held = self.model, self.config, self.held
        rank, size, block_size = ranks.rank(), ranks.world_size(), model.config.block_size
        device = next(model.parameters()).device
        if max(model.config.dropout, model.config.attention_dropout) > 0:
            seeds = philox(config.seed, step, DROPOUT).random_raw(rank + 1)
            torch.manual_seed(int(seeds[-1] >> 1))
        starts = batch_starts(self.text, config, step, block_size, self.separator)
        model.zero_grad()
        value = 0.0
        pieces = ranks.rank_pieces(config.batch_size, config.micro_batch_size, rank, size)
        for number, part in enumerate(pieces, start=1):
            empty = part.stop == part.start
            rows = slice(0, 1) if empty else part  # DDP needs a row; its share is 0
            inputs, following = windows(self.text, starts[rows], block_size)
            if held is not None:
                places = starts[rows, None] + np.arange(1, block_size + 1)
                following = np.where(held.contains(places), IGNORED, following)
            ids, targets = (torch.from_numpy(array).to(device) for array in (inputs, following))
            share = (part.stop - part.start) / config.batch_size
            self._net.require_backward_grad_sync = number == len(pieces)  # once a step
            low = config.precision == "bfloat16"
            with torch.autocast(device.type, torch.bfloat16, enabled=low):
                logits = self._compute(ids)  # (b, T, vocab_size)
                loss = _mean_loss(logits, targets, held) * share
            (loss * size).backward()
            value += loss.item()
        clipped = torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip or math.inf)
        value, norm = ranks.reduce(value, "SUM"), clipped.item()
        if math.isfinite(value) and math.isfinite(norm):
            self.optimizer.step(step, clock)
        return value, norm


def _mean_loss(logits: Tensor, targets: Tensor, held: HeldOutPieces | None) -> Tensor:
    """Returns the mean loss of (b, T, vocab_size) logits for (b, T) targets. With held-out text,
    this divides the sum over the other characters by their expected number, so that a batch's loss
    does not depend on its division into micro-batches.
    """
    if held is None:
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    total = F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total / (targets.numel() * (1 - held.share))


@dataclass(frozen=True)
class Losses:
    """Mean nats per character. gpt: the loss of the GPT alone, in a model with counting."""

    nats: float
    gpt: float | None = None


def evaluate(
    model: GPT, ids: Ids, device: str, most: int = 0, mixture: Mixture | None = None
) -> Losses:
    """Returns the losses on all ids but the first, in windows of block_size that do not overlap, in
    float32 and without dropout. The ranks share the windows; all of them get the result.

    most: how many characters to predict, in evenly spread windows; 0: all.
    """
    config, gpt, together = model.config, 0.0, 0.0
    numbers = NUMBERS_AT_ONCE.get(device, NUMBERS_ELSEWHERE)
    rows = max(1, numbers // (config.block_size * config.widest_layer))
    spans = [
        (starts[first : first + rows], length)
        for starts, length in window_starts(len(ids) - 1, config.block_size, most)
        for first in range(0, len(starts), rows)
    ]
    for span in spans[ranks.rank() :: ranks.world_size()]:
        logits, came = predict_span(model, ids, span, device)
        gpt += float(F.cross_entropy(logits, came, reduction="sum"))
        if mixture is not None:
            histories = mixture.expert.trie.histories_at(ids, span[0] + 1, span[1])
            losses = mixture.losses(logits.cpu().numpy(), histories, came.cpu().numpy())
            together += float(losses.sum())
    read = characters_to_evaluate(len(ids) - 1, config.block_size, most)
    alone = ranks.reduce(gpt, "SUM") / read
    return Losses(alone) if mixture is None else Losses(ranks.reduce(together, "SUM") / read, alone)


def window_starts(total: int, block: int, most: int) -> list[Span]:
    """Returns the windows in which a split is evaluated. total: the number of characters to
    predict, all but the first. If `most` allows fewer, the windows are evenly spread.
    """
    read, whole = characters_to_evaluate(total, block, most), total // block
    if read == total:
        spans = [
            (np.arange(whole, dtype=np.int64) * block, block),
            (np.array([whole * block], dtype=np.int64), total % block),
        ]
        return [(starts, length) for starts, length in spans if len(starts) and length]
    count, length = (read // block, block) if read >= block else (1, read)
    spread = (2 * np.arange(count, dtype=np.int64) + 1) * max(1, whole) // (2 * count)
    return [(spread * block, length)]


@torch.no_grad()
def predict_span(
    model: GPT, ids: Ids, span: Span, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (b · T, vocab_size) logits of b windows, and (b · T,) ids to predict. No dropout."""
    starts, length = span
    rows = np.asarray(ids[starts[:, None] + np.arange(length + 1)]).astype(np.int64)
    windows = torch.from_numpy(rows).to(device)
    was_training = model.training
    model.eval()
    logits = model(windows[:, :-1])  # (b, T, vocab_size)
    model.train(was_training)
    return logits.flatten(0, 1), windows[:, 1:].flatten()


@contextlib.contextmanager
def torch_errors(model: ModelConfig, config: TrainConfig) -> Iterator[None]:
    """Turns errors of torch into OutOfMemory with a remedy, or ConfigError for `compile`."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if config.compile and type(error).__module__.startswith("torch._dynamo"):
            raise ConfigError("compile", f"fails here ({error_summary(error)})") from error
        text = str(error).lower()
        if not isinstance(error, MemoryError) and not (
            "out of memory" in text or "can't allocate memory" in text
        ):
            raise
        half = (config.micro_batch_size or config.batch_size) // 2
        smaller = (
            f"`micro_batch_size={half}`, which gives the same result, or `batch_size={half}`"
            if half
            else f"`block_size={max(1, model.block_size // 2)}`"
        )
        raise OutOfMemory(f"out of memory; try {smaller}") from error


def check_memory(model: ModelConfig, config: TrainConfig, free: int, ranks: int = 1) -> None:
    """Raises OutOfMemory if a rank's share of a step needs more than the `free` bytes. Without this
    check, Linux would grant the memory and later kill the process.
    """
    share = math.ceil(config.batch_size / ranks)
    at_once = min(config.micro_batch_size or share, share)
    # `fixed`: weights, gradients, two moments, and the ids of the rank. `sequence`: what the layers
    # keep of one sequence to compute gradients, and its logits.
    fixed = 16 * model.parameters() + 8 * (model.block_size + 1) * share
    layer = (6 + 2 * model.feed_forward) * model.n_embd + 2 * model.ffn_hidden
    sequence = 4 * (model.n_layer * layer + 3 * model.vocab_size) * model.block_size
    needed = fixed + at_once * sequence
    if needed > free:
        fits = max(0, free - fixed) // (2 * sequence)  # half, because the estimate is a minimum
        remedy = "a smaller `batch_size`, `n_embd` or `n_layer`"
        if fits:
            remedy = f"`micro_batch_size={fits}`, which gives the same result"
        raise OutOfMemory(
            f"out of memory: a step needs {needed / 2**30:,.0f} GB, {free / 2**30:,.1f} GB are "
            f"free; try {remedy}"
        )
