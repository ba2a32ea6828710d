// The explorer: draws what minadv computed for every mask of a small network, and steps through its searches.
//
// Numbers come from `window.minadvExplorer`, made when the site was built, or from minadv itself in the page's worker.
// Nothing is computed here but differences of those numbers. A classic script, so that it also runs from file://.
(() => {
  "use strict";
  const data = window.minadvExplorer;
  const root = document.getElementById("explorer");
  if (!data || !root) return;
  const here = document.currentScript ? document.currentScript.src : document.baseURI;

  const H = data.network.U.length, MASKS = 2 ** H, C = data.network.c.length, T = data.network.examples[0].x.length;
  const NAMES = { js: "JS", kl: "KL(base ‖ perturbed)", rkl: "KL(perturbed ‖ base)", skl: "symmetrised KL",
    l2: "squared L2", logit2: "squared difference of logits" };
  const SCALES = { none: "none: m = ε", kept: "kept: H / kept units", inverted: "inverted: 1/(1 − 0.1)" };
  const state = { example: 0, distance: "js", scale: "none", budget: data.budget, mask: 0, seed: 0, trace: null,
    step: null, origin: "built", compared: null };
  const tables = new Map(data.tables.map((t) => [`${t.example} js none`, t]));
  const flipsOf = Array.from({ length: MASKS }, (_, k) => [...k.toString(2)].filter((bit) => bit === "1").length);

  // --- small tools -------------------------------------------------------------------------------------------------
  function el(tag, attributes = {}, ...children) {
    const svg = ["svg", "g", "rect", "circle", "line", "path", "polyline", "text", "title", "pattern", "defs"];
    const node = svg.includes(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag)
      : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined).map((c) => (typeof c === "number" ? String(c) : c)));
    return node;
  }
  const number = (v) => v === null || v === undefined ? "–" : v === 0 ? "0" : Math.abs(v) < 5e-4
    ? v.toExponential(1).replace("-", "−").replace("e−", "e-") : v.toFixed(4).replace("-", "−");
  const signed = (v) => (v > 0 ? "+" : "") + number(v);
  const percent = (v) => `${Math.round(100 * v)} %`;
  const kept = (mask, unit) => 1 - ((mask >> unit) & 1);
  const table = () => tables.get(`${state.example} ${state.distance} ${state.scale}`);
  const argmax = (list) => list.indexOf(Math.max(...list));
  function best(t, budget) { // the exact optimum within the budget, of all 256 masks
    let found = 0;
    for (let k = 1; k < MASKS; k++) if (flipsOf[k] <= budget && t.d[k] > t.d[found]) found = k;
    return found;
  }
  function names(mask) {
    const units = [...Array(H).keys()].filter((i) => !kept(mask, i)).map((i) => i + 1);
    return units.length ? `${units.length === 1 ? "unit" : "units"} ${units.join(", ")} dropped` : "nothing dropped";
  }

  // --- the page's worker -------------------------------------------------------------------------------------------
  let kernel = null;
  async function live(name, args) {
    if (!kernel) {
      try {
        kernel = (await import(new URL("live.js", here).href)).kernel;
      } catch {
        kernel = { available: false };
      }
    }
    if (!kernel.available) throw new Error(root.dataset.offline);
    await kernel.start((share, what) => say(`Python is starting in this page${what ? `: ${what}` : ""} …`, share));
    const value = await kernel.call(`explorer.${name}`, args);
    state.origin = "live";
    return value;
  }
  function say(text, share = null) {
    parts.status.textContent = text;
    parts.bar.hidden = share === null;
    if (share !== null) parts.bar.value = share;
  }
  const origin = () => state.origin === "live" ? "Computed in this page by minadv." : "Computed by minadv when this site was built.";
  let busy = 0;
  async function computed(what, work) { // runs `work` with a note on what is under way; an error becomes a sentence
    busy += 1;
    root.setAttribute("aria-busy", "true");
    say(`${what} …`);
    try {
      const value = await work();
      say(origin());
      return value;
    } catch (error) {
      say(error.message || String(error));
      return null;
    } finally {
      busy -= 1;
      if (!busy) root.removeAttribute("aria-busy");
    }
  }

  // --- the parts of the page ---------------------------------------------------------------------------------------
  const parts = {};
  function build() {
    parts.examples = el("fieldset", { class: "ex-digits" }, el("legend", {}, "Digit, read row by row"),
      data.network.examples.map((example, n) => el("label", {},
        el("input", { type: "radio", name: "ex-digit", value: n, checked: n === state.example,
          onchange: () => change({ example: n }) }),
        digit(example.x), el("span", { class: "ex-sr" }, `a ${example.y}`))));
    parts.distance = select("Distance D", NAMES, state.distance, (value) => change({ distance: value }));
    parts.scale = select("Scale of the mask", SCALES, state.scale, (value) => change({ scale: value }));
    parts.budgetText = el("output", { for: "ex-delta" });
    parts.delta = el("label", { class: "ex-field" }, el("span", {}, "δ, the share that may be flipped"),
      el("input", { type: "range", id: "ex-delta", min: 1, max: H, step: 1, value: state.budget,
        oninput: (event) => change({ budget: Number(event.target.value) }) }), parts.budgetText);
    parts.units = el("div", { class: "ex-units", role: "group", "aria-label": "Units of the recurrent connection" });
    parts.output = el("div", { class: "ex-output" });
    parts.facts = el("dl", { class: "ex-facts" });
    parts.landscape = el("div", { class: "ex-landscape" });
    parts.compare = el("div", { class: "ex-compare" });
    parts.steps = el("div", { class: "ex-steps" });
    parts.status = el("span", {});
    parts.bar = el("progress", { max: 1, value: 0, hidden: true, "aria-label": "starting Python" });
    parts.said = el("p", { class: "ex-said", role: "status", "aria-live": "polite" });
    const go = (mask) => () => show(mask);
    const app = el("div", { class: "ex-app" },
      el("div", { class: "ex-settings" }, parts.examples, parts.distance, parts.scale, parts.delta),
      el("p", { class: "ex-status" }, parts.status, " ", parts.bar),
      el("h2", { id: "ex-h-units" }, "Units"),
      el("p", { class: "ex-help" }, "Press a unit, or the keys 1 to 8, to drop it from the recurrent connection or to keep it; 0 keeps all. "
        + "The line is the unit's state over the eight steps, dashed as the full network has it. Below: what one more flip of this unit "
        + "would add to D, as the influence map promises, and really."),
      parts.units,
      el("div", { class: "ex-buttons" },
        el("button", { type: "button", onclick: go(0) }, "Keep all"),
        el("button", { type: "button", onclick: () => show(best(table(), state.budget)) }, "Best mask within δ"),
        el("button", { type: "button", onclick: climb }, "Flip the best promise"),
        el("button", { type: "button", onclick: () => show(Math.floor(Math.random() * MASKS)) }, "Any mask")),
      parts.said,
      el("div", { class: "ex-two" }, parts.output, parts.facts),
      el("h2", { id: "ex-h-masks" }, `All ${MASKS} masks`), parts.landscape,
      el("h2", { id: "ex-h-searches" }, "The searches"), parts.compare, ownSearch(), parts.steps);
    root.replaceChildren(app);
    app.addEventListener("keydown", (event) => {
      if (event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
      const key = Number(event.key);
      if (event.key === "0") show(0);
      else if (key >= 1 && key <= H) show(state.mask ^ (1 << (key - 1)));
      else return;
      event.preventDefault();
    });
  }
  function select(label, choices, value, onchoice) {
    const field = el("select", { onchange: (event) => onchoice(event.target.value) },
      Object.entries(choices).map(([key, text]) => el("option", { value: key, selected: key === value }, text)));
    return el("label", { class: "ex-field" }, el("span", {}, label), field);
  }
  function digit(x) {
    const cells = x.flatMap((row, t) => row.map((v, i) => v > 0
      ? el("rect", { x: i, y: t, width: 1.02, height: 1.02, "fill-opacity": v.toFixed(3) }) : null));
    return el("svg", { viewBox: "0 0 8 8", class: "ex-digit", "aria-hidden": "true" }, cells);
  }

  // --- what a change does ------------------------------------------------------------------------------------------
  async function change(settings) {
    const before = { example: state.example, distance: state.distance, scale: state.scale };
    const moved = Object.keys(settings).some((name) => name !== "budget");
    Object.assign(state, settings, { trace: null, step: null, compared: null });
    if (table()) {
      if (moved && !busy) say(origin());
    } else {
      const asked = { example: state.example, distance: state.distance, scale: state.scale };
      const made = await computed("All 256 masks", () => live("drawn", { network: data.network, ...asked }));
      if (made) tables.set(`${asked.example} ${asked.distance} ${asked.scale}`, made);
      else Object.assign(state, before);
      parts.distance.querySelector("select").value = state.distance;
      parts.scale.querySelector("select").value = state.scale;
      parts.examples.querySelectorAll("input")[state.example].checked = true;
    }
    draw();
    tell();
  }
  function show(mask) {
    state.mask = mask;
    state.step = null;
    draw();
    tell();
  }
  function climb() { // one flip of the paper's kind: the largest promise
    const gains = promised();
    const unit = argmax(gains);
    if (gains[unit] > 0) show(state.mask ^ (1 << unit));
    else parts.said.textContent = "The influence map promises nothing of any flip here.";
  }
  function promised() {
    const relaxed = relaxedStep();
    if (relaxed) return relaxed.im.map((v) => -v);
    return table().im[state.mask].map((v, i) => (1 - 2 * kept(state.mask, i)) * v);
  }
  function relaxedStep() {
    const step = state.step === null ? null : state.trace.steps[state.step];
    return step && step.mask === null ? step : null;
  }
  function tell() {
    const t = table(), k = state.mask, relaxed = relaxedStep();
    const top = t.d[best(t, state.budget)];
    if (relaxed) {
      parts.said.textContent = `A relaxed mask: D ${number(relaxed.d)}.`;
      return;
    }
    const share = top > 0 ? `, ${percent(t.d[k] / top)} of the most within ${state.budget} flips` : "";
    parts.said.textContent = `${names(k)[0].toUpperCase()}${names(k).slice(1)}. D ${number(t.d[k])}${share}. `
      + `Predicts ${argmax(t.p[k])} with ${t.p[k][argmax(t.p[k])].toFixed(2)}.`;
  }

  // --- drawing -----------------------------------------------------------------------------------------------------
  function draw() {
    parts.budgetText.textContent = `δ = ${(state.budget / H).toFixed(3)}: ${state.budget} ${state.budget === 1 ? "flip" : "flips"} of ${H}`;
    drawUnits();
    drawOutput();
    drawFacts();
    drawLandscape();
    drawCompare();
    drawSteps();
  }
  function drawUnits() {
    const t = table(), k = state.mask, relaxed = relaxedStep();
    const gains = promised();
    const real = gains.map((_, i) => t.d[k ^ (1 << i)] - t.d[k]);
    const most = Math.max(1e-12, ...gains.map(Math.abs), ...(relaxed ? [] : real.map(Math.abs)));
    if (parts.units.children.length !== H) {
      parts.units.replaceChildren(...gains.map((_, i) => el("div", { class: "ex-unit" },
        el("button", { type: "button", "aria-describedby": `ex-gain-${i}`, onclick: () => show(state.mask ^ (1 << i)) }),
        el("div", { class: "ex-gains", id: `ex-gain-${i}` }))));
    }
    gains.forEach((gain, i) => {
      const [button, numbers] = parts.units.children[i].children;
      const eps = relaxed ? relaxed.eps[i] : kept(k, i);
      const word = eps === 1 ? "kept" : eps === 0 ? "dropped" : `kept by ${eps.toFixed(2)}`;
      parts.units.children[i].classList.toggle("ex-dropped", eps < 1);
      button.setAttribute("aria-pressed", eps < 1 ? "true" : "false");
      button.replaceChildren(el("span", { class: "ex-unit-name" }, el("span", { class: "ex-sr" }, "drop "), `unit ${i + 1}`),
        el("span", { class: "ex-unit-state", "aria-hidden": "true" }, word),
        spark(t.h0[i], relaxed ? null : t.h[k][i]));
      numbers.replaceChildren(
        row("map", signed(relaxed ? relaxed.im[i] : t.im[k][i]), null, most),
        row("promised", signed(gain), gain, most, "ex-promised"),
        row("really", relaxed ? "–" : signed(real[i]), relaxed ? null : real[i], most, "ex-real"));
    });
    function row(label, text, value, most, kind) {
      const width = value === null ? 0 : 50 * Math.min(1, Math.abs(value) / most);
      const bar = kind ? el("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true", class: kind },
        el("line", { x1: 50, x2: 50, y1: 0, y2: 8 }),
        el("rect", { x: value < 0 ? 50 - width : 50, y: 1, width, height: 6, class: value < 0 ? "ex-neg" : "ex-pos" })) : null;
      return el("div", { class: "ex-gain" }, el("span", {}, label), el("b", {}, text), bar);
    }
  }
  function spark(base, now) {
    const point = (v, t) => `${((t + 0.5) * 100) / T},${(20 - 0.18 * v).toFixed(1)}`;
    return el("svg", { viewBox: "0 0 100 40", class: "ex-spark", "aria-hidden": "true", preserveAspectRatio: "none" },
      el("line", { x1: 0, x2: 100, y1: 20, y2: 20, class: "ex-zero" }),
      el("polyline", { points: base.map(point).join(" "), class: "ex-base" }),
      now ? el("polyline", { points: now.map(point).join(" "), class: "ex-now" }) : null);
  }
  function drawOutput() {
    const t = table(), p = t.p[state.mask], y = data.network.examples[state.example].y;
    const bars = p.flatMap((v, c) => {
      const x = 8 + c * 31;
      const height = (q) => Math.max(0.5, 100 * q);
      return [
        el("rect", { x, y: 110 - height(t.p0[c]), width: 12, height: height(t.p0[c]), class: "ex-bar-base" }),
        el("rect", { x: x + 13, y: 110 - height(v), width: 12, height: height(v), class: "ex-bar-now" }),
        el("text", { x: x + 12.5, y: 126, "text-anchor": "middle", class: c === y ? "ex-true" : "" }, c),
      ];
    });
    const label = `Predictions. Full network: ${argmax(t.p0)} with ${Math.max(...t.p0).toFixed(2)}. `
      + `This mask: ${argmax(p)} with ${Math.max(...p).toFixed(2)}. The digit is a ${y}.`;
    parts.output.replaceChildren(el("h3", {}, "Prediction"),
      el("svg", { viewBox: "0 0 320 132", role: "img", "aria-label": label },
        el("line", { x1: 4, x2: 316, y1: 110, y2: 110, class: "ex-zero" }), bars),
      el("p", { class: "ex-key" }, el("span", { class: "ex-swatch ex-bar-base" }), " full network ",
        el("span", { class: "ex-swatch ex-bar-now" }), ` this mask; the digit is a ${y}`));
  }
  function drawFacts() {
    const t = table(), k = state.mask, top = best(t, state.budget), relaxed = relaxedStep();
    const within = flipsOf.filter((n, mask) => n <= state.budget && t.d[mask] > t.d[k]).length;
    const inside = flipsOf[k] <= state.budget;
    const ball = flipsOf.filter((n) => n <= state.budget).length;
    const zero = !relaxed && t.im[k].every((v) => Math.abs(v) < 1e-9);
    const rows = relaxed
      ? [["D", number(relaxed.d), "ex-d"], ["flips", "in part: a relaxed mask, looked at and never returned"]]
      : [["D", number(t.d[k]), "ex-d"],
        ["flips", `${flipsOf[k]}${inside ? ` of at most ${state.budget}` : `, beyond the budget of ${state.budget}`}`],
        ["of the exact maximum", t.d[top] > 0 ? percent(t.d[k] / t.d[top]) : "–"],
        ["place", inside ? `${within + 1} of ${ball} masks within the budget` : "outside of the ball"],
        ["the exact optimum", `D ${number(t.d[top])}, ${names(top)}`]];
    if (zero) rows.push(["influence map", "zero but for rounding: nothing is promised of any flip"]);
    parts.facts.replaceChildren(...rows.map(([name, value, id]) => el("div", {}, el("dt", {}, name), el("dd", { id }, value))));
  }
  function places(t) { // where each mask stands: a column for each number of flips, spread by D
    const order = [...Array(MASKS).keys()].sort((a, b) => t.d[a] - t.d[b]);
    const size = Array(H + 1).fill(0), x = Array(MASKS);
    for (const k of order) x[k] = size[flipsOf[k]]++;
    const most = Math.max(...t.d) || 1;
    return (k) => {
      const n = size[flipsOf[k]];
      const shift = n > 1 ? ((x[k] * 0.618) % 1) - 0.5 : 0; // a fixed scatter, so that masks of equal D do not hide each other
      return [60 + (flipsOf[k] + 0.5 + 0.72 * shift) * 62, 210 - (190 * t.d[k]) / most];
    };
  }
  function drawLandscape() {
    const t = table(), at = places(t), top = best(t, state.budget), most = Math.max(...t.d) || 1;
    const dots = [...Array(MASKS).keys()].map((k) => {
      const [x, y] = at(k);
      return el("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: 3, class: flipsOf[k] <= state.budget ? "ex-in" : "ex-out" });
    });
    const path = state.trace ? state.trace.steps.filter((s) => s.mask !== null).map((s) => at(s.mask).map((v) => v.toFixed(1)).join(",")) : [];
    const ring = (mask, kind, r) => { const [cx, cy] = at(mask); return el("circle", { cx, cy, r, class: kind }); };
    const axis = [0, 0.5, 1].map((share) => [
      el("line", { x1: 56, x2: 624, y1: 210 - 190 * share, y2: 210 - 190 * share, class: "ex-grid" }),
      el("text", { x: 50, y: 214 - 190 * share, "text-anchor": "end" }, share ? (most * share).toPrecision(2) : "0")]);
    const columns = [...Array(H + 1).keys()].map((n) =>
      el("text", { x: 60 + (n + 0.5) * 62, y: 228, "text-anchor": "middle" }, n));
    const label = `D of all ${MASKS} masks by their number of flips. This mask: D ${number(t.d[state.mask])} with ${flipsOf[state.mask]} flips. `
      + `Best within ${state.budget} flips: D ${number(t.d[top])}, ${names(top)}.`;
    const svg = el("svg", { viewBox: "0 0 640 250", role: "img", "aria-label": label,
      onclick: (event) => {
        const box = svg.getBoundingClientRect();
        const x = ((event.clientX - box.left) / box.width) * 640, y = ((event.clientY - box.top) / box.height) * 250;
        let near = 0, least = Infinity;
        for (let k = 0; k < MASKS; k++) {
          const [px, py] = at(k), far = (px - x) ** 2 + (py - y) ** 2;
          if (far < least) [near, least] = [k, far];
        }
        show(near);
      } },
      el("rect", { x: 60, y: 12, width: 62 * (state.budget + 1), height: 200, class: "ex-ball" }),
      axis, columns, el("text", { x: 340, y: 245, "text-anchor": "middle" }, "flips from the full network"),
      el("text", { x: 64, y: 14 }, "D"), dots,
      path.length > 1 ? el("polyline", { points: path.join(" "), class: "ex-path" }) : null,
      ring(top, "ex-top", 8), relaxedStep() ? null : ring(state.mask, "ex-here", 6));
    parts.landscape.replaceChildren(svg, el("p", { class: "ex-key" },
      el("span", { class: "ex-dot ex-here" }), " this mask, ", el("span", { class: "ex-dot ex-top" }),
      " the best within δ", state.trace ? [", ", el("span", { class: "ex-swatch ex-path-key" }), " the search's way"] : null,
      ". The tinted columns are within δ. Click a dot to go there."));
  }

  // --- searches ----------------------------------------------------------------------------------------------------
  const isBuilt = () => state.distance === "js" && state.scale === "none" && state.budget === data.budget && state.seed === 0;
  function built(kind, options) {
    if (!isBuilt()) return null;
    const same = (a, b) => JSON.stringify(Object.entries(a).sort()) === JSON.stringify(Object.entries(b).sort());
    const key = Object.keys(data.searches).find((name) => data.searches[name].kind === kind && same(data.searches[name].options, options));
    return key ? data.traces[state.example][key] : null;
  }
  function asked(kind, options) {
    return { network: data.network, example: state.example, kind, options, delta: state.budget / H,
      distance: state.distance, scale: state.scale, seed: state.seed };
  }
  async function run(kind, options, label) {
    const found = built(kind, options) || await computed(label, () => live("search", asked(kind, options)));
    if (!found) return;
    if (found.error) {
      state.trace = null;
      parts.steps.replaceChildren(el("p", { class: "ex-warning", role: "alert" }, found.error));
      return;
    }
    state.trace = { ...found, label };
    go(0);
    parts.steps.scrollIntoView({ block: "nearest" });
  }
  function go(n) {
    const step = state.trace.steps[n];
    state.step = n;
    if (step.mask !== null) state.mask = step.mask;
    const key = document.activeElement && document.activeElement.dataset.key;
    draw();
    tell();
    const again = key && parts.steps.querySelector(`[data-key="${key}"]:not(:disabled)`);
    (again || parts.steps.querySelector('[aria-current="step"]')).focus({ preventScroll: true });
  }
  async function compareAll() {
    const rows = {};
    for (const [key, search] of Object.entries(data.searches)) {
      const found = await computed(search.label, () => live("search", asked(search.kind, search.options)));
      if (!found) return;
      rows[key] = found;
    }
    state.compared = rows;
    draw();
  }
  function drawCompare() {
    const t = table(), top = t.d[best(t, state.budget)];
    const rows = isBuilt() ? data.traces[state.example] : state.compared;
    if (!rows) {
      parts.compare.replaceChildren(el("p", {}, "These settings were not computed when the site was built. "),
        el("button", { type: "button", onclick: compareAll }, "Run all searches here"));
      return;
    }
    const cells = Object.entries(data.searches).map(([key, search]) => {
      const found = rows[key];
      const d = found.error ? null : found.found.mask === null ? found.found.d : t.d[found.found.mask];
      const share = d === null || top <= 0 ? null : d / top;
      const flips = found.error ? "–" : flipsOf[found.found.mask];
      return el("tr", {}, el("th", { scope: "row" }, search.label), el("td", {}, number(d)),
        el("td", { class: "ex-share" }, share === null ? "–" : percent(share),
          el("span", { class: "ex-meter", "aria-hidden": "true" }, el("span", { style: `width:${Math.min(100, 100 * (share || 0)).toFixed(0)}%` }))),
        el("td", {}, flips, flips > state.budget ? " (over)" : ""),
        el("td", {}, found.error ? "–" : `${found.passes.forward} + ${found.passes.backward}`),
        el("td", {}, el("button", { type: "button", onclick: () => run(search.kind, search.options, search.label) },
          "Step", el("span", { class: "ex-sr" }, ` through ${search.label}`))));
    });
    parts.compare.replaceChildren(el("div", { class: "ex-scroll", tabindex: 0, role: "region", "aria-label": "What each search finds" },
      el("table", {}, el("caption", {}, `What each search finds for this digit, within ${state.budget} ${state.budget === 1 ? "flip" : "flips"}`),
        el("thead", {}, el("tr", {}, ["search", "D", "of the maximum", "flips", "passes: forward + backward", "its masks"].map((h) => el("th", { scope: "col" }, h)))),
        el("tbody", {}, cells))));
  }
  function ownSearch() {
    const choose = (id, label, choices, value) => {
      const field = select(label, choices, value, update);
      field.querySelector("select").id = `ex-own-${id}`;
      return field;
    };
    const kinds = { greedy: "Greedy (the paper's)", reselect: "Reselect", relax: "Relax", memory: "Memory", random: "Random", exact: "Exact" };
    const rules = { strict: "strict", "strict-fixed": "strict, no un-flipping", paper: "paper: Algorithm 1, counting", "paper-l2": "paper: Algorithm 1, as printed (l2)",
      authors: "authors: sMNIST code", "authors-text": "authors: text code" };
    const upTo = (low, high) => Object.fromEntries(Array.from({ length: high - low + 1 }, (_, n) => [low + n, low + n]));
    const fields = {
      kind: choose("kind", "Search", kinds, "greedy"),
      rule: choose("rule", "Rule of the flip", rules, "strict"),
      K: choose("K", "K, influence maps", upTo(1, 8), "2"),
      start: choose("start", "Start", { flip: "one random flip", base: "the full network" }, "flip"),
      keep: choose("keep", "Returns", { best: "the best mask visited", last: "the last mask" }, "best"),
      swaps: choose("swaps", "Exchanges", upTo(0, 4), "0"),
      reselect: choose("reselect", "Re-selections", upTo(0, 3), "0"),
      visits: choose("visits", "Visits", upTo(1, 8), "4"),
      tries: choose("tries", "Tries", upTo(1, 32), "8"),
    };
    const uses = { greedy: ["rule", "K", "start", "keep"], reselect: ["K", "swaps"], relax: ["reselect", "swaps"], memory: ["visits"], random: ["tries"], exact: [] };
    const value = (name) => fields[name].querySelector("select").value;
    const seed = el("input", { type: "number", min: 0, max: 9999, value: 0, onchange: (event) => {
      state.seed = Math.max(0, Math.floor(Number(event.target.value)) || 0);
      event.target.value = state.seed;
      drawCompare();
    } });
    function update() {
      for (const name of Object.keys(fields)) if (name !== "kind") fields[name].hidden = !uses[value("kind")].includes(name);
    }
    function options() {
      const kind = value("kind"), chosen = {};
      if (kind === "greedy") {
        chosen.K = Number(value("K"));
        const [rule, variant] = value("rule").split("-");
        if (rule !== "strict") chosen.rule = rule;
        if (variant === "l2") chosen.norm = "l2";
        if (variant === "text") chosen.variant = "text";
        if (variant === "fixed") chosen.allow_unflip = false;
        if (value("start") !== "flip") chosen.start = value("start");
        if (value("keep") !== "best") chosen.keep = value("keep");
      } else if (kind === "reselect") {
        chosen.K = Number(value("K"));
        if (Number(value("swaps"))) chosen.swaps = Number(value("swaps"));
      } else if (kind === "relax") {
        for (const name of ["reselect", "swaps"]) if (Number(value(name))) chosen[name] = Number(value(name));
      } else for (const name of uses[kind]) chosen[name] = Number(value(name));
      return chosen;
    }
    update();
    return el("form", { class: "ex-own", onsubmit: (event) => {
      event.preventDefault();
      run(value("kind"), options(), kinds[value("kind")]);
    } }, el("fieldset", {}, el("legend", {}, "A search of your own"), Object.values(fields),
      el("label", { class: "ex-field" }, el("span", {}, "Seed of what is drawn"), seed),
      el("button", { type: "submit" }, "Run")));
  }
  function drawSteps() {
    const trace = state.trace;
    if (!trace) {
      parts.steps.replaceChildren();
      return;
    }
    const t = table(), top = t.d[best(t, state.budget)], last = trace.steps.length - 1;
    const items = trace.steps.map((step, n) => el("li", {}, el("button", { type: "button",
      "aria-current": n === state.step ? "step" : null, onclick: () => go(n) },
      step.note, " ", el("b", {}, `D ${number(step.d === null && step.mask !== null ? t.d[step.mask] : step.d)}`))));
    const d = trace.found.mask === null ? trace.found.d : t.d[trace.found.mask];
    const flips = trace.found.mask === null ? "" : `, ${flipsOf[trace.found.mask]} flips`;
    parts.steps.replaceChildren(el("h3", {}, `${trace.label}, step by step`),
      el("p", { class: "ex-record" }, el("code", {}, trace.record)),
      el("div", { class: "ex-buttons" },
        el("button", { type: "button", "data-key": "back", disabled: !state.step, onclick: () => go(Math.max(0, (state.step ?? 1) - 1)) }, "Back"),
        el("button", { type: "button", "data-key": "next", disabled: state.step === last, onclick: () => go(Math.min(last, (state.step ?? -1) + 1)) }, "Next")),
      el("ol", {}, items),
      el("p", {}, `It returns D ${number(d)}${flips}: `, el("b", {}, top > 0 ? percent(d / top) : "–"),
        ` of the exact maximum, for ${trace.passes.forward} forward and ${trace.passes.backward} backward passes. `,
        trace.found.mask === null ? null : el("button", { type: "button", onclick: () => show(trace.found.mask) }, "Show that mask")),
      trace.warnings.map((text) => el("p", { class: "ex-warning" }, `minadv warns: ${text}`)));
  }

  build();
  say(origin());
  draw();
  tell();
  root.dataset.ready = "yes";
})();
