"""The shipped bc behind one wrong convention, as a policy file can name it."""

from dataclasses import replace

from robogen.paths import config_root
from robogen.policies.bc import BCPolicy

PICK = config_root() / "policies" / "bc" / "pick.safetensors"


class UpsideDown(BCPolicy):
    """Declares that it wants frames upside down, which it does not."""

    def __init__(self):
        super().__init__(checkpoint=PICK)
        observation = replace(self.spec.observation, orientation="flipped")
        self.spec = replace(self.spec, observation=observation)
