"""`python -m gpt` and `torchrun … -m -- gpt train …` start the program `gptx`."""

from gpt.commands import main

if __name__ == "__main__":
    main()
