"""The simulated bank, a process of its own."""
