"""Private gradients: the clipped sum over examples, and the proof that examples do not mix."""

from hush.gradients.clipped import ClippedSum as ClippedSum
from hush.gradients.clipped import clipped_sum as clipped_sum
from hush.gradients.doctor import Diagnosis as Diagnosis
from hush.gradients.doctor import doctor as doctor
from hush.gradients.isolation import check_isolation as check_isolation
from hush.gradients.memory import physical_batch_size_for as physical_batch_size_for

__all__ = ["ClippedSum", "Diagnosis", "check_isolation", "clipped_sum", "doctor", "physical_batch_size_for"]
