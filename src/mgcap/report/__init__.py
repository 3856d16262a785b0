"""Charts and pages: what came out, in files that need no network.

Each function takes results and a folder or file to write to, and gives the page that it wrote; ``command`` says there
how to repeat it.
"""

from mgcap.report.ablation import ablation_report, ablation_tables
from mgcap.report.comparison import comparison_report
from mgcap.report.demonstration import demo_report
from mgcap.report.evaluation import evaluation_report, few_shot_report, model_report
from mgcap.report.training import training_report

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
