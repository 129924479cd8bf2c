"""Everything Hush raises.

    HushError
    ├── InvalidValue (ValueError)        an argument is outside its domain
    ├── UnreadableFile (ValueError)      a file is truncated, edited or not what it claims to be
    ├── UnsupportedEvent (ValueError)    an accountant cannot bound an event, and says which
    ├── Unreachable (ValueError)         no noise, step count or sampling probability meets the budget
    ├── NotIsolated (ValueError)         one example changes another's gradient, loss or a buffer
    ├── NoRule                           the tape cannot serve a parameter, and says which and why
    ├── NotLearning (RuntimeError)       a trainable parameter has not moved
    ├── ResumeRefused (ValueError)       a checkpoint does not fit the plan, the model or the ledger
    ├── WorkerLost (RuntimeError)        a process of a distributed run ended or does not answer
    ├── DataMissing (OSError)            a data set is not at hand, and the message says how to get it
    ├── MissingExtra (ImportError)       an optional dependency is not installed
    └── LedgerError
        ├── BudgetExceeded               the charge does not fit under the account's cap
        ├── AccountMissing (KeyError)    no such account in this ledger
        └── LedgerTampered               a row was edited, removed or re-ordered

Each message is one line: what was expected, what came, what to do. What is only a warning:

    UnplannedBatch (UserWarning)         a batch of one's own loop that the plan's sampler did not draw
    TrainedBefore (UserWarning)          the weights of a new run were trained by an earlier one
    OddSampling (UserWarning)            a record occurs twice, or the plan's numbers do not fit the data set
"""

from __future__ import annotations


class HushError(Exception):
    """Base of every error that Hush raises."""


class InvalidValue(HushError, ValueError):
    """An argument is outside its domain."""


class UnreadableFile(HushError, ValueError):
    """A file or text is truncated, edited or not what it claims to be."""


class UnsupportedEvent(HushError, ValueError):
    """An accountant cannot bound this event."""


class Unreachable(HushError, ValueError):
    """No value of the unknown meets the budget."""


class NotIsolated(HushError, ValueError):
    """One example changes another's gradient, loss or a buffer, so no clipping can bound what it contributes."""


class UnplannedBatch(UserWarning):
    """A batch did not come from `plan.batches`, so nobody but the user knows how it was drawn."""


class TrainedBefore(UserWarning):
    """The weights were trained before, and the new run's guarantee does not include what that cost."""


class OddSampling(UserWarning):
    """A record occurs more than once in the data set, or its size contradicts the plan's numbers."""


class NoRule(HushError):
    """The tape has no rule for a function that meets a trainable parameter; another method has to serve."""


class NotLearning(HushError, RuntimeError):
    """A trainable parameter has not moved, so the run would spend its budget for nothing."""


class ResumeRefused(HushError, ValueError):
    """A checkpoint does not fit the plan, the model, the data or the ledger."""


class WorkerLost(HushError, RuntimeError):
    """A process of a distributed run ended or does not answer, so the others cannot go on."""


class DataMissing(HushError, OSError):
    """A data set is neither in the data folder nor in the cache."""


class MissingExtra(HushError, ImportError):
    """An optional dependency is not installed."""


class LedgerError(HushError):
    """Base of the ledger's errors."""


class BudgetExceeded(LedgerError):
    """The charge does not fit under the account's cap; nothing was charged."""


class AccountMissing(LedgerError, KeyError):
    """There is no such account in this ledger."""

    def __str__(self) -> str:  # KeyError would print the message in quotes
        return str(self.args[0])


class LedgerTampered(LedgerError):
    """A row of the ledger was edited, removed or re-ordered."""
