"""The k-th neighbour search, one file a backend; every backend has the same one function.

``kth_distances(queries, bank, ks, *, memory_budget)`` takes unit vectors (queries (N, D), bank (M, D)) and
returns the Euclidean distances from each query to its k-th nearest bank vectors, of shape (N, len(ks)).
"""
