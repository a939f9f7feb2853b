"""Faces: thin translations between a protocol and the engine."""
