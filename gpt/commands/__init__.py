"""The commands, a file each. They alone print, and through gpt/console.py only."""
