"""scikit-learn: calibrate any classifier."""

from densecal.sklearn.classifier import CalibratedClassifier

__all__ = ["CalibratedClassifier"]
