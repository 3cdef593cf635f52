"""What attention heads do, and checks of every number. No torch."""
