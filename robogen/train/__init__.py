"""Training of the built-in imitation baseline."""

from robogen.train.bc import Progress as Progress
from robogen.train.bc import TrainResult as TrainResult
from robogen.train.bc import train_bc as train_bc
from robogen.train.data import DemoSource as DemoSource
from robogen.train.recipe import BCRecipe as BCRecipe
from robogen.train.validation import Validation as Validation
