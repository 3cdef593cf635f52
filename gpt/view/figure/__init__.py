"""SVG, PNG and PDF through matplotlib."""
