"""Data sets: readers of the published files, and wrappers that corrupt or perturb any of them on the fly."""
