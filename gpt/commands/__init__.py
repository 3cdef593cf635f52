"""The commands, a file each. They alone print, and through gpt/commands/console.py only."""
