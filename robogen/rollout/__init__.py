"""The only episode loop: scenes step, policies answer, factors stand between."""
