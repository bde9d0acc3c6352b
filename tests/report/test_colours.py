import re

from robogen.report.build import _template


def test_colours_have_enough_contrast():
    """WCAG AA for text, in both schemes, of every text colour on every ground it is used on."""
    css = _template("report.css")
    blocks = css.split("@media")[:2]
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in blocks)
    for colours in (light, {**light, **dark}):
        for text in ("ink", "soft", "breaks", "improves", "none", "few", "limit", "error"):
            for ground in ("paper", "wash"):
                assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        assert contrast(colours["ink"], colours["tint-error"]) >= 4.5


def contrast(first, second):
    def luminance(colour):
        parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)
