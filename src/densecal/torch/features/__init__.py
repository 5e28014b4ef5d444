"""Which layers of a classifier are read, and how."""
