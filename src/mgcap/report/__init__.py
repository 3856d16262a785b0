"""Charts and pages: what came out, in files that need no network.

Each function takes results and a folder or file to write to, and gives the page that it wrote; ``command`` says there
how to repeat it. They are loaded when they are used: who only wants a colour does not wait for all that they need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgcap.report.ablation import ablation_report, ablation_tables
    from mgcap.report.comparison import comparison_report
    from mgcap.report.demonstration import demo_report
    from mgcap.report.evaluation import evaluation_report, few_shot_report, model_report
    from mgcap.report.training import training_report

_LAZY = {
    "ablation_report": "ablation",
    "ablation_tables": "ablation",
    "comparison_report": "comparison",
    "demo_report": "demonstration",
    "evaluation_report": "evaluation",
    "few_shot_report": "evaluation",
    "model_report": "evaluation",
    "training_report": "training",
}

__all__ = [
    "ablation_report",
    "ablation_tables",
    "comparison_report",
    "demo_report",
    "evaluation_report",
    "few_shot_report",
    "model_report",
    "training_report",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"mgcap.report.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'mgcap.report' has no attribute '{name}'")
