"""The calibration methods, one per file. ``registry`` lists them by short name."""
