import pytest

from robogen.report import words
from robogen.stats import Estimate, Interval


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.004, "0.4"), (0.5, "50"), (0.954, "95"), (0.998, "99.8"), (1, "100")],
)
def test_rounding_never_claims_all_or_nothing(value, text):
    assert words.percent(value) == f"{text}\N{NO-BREAK SPACE}%"


def test_changes_have_true_minus_signs_and_nothing_is_a_dash():
    assert words.points(-0.621) == "−62"
    assert words.points(0.05) == "+5"
    assert words.points(-0.001) == "0"
    assert words.points_interval(Interval(-0.5, 0.1)).split() == ["[−50,", "+10]"]
    for text in (words.rate_text, words.change_text, words.score_text, words.measured_text):
        assert text(None) == "–"


def test_measurements_show_two_digits_of_their_uncertainty():
    assert words.measured_text(Estimate(0.1234, 0.0, 0.2468)) == "+0.12 [0.00, +0.25]"
    assert words.measured_text(Estimate(-12.34, -20, -4.7)) == "−12.3 [−20.0, −4.7]"
    assert words.measured_text(Estimate(1234.5, 100, 2000)) == "+1234 [+100, +2000]"
    assert words.measured_text(Estimate(0, 0, 0)) == "0.000 [0.000, 0.000]"
    assert words.significant(0.04171) == "0.0417"
    assert words.significant(12345.6) == "12346"
    assert words.significant(-2.5e-7) == "−2.50e−07"


def test_small_words():
    assert words.count(1, "pair") == "1 pair"
    assert words.count(2000, "episode") == "2\N{NARROW NO-BREAK SPACE}000 episodes"
    assert words.listed([]) == ""
    assert words.listed(["a", "b", "c"]) == "a, b and c"
    assert words.measurement_name("peak_force_n") == "peak force [N]"
    assert words.measurement_name("unintended_contacts") == "unintended contacts"
    assert words.p_text(0.00001).endswith("0.001")
    assert words.p_text(0.0312) == "0.031"
