"""The engine: the one place that carries out what the core decides."""
