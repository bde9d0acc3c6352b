import hashlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robogen.policies.text import features, normalise


@given(st.text(max_size=80))
def test_features_have_length_one_or_none(text):
    vector = features(text)
    assert vector.shape == (256,)
    assert vector.dtype == np.float32
    norm = float(np.linalg.norm(vector))
    assert norm == pytest.approx(1.0, abs=1e-5) or norm == 0.0
    assert (norm == 0.0) <= (normalise(text) == "" or len(normalise(text)) > 0)


@given(st.text(max_size=80))
def test_normalising_twice_changes_nothing(text):
    assert normalise(normalise(text)) == normalise(text)


def test_case_and_punctuation_do_not_count():
    assert normalise("  Lift, the RED_cube!\n") == "lift the red cube"
    np.testing.assert_array_equal(features("Lift the red cube."), features("lift the  red cube"))


def test_empty_instructions_are_zero():
    assert not features("").any()
    assert not features(" ?! ").any()


def test_one_word_is_told_apart_and_wordings_stay_close():
    red, green = features("pick up the red cube"), features("pick up the green cube")
    reworded, other = features("please pick up the red cube"), features("open the drawer")
    assert float(red @ green) < 0.9
    assert float(red @ reworded) > float(red @ green)
    assert float(red @ green) > float(red @ other)


def test_misspelling_keeps_most_of_a_word():
    assert float(features("drawer") @ features("drawwer")) > float(
        features("drawer") @ features("cabinet")
    )


def test_the_size_is_a_choice():
    assert features("lift the cube", size=64).shape == (64,)


def test_features_are_the_same_in_every_process():
    code = (
        "import hashlib; from robogen.policies.text import features;"
        "print(hashlib.sha256(features('lift the red cube').tobytes()).hexdigest())"
    )
    here = hashlib.sha256(features("lift the red cube").tobytes()).hexdigest()
    environment = {"PYTHONHASHSEED": "7"}
    there = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert there.stdout.strip() == here
