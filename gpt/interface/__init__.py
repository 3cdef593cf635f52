"""The functions and classes that Python users and the commands call."""
