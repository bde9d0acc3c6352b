from hypothesis import settings

# No deadline: a shared machine is slow at times, and that is not a failure.
settings.register_profile("statistics", deadline=None, max_examples=60)
settings.load_profile("statistics")
