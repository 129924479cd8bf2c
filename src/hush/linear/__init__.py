"""Private linear models as scikit-learn estimators. Bounds are arguments; none is ever read from the data."""

from hush.linear.head import PrivateSoftmaxHead
from hush.linear.logistic import PrivateLogisticRegression
from hush.linear.projected_sgd import ProjectedDescent, noisy_projected_sgd
from hush.linear.regression import PrivateLinearRegression
from hush.linear.repeats import RepeatedFitWarning
from hush.linear.saved import load, save
from hush.linear.theil_sen import PrivateTheilSen

__all__ = [
    "PrivateLinearRegression",
    "PrivateLogisticRegression",
    "PrivateSoftmaxHead",
    "PrivateTheilSen",
    "ProjectedDescent",
    "RepeatedFitWarning",
    "load",
    "noisy_projected_sgd",
    "save",
]
