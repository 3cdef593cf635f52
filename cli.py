"""gptx from a checkout, without installing it: `python cli.py train corpus.txt`."""

from gpt.commands import main

if __name__ == "__main__":
    main()
