"""What all commands share: options, opened models, output, progress, and how errors are shown."""
