"""Demonstrations on disk: what an oracle saw and did, one file per episode."""

from robogen.datasets.demos import DemoDataset as DemoDataset
from robogen.datasets.demos import DemoWriter as DemoWriter
from robogen.datasets.schema import DemoEpisode as DemoEpisode
from robogen.datasets.schema import DemoMeta as DemoMeta
from robogen.datasets.schema import EpisodeInfo as EpisodeInfo
