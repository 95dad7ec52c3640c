"use strict";
(() => {
  const EVERY = 1000; // milliseconds between two looks at the service
  const byId = (id) => document.getElementById(id);
  const chosen = { run: null, domain: null };
  let token = sessionStorage.getItem("unseen-token");
  let seen = "";

  // ---- theme
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const showTheme = () => byId("theme").setAttribute("aria-pressed", String(dark()));
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    showTheme();
  });
  system.addEventListener("change", showTheme);
  showTheme();

  // ---- elements; every text is set as text, never as HTML
  const make = (name, attributes = {}, ...content) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...content.filter((item) => item !== null));
    return element;
  };
  const draw = (name, attributes = {}, ...content) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...content);
    return element;
  };
  const short = (value, digits = 3) => (value === null || value === undefined ? "–" : Number(value.toPrecision(digits)).toString());
  const percent = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(0)} %`);
  const DAY = 86400;
  const clock = (time, now = Date.now() / 1000) => {
    const at = new Date(1000 * time);
    const hours = at.toLocaleTimeString("en-GB");
    return now - time < 0.8 * DAY ? hours : `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })}, ${hours.slice(0, 5)}`;
  };
  const ago = (seconds) => {
    if (seconds < 1.5) return "now";
    if (seconds < 90) return `${Math.round(seconds)} s ago`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
    return seconds < 2 * DAY ? `${Math.round(seconds / 3600)} h ago` : `${Math.round(seconds / DAY)} days ago`;
  };
  const count = (n, one) => `${n.toLocaleString("en-GB")} ${one}${n === 1 ? "" : "s"}`;

  // ---- charts
  const SIZE = { width: 720, height: 240, left: 46, right: 12, top: 10, bottom: 24 };
  const ticks = (low, high) => {
    const step = 10 ** Math.floor(Math.log10((high - low) / 2 || 1));
    const fit = [1, 2, 5, 10].map((k) => k * step).find((s) => (high - low) / s <= 4.5);
    const found = [];
    for (let value = Math.ceil(low / fit) * fit; value <= high + 1e-9; value += fit) found.push(value);
    return found;
  };
  const frame = (place, label, xs, low, high, format) => {
    const { width, height, left, right, top, bottom } = { ...SIZE, width: Math.max(260, place.clientWidth || 720) };
    const x = (i) => left + ((width - left - right) * i) / Math.max(1, xs.length - 1);
    const y = (v) => top + (height - top - bottom) * (1 - (v - low) / (high - low));
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label });
    for (const value of ticks(low, high)) {
      svg.append(
        draw("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
        draw("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, format(value)),
      );
    }
    const places = xs.length > 1 ? [0, Math.floor((xs.length - 1) / 2), xs.length - 1] : [0];
    const once = places.filter((i, k) => places.findIndex((j) => clock(xs[j]) === clock(xs[i])) === k);
    once.forEach((i) => {
      const anchor = i === 0 ? "start" : i === xs.length - 1 ? "end" : "middle";
      svg.append(draw("text", { x: x(i), y: height - 6, "text-anchor": anchor }, clock(xs[i])));
    });
    return { svg, x, y, top, left, right: width - right };
  };
  const line = (values, x, y) =>
    values.map((v, i) => `${i && values[i - 1] !== null ? "L" : "M"}${x(i).toFixed(1)},${y(v).toFixed(1)}`).join("");
  const placeholder = (place, text) => place.replaceChildren(make("p", { class: "empty" }, text));

  const scoreChart = (place, history) => {
    if (!history.length) return placeholder(place, "No window is full yet.");
    const column = (name) => history.map((h) => h[name]);
    const top = 1.12 * Math.max(...["score", "threshold", "slow_score"].flatMap(column));
    const latest = history[history.length - 1];
    const label = `Score of ${history.length} windows; the last is ${short(latest.score)}, its threshold ${short(latest.threshold)}`;
    const f = frame(place, label, column("time"), 0, top || 1, (value) => short(value));
    const limits = column("threshold");
    const edge = history.length === 1 ? `L${f.right},${f.y(limits[0])}` : "";
    const end = history.length === 1 ? f.right : f.x(history.length - 1);
    f.svg.append(
      draw("path", { class: "beyond", d: `${line(limits, f.x, f.y)}${edge}L${end},${f.top}L${f.left},${f.top}Z` }),
      draw("path", { class: "limit", d: line(limits, f.x, f.y) + edge }),
      draw("path", { class: "slow", d: line(column("slow_score"), f.x, f.y) }),
      draw("path", { class: "score", d: line(column("score"), f.x, f.y) }),
    );
    history.forEach((h, i) => {
      const about = `window ${h.number}, ${clock(h.time)}: ${h.verdict}, score ${short(h.score)} of ${short(h.threshold)}`;
      const small = history.length > 60 && !h.alarm;
      const circle = draw("circle", { class: h.alarm ? "alarm" : "fine", cx: f.x(i), cy: f.y(h.score), r: h.alarm ? 5 : small ? 0 : 3 });
      circle.append(draw("title", {}, about));
      f.svg.append(circle);
    });
    place.replaceChildren(f.svg);
  };

  const accuracyChart = (place, history) => {
    const known = history.filter((h) => h.predicted_accuracy !== null);
    byId("accuracy-now").replaceChildren();
    if (!known.length) {
      return placeholder(place, history.length ? "This run has no accuracy estimator." : "No window is full yet.");
    }
    const column = (name) => known.map((h) => h[name]);
    const latest = known[known.length - 1];
    byId("accuracy-now").append(
      make("strong", {}, percent(latest.predicted_accuracy)),
      ` ${percent(latest.low)} to ${percent(latest.high)}`,
    );
    const low = Math.max(0, Math.min(...column("low"), ...column("source_accuracy")) - 0.05);
    const label = `Predicted accuracy; the last is ${percent(latest.predicted_accuracy)}, from ${percent(latest.low)} to ${percent(latest.high)}`;
    const f = frame(place, label, column("time"), low, 1, percent);
    const lower = column("low").map((v, i) => `L${f.x(i).toFixed(1)},${f.y(v).toFixed(1)}`).reverse();
    f.svg.append(
      draw("path", { class: "band", d: `${line(column("high"), f.x, f.y)}${lower.join("")}Z` }),
      draw("path", { class: "source", d: `M${f.left},${f.y(latest.source_accuracy)}L${f.right},${f.y(latest.source_accuracy)}` }),
      draw("path", { class: "accuracy", d: line(column("predicted_accuracy"), f.x, f.y) }),
    );
    if (known.length <= 60) {
      known.forEach((h, i) => f.svg.append(draw("circle", { class: h.alarm ? "alarm" : "fine", cx: f.x(i), cy: f.y(h.predicted_accuracy), r: h.alarm ? 4.5 : 3 })));
    }
    place.replaceChildren(f.svg);
  };

  const spark = (values, alarm) => {
    const svg = draw("svg", { class: alarm ? "spark alarm" : "spark", viewBox: "0 0 112 26", "aria-hidden": "true" });
    if (!values.length) return svg;
    const top = Math.max(1.6, ...values);
    const x = (i) => 3 + (106 * i) / Math.max(1, values.length - 1);
    const y = (v) => 23 - (20 * v) / top;
    const last = values.length - 1;
    svg.append(
      draw("line", { x1: 0, x2: 112, y1: y(1), y2: y(1) }),
      draw("path", { d: line(values, x, y) }),
      draw("circle", { cx: x(last), cy: y(values[last]), r: 2.6 }),
    );
    return svg;
  };

  // ---- parts of the page
  const showStatus = (state) => {
    const alarming = state.domains.filter((d) => d.alarm);
    const judged = state.domains.filter((d) => d.reading);
    document.body.dataset.state = alarming.length ? "alarm" : judged.length ? "ok" : "waiting";
    const names = alarming.slice(0, 3).map((d) => d.domain).join(", ") + (alarming.length > 3 ? ", …" : "");
    const headline = alarming.length
      ? `${alarming.length === 1 ? "Alarm" : `${alarming.length} alarms`}: ${names}`
      : judged.length
        ? judged.length === 1 ? `${judged[0].domain} looks like the source` : `${judged.length} domains look like the source`
        : "Waiting for a full window of samples";
    document.title = alarming.length ? `⚠ ${headline} – unseen` : `${state.run} – unseen`;
    const about = alarming[0] || state.domains.find((d) => d.domain === state.selected && d.reading) || judged[0];
    const waiting = state.domains[0];
    byId("headline").textContent = headline;
    byId("sentence").textContent = about
      ? `${about.domain}: ${about.reading.sentence}`
      : waiting
        ? `${waiting.domain}: ${waiting.gathered} of ${waiting.window} samples.`
        : "Send samples to POST /predict. A domain is judged when a window of them is full.";
    byId("problem").hidden = !state.problem;
    byId("problem").textContent = state.problem || "";
  };

  const showRuns = (state) => {
    const nav = byId("runs");
    nav.hidden = state.runs.length < 2;
    nav.replaceChildren(...state.runs.map(({ run, alarms }) => {
      const button = make("button", { type: "button", "aria-current": String(run === state.run) }, run);
      if (alarms) button.append(make("span", { class: "count", title: count(alarms, "alarm") }, `⚠ ${alarms}`));
      button.addEventListener("click", () => {
        chosen.run = run;
        chosen.domain = null;
        look();
      });
      return button;
    }));
  };

  const domainRow = (d, state) => {
    const button = make("button", { type: "button", title: d.domain }, d.domain);
    button.addEventListener("click", () => {
      chosen.domain = d.domain;
      look();
    });
    const r = d.reading;
    const verdict = r ? r.verdict : "gathering";
    const ratio = r ? `${short(r.score / Math.max(r.threshold, 1e-12), 2)}×` : "–";
    const accuracy = make("td", { class: "number" }, r ? percent(r.predicted_accuracy) : "–");
    if (r && r.low !== null) accuracy.append(" ", make("small", {}, `${percent(r.low)} to ${percent(r.high)}`));
    const gathered = make("progress", { max: d.window, value: d.gathered, title: `${d.gathered} of ${d.window} samples` });
    return make("tr", { "aria-current": String(d.domain === state.selected) },
      make("th", { scope: "row" }, button),
      make("td", {}, make("span", { class: `pill ${verdict}` }, verdict)),
      make("td", {}, spark(d.spark, d.alarm), ratio),
      accuracy,
      make("td", { class: "number" }, d.samples.toLocaleString("en-GB")),
      make("td", { class: "number" }, `${d.alarms} of ${d.windows}`),
      make("td", {}, gathered),
      make("td", { class: "number" }, ago(state.time - d.last_time)),
    );
  };

  const alarmItem = (a) => make("li", {},
    make("div", { class: "head" },
      make("span", { class: `pill ${a.verdict}` }, a.verdict),
      make("strong", {}, a.domain),
      make("time", {}, a.row > 1 ? `${clock(a.since)} – ${clock(a.time)}` : clock(a.time))),
    make("p", {}, a.row > 1 ? `${a.row} windows in a row. The last: ${a.sentence}` : a.sentence));

  const sample = (input) => {
    if (input.image) return make("img", { src: `data:image/png;base64,${input.image}`, alt: `input of ${input.domain}` });
    if (input.text !== undefined) return make("p", {}, input.text);
    const [low, high] = [Math.min(0, ...input.values), Math.max(0, ...input.values)];
    const scale = 40 / (high - low || 1);
    const svg = draw("svg", { viewBox: `0 0 ${4 * input.values.length} 40`, preserveAspectRatio: "none", role: "img", "aria-label": `numbers of shape ${input.shape.join(" x ")}` });
    svg.append(draw("line", { x1: 0, x2: 4 * input.values.length, y1: high * scale, y2: high * scale, "vector-effect": "non-scaling-stroke" }));
    input.values.forEach((v, i) => svg.append(draw("rect", { x: 4 * i, width: 3, y: (high - Math.max(v, 0)) * scale, height: Math.max(0.6, Math.abs(v) * scale) })));
    return svg;
  };
  const recentItem = (input) => {
    const guess = Array.isArray(input.prediction) ? input.prediction.join(", ") || "none" : String(input.prediction);
    const sure = input.probability === null ? "" : percent(input.probability);
    return make("li", {},
      make("div", { class: "sample" }, sample(input)),
      make("div", { class: "note" },
        make("div", { class: "guess" }, make("strong", { title: guess }, guess), sure),
        make("span", {}, `score ${short(input.score, 2)}`),
        make("span", { title: input.domain }, input.domain)));
  };

  const show = (state) => {
    byId("token-form").hidden = true;
    byId("content").hidden = false;
    showStatus(state);
    showRuns(state);
    byId("selected").textContent = state.selected || "";
    scoreChart(byId("score-chart"), state.history);
    accuracyChart(byId("accuracy-chart"), state.history);
    const focused = document.activeElement && document.activeElement.closest("#domains tr th button")?.title;
    byId("domains").replaceChildren(...state.domains.map((d) => domainRow(d, state)));
    if (focused) byId("domains").querySelectorAll("th button").forEach((b) => b.title === focused && b.focus());
    byId("alarms").replaceChildren(...(state.alarms.length ? state.alarms.map(alarmItem) : [make("li", { class: "empty" }, "None.")]));
    const key = JSON.stringify(state.recent.map((r) => r.number)) + state.run;
    if (key !== seen) {
      seen = key;
      byId("recent").replaceChildren(...state.recent.map(recentItem));
    }
    byId("about").textContent =
      `Run ${state.run}. The score is ${state.score}; of windows of source samples, at most ${short(100 * state.rate)} % exceed a threshold. ` +
      "An input is kept here until newer ones replace it; most are skipped under load.";
  };

  const askForToken = (text) => {
    byId("content").hidden = true;
    byId("token-form").hidden = false;
    byId("token-problem").textContent = text;
    byId("headline").textContent = "A token is needed";
    byId("sentence").textContent = "";
    document.body.dataset.state = "waiting";
  };
  byId("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    token = byId("token").value.trim();
    sessionStorage.setItem("unseen-token", token);
    look();
  });

  // ---- look again and again
  let timer = null;
  const look = async () => {
    clearTimeout(timer);
    const query = new URLSearchParams(Object.entries(chosen).filter(([, value]) => value !== null));
    try {
      const answer = await fetch(`state?${query}`, { headers: token ? { Authorization: `Bearer ${token}` } : {} });
      if (answer.status === 401) {
        askForToken(token ? "This token is wrong." : "");
      } else if (answer.status === 404) {
        chosen.run = null;
      } else if (answer.ok) {
        show(await answer.json());
      } else {
        throw new Error(`status ${answer.status}`);
      }
      byId("live").classList.remove("off");
      byId("live-text").textContent = `live, ${clock(Date.now() / 1000)}`;
    } catch (error) {
      byId("live").classList.add("off");
      byId("live-text").textContent = "no answer from the service";
    }
    timer = setTimeout(look, EVERY);
  };
  look();
})();
