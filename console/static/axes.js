// Axes for the curves: a scale with ticks, a line for each, and minutes below. p99 has one tick for each power of ten.
// page.js calls it after each curve that it has drawn.
"use strict";

{ // names of its own
  const STEPS = [1, 2, 2.5, 5, 10];
  const MOST_TICKS = 4;
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

  const POWERS = [1, 10, 100, 1000, 10000];

  // Multiples of a step that reads well, up to the top of the curve.
  function ticks(top) {
    const size = 10 ** Math.floor(Math.log10(top / MOST_TICKS));
    const step = size * STEPS.find((each) => (size * each * (MOST_TICKS + 0.99)) >= top);
    return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => i * step);
  }

  function scaleText(value, isTime) {
    if (!isTime) return compact.format(value);
    return value >= 1000 ? `${value / 1000} s` : `${value} ms`;
  }

  function label(text, name, share) {
    const node = document.createElement("span");
    node.textContent = text;
    node.style.setProperty(name, `${(100 * share).toFixed(2)}%`);
    return node;
  }

  function axis(figure, kind) {
    const found = figure.querySelector(`.${kind}`);
    if (found) return found;
    const made = document.createElement("div");
    made.className = kind;
    made.setAttribute("aria-hidden", "true");
    figure.append(made);
    return made;
  }

  // `y` turns a value into a height of the curve's own 90 units.
  window.drawAxes = function drawAxes(svg, top, y, seconds) {
    const figure = svg.closest(".figure");
    const isTime = svg.classList.contains("p99-spark");
    const marks = isTime ? POWERS : ticks(top);
    let grid = svg.querySelector(".grid");
    if (!grid) {
      grid = document.createElementNS("http://www.w3.org/2000/svg", "path");
      grid.setAttribute("class", "grid");
      svg.prepend(grid);
      const minutes = Math.round(seconds / 60);
      const times = Array.from({ length: minutes + 1 }, (_, i) => {
        const ago = minutes - i;
        const text = i ? `${ago}` : `${ago} min ago`; // the others are numbers: all words would not fit
        return label(ago ? text : "now", "left", i / minutes);
      });
      axis(figure, "time-axis").replaceChildren(...times);
    }
    grid.setAttribute("d", marks.map((value) => `M0 ${y(value).toFixed(1)}H600`).join(""));
    const shown = marks.map((value) => scaleText(value, isTime));
    const scale = axis(figure, "y-axis");
    if (scale.dataset.shown === shown.join() + top) return;
    scale.dataset.shown = shown.join() + top;
    scale.replaceChildren(...marks.map((value, i) => label(shown[i], "top", y(value) / 90)));
  };
}
