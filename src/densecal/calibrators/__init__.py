"""The calibration methods, one a file; ``registry`` knows them all by their short names."""
