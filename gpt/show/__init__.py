"""Shows results: in a terminal, in a notebook, as figures and for programs. Knows no result."""
