"""robogen: evaluate robot manipulation policies in simulation, factor by factor."""
