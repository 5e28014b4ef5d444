"""What scikit-learn expects of an estimator that contains another one."""

from __future__ import annotations

from typing import Any

from sklearn.svm import LinearSVC
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, _routing_enabled

from densecal.calibrators.base import Calibrator


class Conventions:
    """Metadata routing, tags, and the names that scikit-learn gives to what is fitted."""

    estimator: Any
    cv: Any

    @property
    def estimator_(self) -> Any:
        """The only fitted classifier."""
        return self._only("estimators_")

    @property
    def calibrator_(self) -> Calibrator:
        """The only fitted calibrator."""
        return self._only("calibrators_")  # type: ignore[no-any-return]

    def _only(self, name: str) -> Any:
        found = self.__dict__.get(name, ())
        if len(found) != 1:
            raise AttributeError(f"There are {len(found)}, one per fold: see {name}, or use ensemble=False.")
        return found[0]

    def estimator_to_fit(self) -> Any:
        """Return the estimator, or scikit-learn's default for calibration if there is none."""
        if self.estimator is not None:
            return self.estimator
        default = LinearSVC(random_state=0)
        return default.set_fit_request(sample_weight=True) if _routing_enabled() else default

    def get_metadata_routing(self) -> MetadataRouter:
        """Return which arguments of ``fit`` go to this object, the estimator and the splitter."""
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        to_split = MethodMapping().add(caller="fit", callee="split")
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(estimator=self.estimator_to_fit(), method_mapping=to_fit)
        return router.add(splitter=self.cv, method_mapping=to_split)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        inner = get_tags(self.estimator_to_fit()).input_tags
        tags.input_tags.sparse, tags.input_tags.allow_nan = inner.sparse, inner.allow_nan
        return tags
