"""Rails: what carries out the effect."""
