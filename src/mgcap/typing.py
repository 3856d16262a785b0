"""Types that many modules name."""

from __future__ import annotations

from typing import Any

import numpy as np

#: A numpy array of any type and shape.
Array = np.ndarray[Any, Any]
