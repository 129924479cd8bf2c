"""Training: one plan, private gradients, the loop, and runs that survive a crash."""

from hush.training.clipping import AdaptiveClipping as AdaptiveClipping
from hush.training.loop import fit as fit
from hush.training.lots import Lot as Lot
from hush.training.plan import TrainingPlan as TrainingPlan
from hush.training.progress import Progress as Progress
from hush.training.run import Run as Run
from hush.training.step import PrivateGradients as PrivateGradients

__all__ = ["AdaptiveClipping", "Lot", "PrivateGradients", "Progress", "Run", "TrainingPlan", "fit"]
