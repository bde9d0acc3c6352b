"""What a study leaves on disk: one row per episode, and everything needed to read it again."""

from robogen.records.export import export_parquet
from robogen.records.manifest import fingerprint_difference, read_manifest, write_manifest
from robogen.records.reader import Attempt, Records, read_records
from robogen.records.schema import SCHEMA_VERSION, EpisodeKey, EpisodeRecord, Status, Telemetry
from robogen.records.store import RecordStore

__all__ = [
    "SCHEMA_VERSION",
    "Attempt",
    "EpisodeKey",
    "EpisodeRecord",
    "RecordStore",
    "Records",
    "Status",
    "Telemetry",
    "export_parquet",
    "fingerprint_difference",
    "read_manifest",
    "read_records",
    "write_manifest",
]
