from __future__ import annotations

import torch

from mgcap.baselines.invariant import GroupCovariance, Idccp, dihedral
from mgcap.baselines.method import Tools
from tests.baselines.shades import IMAGES, shades


def test_idccp_does_not_see_rotations_and_reflections() -> None:
    descriptor = GroupCovariance("alexnet", "conv2", "torch", "random")
    rows = [descriptor.rows(rotated[:1])[0] for rotated in dihedral(IMAGES)]
    assert len({tuple(rotated[0, 0, 0, :4].tolist()) for rotated in dihedral(IMAGES)}) == 8
    for row in rows[1:]:
        torch.testing.assert_close(row, rows[0], rtol=1e-3, atol=1e-5)
    images, labels = shades(9)
    method = Idccp(Tools(), descriptor, 12).fit(images, labels)
    assert method.predict(images).tolist() == labels
    torch.testing.assert_close(method.compression.T @ method.compression, torch.eye(12), atol=1e-4, rtol=0)
