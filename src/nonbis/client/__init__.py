"""The client: asks again under the same name and never guesses."""
