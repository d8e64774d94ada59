"""The page in a real browser: it works by keyboard alone, and everybody can read it."""

import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.app.servicekit import eventually, http
from tests.console.scenekit import NAME, ControlledScene

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.whole,
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER),
        reason="no chromium with chromedriver on this machine (Debian: apt install chromium-driver)",
    ),
]
MOST_TABS = 60


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlledScene]:
    """A scene without a story, so that all that happens comes from the keyboard."""
    with ControlledScene(tmp_path_factory.mktemp("page"), CONTROL_STORY="off", CONTROL_KEYS="20000") as made:
        made.until(lambda state: state["free"] and state["up"])
        yield made


class Browser:
    """A headless browser on the page: reads it by scripts, acts by key presses."""

    def __init__(self, base: str, width: int = 1400) -> None:
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver: Any = webdriver.Chrome(options, webdriver.ChromeService(str(DRIVER)))
        self.driver.set_window_size(width, 1000)
        self.driver.get(base + "/")
        eventually(lambda: self.script("return !!document.querySelector('.server')"))

    def script(self, source: str, *arguments: Any) -> Any:
        """Run a script in the page and return its result."""
        return self.driver.execute_script(source, *arguments)

    def keys(self, *keys: str) -> None:
        """Press keys; they go wherever the focus is."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def focused(self) -> str:
        """The id of the element that has the focus."""
        return str(self.script("return document.activeElement.id"))

    def tab_to(self, identity: str) -> None:
        """Press the tab key until this element has the focus."""
        from selenium.webdriver.common.keys import Keys

        for _ in range(MOST_TABS):
            if self.focused() == identity:
                return
            self.keys(Keys.TAB)
        raise AssertionError(f"{identity} cannot be reached with the tab key")

    def text(self, selector: str) -> str:
        """The visible text of the first element that matches the selector."""
        return str(self.script("return document.querySelector(arguments[0]).innerText", selector))

    def pressed(self) -> str:
        """The strategy whose button is pressed."""
        return str(self.script("return document.querySelector('[aria-pressed=true]')?.textContent ?? ''"))

    def complaints(self) -> list[str]:
        """The errors and warnings in the browser's console."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture
def new_browser(scene: ControlledScene) -> Iterator[Callable[..., Browser]]:
    """Return a function that opens the page in a new browser."""
    made: list[Browser] = []

    def make(width: int = 1400) -> Browser:
        made.append(Browser(scene.base, width))
        return made[-1]

    yield make
    for browser in made:
        browser.driver.quit()


@pytest.fixture
def browser(new_browser: Callable[..., Browser]) -> Browser:
    """The page in a browser."""
    return new_browser()


def has_strategy(strategy: str, state: dict[str, Any]) -> bool:
    """True if the server's state has this strategy."""
    return bool(state["strategy"] == strategy)


def is_pressed(browser: Browser, strategy: str) -> bool:
    """True if the page shows this strategy's button as pressed."""
    return browser.pressed() == strategy


def test_strategy_by_keyboard(scene: ControlledScene, browser: Browser) -> None:
    """Tab and Enter switch the strategy; the button says it is pressed, the page says what was done."""
    from selenium.webdriver.common.keys import Keys

    for strategy, key in (("index", Keys.ENTER), ("scan", Keys.SPACE)):
        browser.tab_to(f"{NAME}-{strategy}")
        browser.keys(key)
        scene.until(partial(has_strategy, strategy))
        eventually(partial(is_pressed, browser, strategy))
        assert browser.text("#said").startswith(f"{NAME}: Strategy is now {strategy};")
        assert browser.focused() == f"{NAME}-{strategy}"  # polling must not take the focus away
        time.sleep(1.5)
        assert browser.focused() == f"{NAME}-{strategy}"


def test_growth_by_keyboard(scene: ControlledScene, browser: Browser) -> None:
    """One button starts and stops growth, and its label always says what it will do."""
    from selenium.webdriver.common.keys import Keys

    growth = f"#{NAME}-growth"
    eventually(lambda: browser.text(growth) == "Start growth")
    browser.tab_to(f"{NAME}-growth")
    browser.keys(Keys.ENTER)
    scene.until(lambda state: state["growth"] and state["keys"] > 0)
    eventually(lambda: browser.text(growth) == "Stop growth")
    eventually(lambda: int(browser.text(".keys").replace(",", "")) > 0)
    browser.keys(Keys.ENTER)
    scene.until(lambda state: not state["growth"])
    eventually(lambda: browser.text(growth) == "Start growth")


