"""The page in a real browser: nothing wider than the screen, and no requests."""

import json
import re
import shutil
import subprocess

import pytest
from synthetic_run import RATES, write_run

from robogen.report import build_report

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

pytestmark = pytest.mark.skipif(
    BROWSER is None,
    reason="no Chromium on PATH; install it (apt-get install chromium) to measure the page",
)

# Measured from inside, in a frame as wide as the device, and told to the page around it.
PROBE = """
<script>
addEventListener("load", () => {
  const wide = [...document.querySelectorAll("header *, main *, footer *")].filter(
    (e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, pre, svg"));
  const style = getComputedStyle(document.body);
  parent.postMessage({
    scroll: document.documentElement.scrollWidth,
    inner: innerWidth,
    wide: wide.map((e) => e.tagName + "." + e.className).slice(0, 5),
    images: [...document.images].every((e) => e.complete && e.naturalWidth > 0),
    requests: performance.getEntriesByType("resource").filter(
      (e) => !e.name.startsWith("data:")).map((e) => e.name),
    paper: style.backgroundColor,
    small: [...document.querySelectorAll("main *")].filter(
      (e) => e.textContent.trim() && parseFloat(getComputedStyle(e).fontSize) < 11).length,
  }, "*");
});
</script></body>"""

FRAME = """<!doctype html><meta name="color-scheme" content="light dark">
<iframe src="page.html" width="{width}" height="900" style="border:0"></iframe><pre></pre>
<script>onmessage = (e) => document.querySelector("pre").textContent = JSON.stringify(e.data)
</script>"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    base = tmp_path_factory.mktemp("runs")
    many = write_run(
        base / "a_study_with_quite_a_long_name",
        scenes=("pick", "drawer"),
        policies=("bc", "openvla_7b_finetuned_on_our_robot"),
        rates={**RATES, "a_factor_with_a_name_that_is_longer_than_a_telephone_is_wide": 0.5},
        episodes=12,
        error_rate=0.1,
        unreached=("light_intensity",),
    )
    floor = write_run(base / "floor", rates=dict.fromkeys(RATES, 0.0), episodes=8)
    return {"many": build_report([many]).html(), "floor": build_report([floor]).html()}


def measure(html, tmp_path, width, scheme):
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html)
    (tmp_path / "page.html").write_text(text.replace("</body>", PROBE), encoding="utf-8")
    (tmp_path / "frame.html").write_text(FRAME.format(width=width), encoding="utf-8")
    result = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--virtual-time-budget=5000",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=1400,1000",
            f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
            "--dump-dom",
            (tmp_path / "frame.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.search(r"<pre>(\{.*?\})</pre>", result.stdout, re.DOTALL)
    assert found, result.stderr[-2000:]
    return json.loads(found[1])


@pytest.mark.parametrize("name", ["many", "floor"])
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1280, "light")])
def test_page_fits_the_screen(pages, tmp_path, name, width, scheme):
    found = measure(pages[name], tmp_path, width, scheme)
    assert found["inner"] == width
    assert found["scroll"] <= width
    assert found["wide"] == []
    assert found["images"]
    assert found["requests"] == []
    assert found["small"] == 0
    lightness = sum(map(int, re.findall(r"\d+", found["paper"])[:3])) / 3
    assert lightness > 200 if scheme == "light" else lightness < 60
