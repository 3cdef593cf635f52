"""What nanoGPT, char-rnn, textgenrnn, gpt-2-simple and others call our options and commands. Errors
show ours; nothing takes these names.
"""

from __future__ import annotations

#: Our command -> theirs.
_COMMANDS = {
    "train": "finetune fit train_from_file",
    "sample": "generate complete",
    "attn": "visualize",
    "eval": "evaluate perplexity",
}
#: Our option -> theirs. "-": gptx needs none.
_OPTIONS = {
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
COMMANDS = {theirs: ours for ours, names in _COMMANDS.items() for theirs in names.split()}


def ours_for(theirs: str) -> list[str]:
    """Our options for one of theirs; a command has only some of them."""
    return [ours for ours, names in _OPTIONS.items() if theirs in names.split()]
