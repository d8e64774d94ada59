// Polls /api/state every second and shows it; buttons POST. Nodes are made once and then only changed, so that the
// focus of the keyboard stays where it is and a screen reader hears what is new and nothing else.
"use strict";

const CURVE_SECONDS = 300;
const cards = new Map();
const FIRST = ["scan", "index"]; // the strategies that the story is about; the others stand under "More strategies"
const LEAST_MS = 0.1, MOST_MS = 10000; // p99 is drawn on a logarithmic axis: what is healthy stays visible
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const $ = (selector, root = document) => root.querySelector(selector);

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function digits(value) {
  return value >= 100 ? whole.format(value) : value.toFixed(value >= 10 ? 1 : 2);
}

// "Redis 8.10.2" beside the heading "Redis" says it twice.
function short(product, name) {
  const [first, ...rest] = product.split(" ");
  return first.toLowerCase() === name ? rest.join(" ") : product;
}

function latency(ms, beyond) {
  if (ms === null) return ["–", "ms"];
  const more = beyond ? "> " : "";
  return ms >= 1000 ? [more + (ms / 1000).toFixed(1), "s"] : [more + digits(ms), "ms"];
}

function say(text, refused = false) {
  const line = $("#said");
  line.classList.toggle("refused", refused);
  put(line, text);
}

async function send(path, body) {
  try {
    const answer = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    const content = await answer.json();
    if (!answer.ok) return say(content.detail || content.title, true);
    const server = content.server;
    say((server ? `${server.name}: ` : "") + content.said);
    if (server && cards.has(server.name)) cards.get(server.name).show(server);
  } catch {
    say("The control page does not answer. Is the stack running?", true);
  }
}

class Card {
  constructor(server) {
    this.name = server.name;
    this.root = $("#server").content.cloneNode(true).firstElementChild;
    this.curve = [];
    const at = (selector) => $(selector, this.root);
    const id = (part) => `${this.name}-${part}`;
    this.root.id = this.name;
    at("h2").id = id("title");
    this.root.setAttribute("aria-labelledby", id("title"));
    put(at(".name"), this.name);
    this.choices = new Map();
    at(".growth").id = id("growth");
    at(".growth-label").id = id("growth-label");
    at(".growth").setAttribute("aria-describedby", id("growth-label"));
    at(".restart").id = id("restart");
    at(".late input").id = id("late");
    at(".late").htmlFor = id("late");
    at(".over").id = id("over");
    at(".over-label").id = id("over-label");
    at(".over").setAttribute("aria-describedby", id("over-label"));
    this.does(at(".over"), () => send(this.path("over"), { on: !this.server.over }));
    at(".calibrated").id = id("calibrated");
    this.rate = this.field(".rate:not(.count)", "rate", "a number of events a second", (number) => ({ events_per_second: number }));
    this.count = this.field(".count", "count", "a whole number for COUNT", (number) => ({ scan_count: number }));
    this.does(at(".growth"), () => send(this.path("growth"), { on: !this.server.growth }));
    this.does(at(".restart"), () => send(this.path("restart"), {}));
    this.does(at(".calibrated"), () => {
      this.rate.value = "";
      return send(this.path("rate"), { events_per_second: null });
    });
    if (server.curve) {
      const now = Date.now() / 1000;
      this.curve = server.curve.ago_s.map((ago, i) => [now - ago, server.curve.p99_ms[i], server.curve.keys[i]]);
    }
    $("#servers").append(this.root);
  }

  path(action) {
    return `/api/servers/${this.name}/${action}`;
  }