def test_rate_by_keyboard(scene: ControlledScene, browser: Browser) -> None:
    """A number and Enter change the rate; words do not, and the page says what is wanted."""
    from selenium.webdriver.common.keys import Keys

    browser.tab_to(f"{NAME}-rate")
    browser.keys("2.5", Keys.ENTER)
    scene.until(lambda state: state["events_per_second"] == 2.5)
    eventually(lambda: browser.text(".asked") == "2.50")
    assert http("GET", f"http://127.0.0.1:{scene.locust_port}/load").json["events_per_second"] == 2.5
    browser.keys("many", Keys.ENTER)
    eventually(lambda: "number" in browser.text("#said"))
    browser.keys(Keys.BACKSPACE * 4, "-1", Keys.ENTER)
    eventually(lambda: "from 0 to" in browser.text("#said"))
    assert scene.state()["events_per_second"] == 2.5


def test_stop_by_keyboard(scene: ControlledScene, browser: Browser) -> None:
    """Everything can be stopped from the top of the page."""
    from selenium.webdriver.common.keys import Keys

    scene.act("rate", events_per_second=1)
    browser.tab_to("stop")
    browser.keys(Keys.ENTER)
    scene.until(lambda state: state["events_per_second"] == 0)
    eventually(lambda: "Everything stops" in browser.text("#said"))


def test_restart_by_keyboard(scene: ControlledScene, browser: Browser) -> None:
    """The page reports a restart while it lasts, and recovers by itself."""
    from selenium.webdriver.common.keys import Keys

    before = scene.server.restarts
    browser.tab_to(f"{NAME}-restart")
    browser.keys(Keys.ENTER)
    eventually(lambda: "Restarting" in browser.text(".status") or scene.server.restarts > before)
    eventually(lambda: scene.server.restarts > before)
    eventually(lambda: "Restarting" not in browser.text(".status"))
    assert browser.script("return document.querySelector('.server').dataset.mood") == "well"


def test_every_control_has_a_name_and_a_size(browser: Browser) -> None:
    """Everything that takes the focus has a name for screen readers, and buttons are large enough to hit (24 px)."""
    unnamed = browser.script("""
        return [...document.querySelectorAll('button, input, a')].filter(node =>
          node.checkVisibility() && !(node.innerText.trim() || node.labels?.length || node.ariaLabel)).length""")
    small = browser.script("""
        return [...document.querySelectorAll('button, input')].filter(node => {
          if (!node.checkVisibility()) return false;
          const box = node.getBoundingClientRect(); return box.height < 24 || box.width < 24 }).length""")
    assert (unnamed, small) == (0, 0)
    assert browser.script("return document.querySelectorAll('[aria-live=polite]').length") >= 2
    assert browser.script("return document.documentElement.lang") == "en"


CONTRAST = """
const parse = (text) => text.match(/[0-9.]+/g).map(Number);
const linear = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
const behind = (node) => {
  for (; node; node = node.parentElement) {
    const colour = parse(getComputedStyle(node).backgroundColor);
    if (colour.length < 4 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
const found = [];
for (const node of document.querySelectorAll('body *')) {
  const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  if (!own || !node.checkVisibility()) continue;
  const [a, b] = [light(parse(getComputedStyle(node).color)), light(behind(node))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  found.push([ratio, node.className || node.tagName, node.textContent.trim().slice(0, 30)]);
}
return found.sort((x, y) => x[0] - y[0]);
"""


def test_contrast(browser: Browser) -> None:
    """Every text has a contrast of at least 4.5 to its background (WCAG 2.2, 1.4.3), in each state of its button."""
    found = browser.script(CONTRAST)
    assert len(found) > 25
    assert found[0][0] >= 4.5, found[:3]
    browser.script(
        "document.querySelectorAll('button').forEach(b => b.setAttribute('aria-disabled', 'true'))"
    )
    found = browser.script(CONTRAST)
    assert found[0][0] >= 4.5, found[:3]


@pytest.mark.parametrize("width", [1024, 1400, 1920])
def test_nothing_is_cut_off(new_browser: Callable[..., Browser], width: int) -> None:
    """At the width of a projector or a laptop nothing must be scrolled sideways, and the figures are large."""
    browser = new_browser(width)
    assert browser.script(
        "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    assert (
        browser.script("return parseFloat(getComputedStyle(document.querySelector('.p99')).fontSize)") >= 48
    )


def test_console_is_silent(browser: Browser) -> None:
    """The page works without an error or a refused load in the browser's console, and asks no other host."""
    time.sleep(2.5)
    assert browser.complaints() == []
    hosts = browser.script(
        "return [...new Set(performance.getEntriesByType('resource').map(e => new URL(e.name).host))]"
    )
    assert hosts == [browser.script("return location.host")]


def test_lost_page_says_so(tmp_path: Path) -> None:
    """When the console is gone, the page says that it gets no answer, so that its old numbers are not taken for new."""
    with ControlledScene(tmp_path, CONTROL_STORY="off") as scene:
        scene.until(lambda state: state["free"])
        browser = Browser(scene.base)
        try:
            scene.processes["control"].terminate()
            eventually(lambda: "does not answer" in browser.text("#said"))
        finally:
            browser.driver.quit()
