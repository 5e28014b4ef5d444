"""How far an input lies from the training data."""