  // A field with a button that sends its number; returns the field.
  field(selector, action, what, body) {
    const form = $(selector, this.root);
    const input = $("input", form);
    input.id = `${this.name}-${action}`;
    $("label", form).htmlFor = input.id;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const text = input.value.trim().replace(",", ".");
      if (text === "" || !Number.isFinite(Number(text))) return say(`${this.name}: give ${what}.`, true);
      input.value = "";
      send(this.path(action), body(Number(text)));
    });
    return input;
  }

  // The storefront tells which strategies there are, and what each costs.
  offer(strategies) {
    for (const [strategy, costs] of Object.entries(strategies)) {
      if (this.choices.has(strategy)) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.id = `${this.name}-${strategy}`;
      button.textContent = strategy;
      const line = document.createElement("p");
      line.id = `${button.id}-costs`;
      line.textContent = costs;
      button.setAttribute("aria-describedby", line.id);
      const late = $(".late input", this.root);
      this.does(button, () => send(this.path("strategy"), { strategy, late: late.checked }));
      const row = document.createElement("div");
      row.append(button, line);
      $(FIRST.includes(strategy) ? ".choices" : ".more .choices", this.root).append(row);
      this.choices.set(strategy, button);
    }
  }

  // A button that stays in the tab order while it cannot be used: focus must not fall away under the fingers.
  does(button, action) {
    button.addEventListener("click", () => {
      if (button.getAttribute("aria-disabled") !== "true") action();
      else say(`${this.name}: ${this.server.status}`, true);
    });
  }

  show(server) {
    this.server = server;
    const at = (selector) => $(selector, this.root);
    const mood = !server.free || server.restarting ? "busy" : server.up ? "well" : "down";
    this.root.dataset.mood = mood;
    this.root.dataset.strategy = server.strategy || "";
    put(at(".product"), short(server.product, this.name));
    put(at(".status .text"), server.status);
    const [p99, unit] = latency(server.p99_ms, server.p99_beyond);
    put(at(".p99"), p99);
    put(at(".p99-unit"), unit);
    put(at(".keys"), server.keys === null ? "–" : whole.format(server.keys));
    put(at(".in-flight"), server.events_in_flight === null ? "–" : whole.format(server.events_in_flight));
    put(at(".asked"), digits(server.events_per_second));
    const done = server.events_finished_per_second;
    put(at(".finished"), done === null ? "–" : digits(done));
    put(at(".plan"), server.plan);
    put(at(".knee-text"), server.knee_keys === null ? "" : `With these events the server saturates at ${whole.format(Math.round(server.knee_keys / 1000) * 1000)} keys`);
    put(at(".growth"), server.growth ? "Stop growth" : "Start growth");
    put(at(".over"), server.over ? "End it now" : "Over the edge for a minute");
    this.offer(server.strategies);
    for (const [strategy, button] of this.choices) {
      button.setAttribute("aria-pressed", String(strategy === server.strategy));
      button.setAttribute("aria-disabled", String(!server.free));
    }
    for (const button of this.root.querySelectorAll(".row button")) button.setAttribute("aria-disabled", String(!server.free));
    if (server.calibrated_events_per_second === null) at(".calibrated").setAttribute("aria-disabled", "true");
    this.rate.placeholder = server.events_planned_per_second ? String(server.events_planned_per_second) : "0";
    this.count.placeholder = String(server.scan_count);
    this.draw();
  }

  add(server) {
    const now = Date.now() / 1000;
    this.curve.push([now, server.p99_ms, server.keys ?? 0]);
    while (this.curve.length && this.curve[0][0] < now - CURVE_SECONDS) this.curve.shift();
  }

  draw() {
    const at = (selector) => $(selector, this.root);
    const p99 = this.curve.filter((point) => point[1] !== null).map((point) => [point[0], point[1]]);
    spark(at(".p99-spark"), p99, (ms) => 86 * Math.log10(Math.max(ms, LEAST_MS) / LEAST_MS) / Math.log10(MOST_MS / LEAST_MS), MOST_MS);
    const highest = p99.reduce((best, point) => (best && best[1] > point[1] ? best : point), null);
    const minutes = highest && Math.round((Date.now() / 1000 - highest[0]) / 60);
    put(at(".p99-top"), highest ? `highest ${latency(highest[1], false).join(" ")}, ${minutes ? `${minutes} min ago` : "now"}` : "");
    const knee = this.server.knee_keys;
    const top = Math.max(1.1 * Number(document.body.dataset.keys), ...this.curve.map((point) => point[2]));
    spark(at(".keys-spark"), this.curve.map((point) => [point[0], point[2]]), (keys) => (86 * keys) / top, top);
    const y = knee === null || knee > top ? null : (90 - (86 * knee) / top).toFixed(1);
    at(".knee").setAttribute("d", y === null ? "" : `M0 ${y}H600`);
  }
}

// `height` turns a value into units above the line at the bottom; `top` is the largest value that fits.
function spark(svg, points, height, top) {
  const now = Date.now() / 1000;
  const spots = points.map(([t, value]) => {
    const x = 600 - (600 * (now - t)) / CURVE_SECONDS;
    return `${x.toFixed(1)} ${Math.max(0, 90 - height(value)).toFixed(1)}`;
  });
  const line = spots.length > 1 ? `M${spots.join("L")}` : "";
  $(".line", svg).setAttribute("d", line);
  const [first, last] = [spots[0], spots[spots.length - 1]].map((spot) => (spot || "").split(" ")[0]);
  $(".area", svg).setAttribute("d", line && `${line}L${last} 90L${first} 90Z`);
  drawAxes(svg, top, (value) => 90 - height(value), CURVE_SECONDS);
}

let lost = false;

async function poll(path) {
  try {
    const answer = await fetch(path);
    const state = await answer.json();
    for (const server of state.servers) {
      let card = cards.get(server.name);
      if (!card) cards.set(server.name, (card = new Card(server)));
      card.add(server);
      card.show(server);
    }
    $("#nobody").hidden = cards.size > 0;
    $("#servers").setAttribute("aria-busy", String(cards.size === 0));
    if (lost) say("The control page answers again.");
    lost = false;
    return true;
  } catch {
    if (!lost) say("The control page does not answer. Is the stack running?", true);
    lost = true;
    return false;
  }
}

async function run() {
  let begun = false;
  for (;;) {
    begun = (await poll(begun ? "/api/state" : "/api/state?curves=1")) || begun;
    await new Promise((resume) => setTimeout(resume, 1000));
  }
}

$("#start").addEventListener("click", () => send("/api/start", {}));
$("#stop").addEventListener("click", () => send("/api/stop", {}));
run();
