"""`fit(..., audit=True)`: the training's inputs with canaries among them, or as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hush.audit.result import AuditResult
from hush.audit.white_box import WhiteBox, WhiteBoxAudit
from hush.errors import InvalidValue
from hush.gradients.batches import Batch
from hush.privacy import Guarantee
from hush.training.team import Team

if TYPE_CHECKING:
    from hush.training.plan import TrainingPlan
    from hush.training.session import Setup

_ROWS_OF_A_PERSON = 2  # so that clipping each row for itself would show


class Watched:
    """Model, data and loss of a session; with an audit, those that have canaries."""

    def __init__(self, setup: Setup, augment: Callable[[Batch], Batch] | None) -> None:
        self.model, self.loss_fn, self.dataset = setup.model, setup.loss_fn, setup.dataset
        self.people, self.augment, self.collate = setup.people, augment, setup.collate
        self.may_rest = frozenset(setup.may_rest)
        self._divisor = setup.plan.expected_batch_size
        self._audit: WhiteBoxAudit | None = None
        self._settings = WhiteBox()
        if setup.audit is not False:
            self._begin(setup)

    def _begin(self, setup: Setup) -> None:
        if isinstance(setup.audit, WhiteBox):
            self._settings = setup.audit
        elif setup.audit is not True:
            raise InvalidValue(f"audit must be True, False or a hush.audit.WhiteBox; got {setup.audit!r}.")
        _check_auditable(setup.plan)
        audit = _audit_of(setup.plan, self._settings, setup)
        self.dataset = audit.dataset(setup.dataset, collated=setup.collate is not None)
        self.people, self.collate = audit.people(setup.people), audit.collate(setup.collate)
        self.augment = audit.augment(self.augment)
        self.model, self.loss_fn = audit.model(setup.model), audit.loss(setup.loss_fn)
        self.may_rest = frozenset({"canaries", "canaries_too", *(f"model.{name}" for name in setup.may_rest)})
        self._audit = audit

    def refuse_team(self, team: Team) -> None:
        """The canaries are one process's: their gradients are not added up over several."""
        if self._audit is not None and team.size > 1:
            raise InvalidValue(f"an audited run is one process's; start it without torchrun, not as {team.size}.")

    def refuse_resume(self) -> None:
        """The canaries' coins are not kept on disk, so another process cannot go on with an audit."""
        if self._audit is not None:
            raise InvalidValue("a run is audited from first to last step in one process; resume it without audit.")

    def see(self, clip_norm: float) -> None:
        """Let the audit see the step whose noisy gradient is in `.grad`."""
        if self._audit is not None:
            assert self._audit.attached is not None
            self._audit.see(self._audit.attached.noisy_sum(self._divisor), clip_norm)

    def result(self, guarantee: Guarantee) -> AuditResult | None:
        """What the audit found, held against the guarantee; None without an audit."""
        if self._audit is None:
            return None
        return self._audit.result(
            significance=self._settings.significance,
            accusation_significance=self._settings.accusation_significance,
            guarantee=guarantee,
        )


def _audit_of(plan: TrainingPlan, settings: WhiteBox, setup: Setup) -> WhiteBoxAudit:
    return WhiteBoxAudit(
        noise_multiplier=plan.noise_multiplier,
        sampling_prob=plan.sampling_prob,
        steps=plan.steps,
        clip_norm=plan.clip_norm,
        delta=plan.delta,
        relation=plan.relation,
        num_canaries=settings.num_canaries,
        step_event=plan.step_event,
        rows_per_canary=_ROWS_OF_A_PERSON if plan.unit == "person" else 1,
        rng=setup.rng,
    )


def _check_auditable(plan: TrainingPlan) -> None:
    reasons = {
        "a plan without privacy claims nothing that an audit could test": not plan.private,
        "correlated noise (sampling 'ordered') cannot be audited yet": plan.sampling == "ordered",
        "per_layer clipping cannot be audited: one more layer would change every layer's share": (
            plan.clipping == "per_layer"
        ),
    }
    for reason, holds in reasons.items():
        if holds:
            raise InvalidValue(f"{reason}.")
