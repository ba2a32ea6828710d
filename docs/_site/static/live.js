// Live code: one worker a page, started by its first use; every example can be edited, run and reset.
import { editor } from "./editor.js";

const served = /^https?:$/.test(location.protocol);
const built = document.querySelector("meta[name=minadv-live]")?.content === "yes";

class Kernel {
  available = served && built;
  #worker = null;
  #waiting = new Map();
  #count = 0;
  #progress = () => {};

  // Starts Python, unless it is up; onProgress(share from 0 to 1, what is being done).
  start(onProgress = null) {
    if (onProgress) this.#progress = onProgress;
    return this.#ask("start");
  }
  // Runs code in the page's namespace: {text, shown, error, html}.
  run(code) {
    return this.#ask("run", code);
  }
  // Runs an answer: the same, and right.
  exercise(code, answer) {
    return this.#ask("exercise", code, answer);
  }
  // Calls a function of a module of docs/_site with a list or an object of arguments.
  call(path, args = []) {
    return this.#ask("call", path, JSON.stringify(args));
  }
  // Replaces the source of a module of minadv.
  edit(path, source) {
    return this.#ask("edit", path, source);
  }
  // Puts every module back, and forgets the page's namespace.
  reset() {
    return this.#worker === null ? Promise.resolve() : this.#ask("reset");
  }
  // Ends the worker, whatever it does; the next call starts another.
  stop() {
    this.#worker?.terminate();
    this.#worker = null;
    for (const { reject } of this.#waiting.values()) reject(new Error("stopped"));
    this.#waiting.clear();
  }

  #ask(method, ...args) {
    if (!this.available) return Promise.reject(new Error("this page has no live code"));
    if (this.#worker === null) {
      this.#worker = new Worker(new URL("worker.js", import.meta.url));
      this.#worker.onmessage = ({ data }) => this.#hear(data);
    }
    const id = ++this.#count;
    this.#worker.postMessage({ id, method, args });
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
  }
  #hear({ id, value, error, progress, what }) {
    if (progress !== undefined) return this.#progress(progress, what);
    const { resolve, reject } = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (error === undefined) resolve(value);
    else reject(new Error(error));
  }
}
export const kernel = new Kernel();

export const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

// Buttons, a progress bar and a line of status; work(bar) runs while the first button offers to stop.
export const tools = (label, action, undo) => {
  const run = make("button", { class: "site", type: "button" }, label);
  const reset = make("button", { class: "site plain", type: "button" }, "Reset");
  const bar = make("progress", { max: 1, "aria-label": "starting Python", hidden: "" });
  const status = make("span", { class: "status", role: "status" });
  const begin = async () => {
    if (run.dataset.busy) return kernel.stop();
    run.dataset.busy = "yes";
    run.textContent = "Stop";
    status.textContent = "running";
    try {
      await kernel.start((share, what) => {
        bar.hidden = false;
        bar.value = share;
        status.textContent = what;
      });
      bar.hidden = true;
      status.textContent = "running";
      status.textContent = (await action()) ?? "done";
    } catch (problem) {
      status.textContent = problem.message;
    }
    bar.hidden = true;
    run.textContent = label;
    delete run.dataset.busy;
    document.dispatchEvent(new Event("shown"));
  };
  run.addEventListener("click", begin);
  reset.addEventListener("click", () => {
    undo();
    status.textContent = "";
  });
  return { box: make("div", { class: "cell-tools" }, run, reset, bar, status), begin };
};

// Examples run in the page's order: those above one that were not run, or were changed since, run before it.
const cells = [];
const runUpTo = async (last) => {
  const first = cells.findIndex((cell, n) => n === last || cell.ran !== cell.text());
  for (const cell of cells.slice(first, last + 1)) {
    const text = cell.text();
    const result = await kernel.run(text);
    cell.output.innerHTML = result.html;
    cell.ran = text;
    if (result.error !== null && !cell.box.hasAttribute("data-raises")) return "error";
  }
  return "done";
};
export const forgetRuns = () => cells.forEach((cell) => (cell.ran = null));

const upgradeCell = (box, n) => {
  const output = box.querySelector(".cell-output");
  const built = output.innerHTML;
  const edits = editor(box.querySelector(".highlight"), `Code of example ${n + 1}`);
  cells.push({ box, output, ran: null, text: edits.text });
  const { box: buttons, begin } = tools("Run", () => runUpTo(n), () => {
    edits.reset();
    output.innerHTML = built;
    forgetRuns();
    kernel.reset();
  });
  edits.onRun(begin);
  output.before(buttons);
};

const upgradeExercise = (box, n) => {
  const edits = editor(box.querySelector(".exercise-code .highlight"), `Your code for exercise ${n + 1}`);
  const output = make("div", { class: "cell-output" });
  const details = box.querySelector("details.explanation");
  const { box: buttons, begin } = tools("Check", async () => {
    if (cells.length) await runUpTo(cells.length - 1);
    const result = await kernel.exercise(edits.text(), box.dataset.answer);
    const verdict = make("p", {}, make("span", { class: `verdict ${result.right ? "right" : "wrong"}` }, result.right ? "✓ right" : "✗ not yet"));
    output.innerHTML = result.html;
    output.append(verdict);
    if (result.right) details.open = true;
  }, () => {
    edits.reset();
    output.replaceChildren();
  });
  edits.onRun(begin);
  box.querySelector(".exercise-code").after(buttons, output);
};

if (kernel.available) {
  document.querySelectorAll(".cell:not([data-static])").forEach(upgradeCell);
  document.querySelectorAll(".exercise[data-kind=code]").forEach(upgradeExercise);
  if (document.querySelector(".sidebyside")) import("./sidebyside.js");
}
