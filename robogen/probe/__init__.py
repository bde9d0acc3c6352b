"""Does a policy's every convention fit? Found out by experiment, before the first episode."""

from robogen.probe.agreement import Agreement, Finding, Verdict
from robogen.probe.drive import Driven
from robogen.probe.numbers import NumberCheck
from robogen.probe.run import ProbeConfig, ProbeResult, probe

__all__ = [
    "Agreement",
    "Driven",
    "Finding",
    "NumberCheck",
    "ProbeConfig",
    "ProbeResult",
    "Verdict",
    "probe",
]
