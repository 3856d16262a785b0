"""What a classifier had better not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mgcap.data.stream import check_items
from mgcap.descriptor import _raise
from mgcap.errors import MgcapError
from mgcap.inference.unknown import UNKNOWN, Limits
from mgcap.training import provenance
from mgcap.typing import Array

if TYPE_CHECKING:
    from mgcap.inference.descriptors import Predicted
    from mgcap.inference.examples import Examples
    from mgcap.inference.sample import TrainingSample


class UncertaintyMixin:
    """Methods of :class:`mgcap.SceneClassifier` about images that it does not know."""

    classes_: Array
    sample_: TrainingSample | None
    examples_: Examples | None
    metrics_: dict[str, Any]
    provenance_: dict[str, Any]

    if TYPE_CHECKING:

        def _fitted(self) -> Any: ...

        def predict_readable(self, items: Any, on_error: Any, keep: bool = True) -> Predicted: ...  # noqa: D102

    def is_unknown(self, X: Any, alpha: float = 0.01) -> Array:  # noqa: N803
        """Which images the model had better not name: unlike its training images, or of too low a probability.

        Args:
            X: Images, see the class.
            alpha: Share of training images that were held out which would be called unknown by each of the two.
        """
        self._fitted()
        limits = provenance.limits(self.sample_, self.metrics_, self.provenance_, alpha)
        found = self.predict_readable(check_items(X), on_error=_raise, keep=False)
        return limits.unknown(found.probabilities, found.distances)

    def limits(self, alpha: float) -> Limits:
        """The distance and the probability beyond which a share ``alpha`` of held-out training images lay; 0 is off.

        What lies beyond is called ``unknown``.

        Raises:
            MgcapError: If the model does not know them, or has a class of that name.
        """
        self._fitted()
        if alpha and any(str(name).casefold() == UNKNOWN for name in self.classes_):
            raise MgcapError(
                f"a class of the model is called '{UNKNOWN}', so nothing else can be; give that class another name"
            )
        return provenance.limits(self.sample_, self.metrics_, self.provenance_, alpha)

    def reject_threshold(self, rate: float) -> float:
        """The largest probability below which an image counts as unknown.

        Args:
            rate: Share of images of known classes that may be rejected; the threshold is that quantile of the largest
                probability of the training images while they were held out in cross-validation.
        """
        self._fitted()
        return provenance.held_out_quantile(self.metrics_, self.provenance_, rate)
