"""Selection, capture and pooling of a classifier's layers."""
