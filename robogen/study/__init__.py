"""Studies: scenes x policies x conditions x episodes, run, resumed and recorded."""
