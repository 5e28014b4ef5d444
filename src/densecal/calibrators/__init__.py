"""The calibration methods, one per file. ``registry`` lists them by short name."""

DAC_NAME, SHIFT_FITTED = "dac", "dac-shift"
"""The name of DAC, and of a DAC that was fitted with shifted data."""
UNCALIBRATED, ORACLE = "uncalibrated", "oracle"
"""The names of the softmax alone, and of a temperature fitted on the test data themselves."""
DEFAULT_METHOD = "dac+ets"
