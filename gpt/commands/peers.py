"""What nanoGPT, char-rnn, textgenrnn, gpt-2-simple and others call our commands and options: an
error shows such a command line as gptx writes it; nothing takes these names.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from importlib import import_module

from gpt.commands import COMMANDS, MODULES
from gpt.commands.options import PANELS, classes_of_options
from gpt.config.fields import fields_of, flag_of

#: Our command -> theirs.
THEIR_COMMANDS = {
    "train": "finetune fit train_from_file",
    "sample": "generate complete",
    "attn": "visualize",
    "eval": "evaluate perplexity",
}
#: Our option -> theirs. "-": gptx needs none.
THEIR_OPTIONS = {
    "batch_size": "n_batch",
    "block_size": "seq_length context_length max_length",
    "checkpoints": "out_dir checkpoint_dir save_dir",
    "corpus": "input_txt input_file data_dir dataset file_name",
    "eval_interval": "checkpoint_every eval_val_every",
    "learning_rate": "lr",
    "length": "max_new_tokens max_gen_length max_length num_tokens",
    "n": "num_samples nsamples",
    "n_embd": "rnn_size hidden_size",
    "n_head": "n_heads num_heads",
    "n_layer": "num_layers rnn_layers n_layers",
    "precision": "dtype",
    "prompt": "start prefix primetext prime_text start_text",
    "repetition": "repetition_penalty",
    "run": "checkpoint run_name wandb_run_name",
    "steps": "max_iters max_steps num_steps",
    "temperature": "temp",
    "warmup_steps": "warmup_iters",
    "-": "always_save_checkpoint backend decay_lr dtype eval_iters gradient_accumulation_steps "
    "init_from log_interval lr_decay_iters print_every wandb_log wandb_project",
}
#: --lr=1, --n 3, and -temperature 1, as in Torch.
_OPTION = re.compile(r"(--?[A-Za-z][\w-]+|--n)(?:=(.*))?", re.DOTALL)
_SWITCH = re.compile(r"0|1|true|false", re.IGNORECASE)
_VALUE = re.compile(r"(?!--).*", re.DOTALL)


def translated(words: Sequence[str]) -> str | None:
    """The command line with our names, to be copied; None if it has none of theirs, or others that
    are unknown.
    """
    first, *left = words or [""]
    theirs = first.replace("-", "_")
    command = next(
        (name for name, names in THEIR_COMMANDS.items() if theirs in names.split()), first
    )
    if command not in COMMANDS:
        return None
    module = import_module(f"gpt.commands.{MODULES.get(command, command)}")
    classes = classes_of_options(module.command)
    ours, has_theirs = ["gptx", command], command != first
    while left:
        word = left.pop(0)
        option = _OPTION.fullmatch(word)
        name = option[1].strip("-").replace("-", "_") if option else ""
        if not option or name.removeprefix("no_") in classes.keys() - {name}:
            ours.append(word)
            continue
        if name not in classes:
            meant = [ours for ours, names in THEIR_OPTIONS.items() if name in names.split()]
            known = [ours for ours in meant if ours in classes or ours == "-"]
            if not known:
                return None
            name = known[0]
        flag, value = flag_of(name), option[2]
        field = fields_of(classes[name])[name] if name in classes else None
        is_switch = field is None or field.type is bool
        has_theirs |= option[1].replace("_", "-") != flag or (is_switch and value is not None)
        has_value = _SWITCH if field and is_switch else _VALUE
        if value is None and left and has_value.fullmatch(left[0]):
            value = left.pop(0)
        if field and not is_switch:
            ours += [value or ""] if name == "corpus" else [flag, value or ""]
        elif field and str(value).lower() not in ("false", "0"):
            ours.append(flag)
        elif field and classes[name] in PANELS:
            ours.append(f"--no-{flag[2:]}")
    return shlex.join(ours) if has_theirs else None
