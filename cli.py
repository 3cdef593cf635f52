"""gptx from a checkout, without installing it: `python cli.py train corpus.txt`."""

from gpt.commands import app, main

__all__ = ["app", "main"]

if __name__ == "__main__":
    main()
