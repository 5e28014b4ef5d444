"""The 18 published corruptions at five severities, batched, on CPU or GPU."""
