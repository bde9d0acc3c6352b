"""Statistics on arrays: closed forms and exact tests, no files, no simulator."""

from robogen.stats.paired import PairedCounts, holm, mcnemar_exact, paired_difference, phi
from robogen.stats.power import drop_power, episodes_needed, smallest_detectable_drop
from robogen.stats.proportions import (
    Estimate,
    Interval,
    bounded_mean,
    clopper_pearson,
    jeffreys,
    mean_t,
    rate,
    wilson,
)
from robogen.stats.ranking import Ranking, RankSet, rank_sets
from robogen.stats.recipes import RecipeDifference, SeedSpread, recipe_difference, seeds_needed
from robogen.stats.summary import (
    BehaviourChange,
    ConditionSummary,
    GroupSummary,
    NoiseFloor,
    StudySummary,
    summarise,
)
from robogen.stats.table import NOMINAL, EpisodeTable, Reach
from robogen.stats.verdicts import FLOOR_CAUSES, Verdict, at_floor, verdict

__all__ = [
    "FLOOR_CAUSES",
    "NOMINAL",
    "BehaviourChange",
    "ConditionSummary",
    "EpisodeTable",
    "Estimate",
    "GroupSummary",
    "Interval",
    "NoiseFloor",
    "PairedCounts",
    "RankSet",
    "Ranking",
    "Reach",
    "RecipeDifference",
    "SeedSpread",
    "StudySummary",
    "Verdict",
    "at_floor",
    "bounded_mean",
    "clopper_pearson",
    "drop_power",
    "episodes_needed",
    "holm",
    "jeffreys",
    "mcnemar_exact",
    "mean_t",
    "paired_difference",
    "phi",
    "rank_sets",
    "rate",
    "recipe_difference",
    "seeds_needed",
    "smallest_detectable_drop",
    "summarise",
    "verdict",
    "wilson",
]
