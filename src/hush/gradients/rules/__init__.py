"""What the tape does where a trainable parameter meets the batch: one rule per kind of function."""

from hush.gradients.rules import backward as backward
from hush.gradients.rules import convolve as convolve
from hush.gradients.rules import elementwise as elementwise
from hush.gradients.rules import lookup as lookup
from hush.gradients.rules import normalise as normalise
from hush.gradients.rules import products as products
from hush.gradients.rules import recurrent as recurrent
