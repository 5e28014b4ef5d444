"""What several methods solve with."""
