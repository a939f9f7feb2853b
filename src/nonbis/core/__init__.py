"""The pure core: states, transitions, names, ids, fingerprints, windows and settings.

Nothing in here reads a clock, draws a random number, opens a socket or a file, or knows a store:
whatever it needs of the world is handed in, and what it wants done it returns as data.
"""
