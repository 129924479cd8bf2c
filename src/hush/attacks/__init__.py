"""Attacks: what a model tells about the rows it was trained on, and what a release tells about people."""

from hush.attacks.exposure import Exposure as Exposure
from hush.attacks.exposure import exposure as exposure
from hush.attacks.exposure import exposure_of as exposure_of
from hush.attacks.extract import Extraction as Extraction
from hush.attacks.extract import PrefixExtraction as PrefixExtraction
from hush.attacks.extract import extract as extract
from hush.attacks.extract import extract_from_prefixes as extract_from_prefixes
from hush.attacks.groups import GroupReport as GroupReport
from hush.attacks.groups import group_report as group_report
from hush.attacks.language import log_perplexity as log_perplexity
from hush.attacks.link import NO_MATCH as NO_MATCH
from hush.attacks.link import Linkage as Linkage
from hush.attacks.link import Ratings as Ratings
from hush.attacks.link import known_ratings as known_ratings
from hush.attacks.link import link_records as link_records
from hush.attacks.lira import lira as lira
from hush.attacks.loss_threshold import loss_threshold as loss_threshold
from hush.attacks.plots import draw_curves as draw_curves
from hush.attacks.rates import Rate as Rate
from hush.attacks.result import AttackResult as AttackResult
from hush.attacks.rmia import rmia as rmia
from hush.attacks.shadow_models import shadow_models as shadow_models
from hush.attacks.shadows import Shadows as Shadows
from hush.attacks.shadows import train_shadows as train_shadows
from hush.attacks.shadows import train_shadows_with as train_shadows_with
from hush.ensembles import Recipe as Recipe

__all__ = [
    "NO_MATCH",
    "AttackResult",
    "Exposure",
    "Extraction",
    "GroupReport",
    "Linkage",
    "PrefixExtraction",
    "Rate",
    "Ratings",
    "Recipe",
    "Shadows",
    "draw_curves",
    "exposure",
    "exposure_of",
    "extract",
    "extract_from_prefixes",
    "group_report",
    "known_ratings",
    "link_records",
    "lira",
    "log_perplexity",
    "loss_threshold",
    "rmia",
    "shadow_models",
    "train_shadows",
    "train_shadows_with",
]
