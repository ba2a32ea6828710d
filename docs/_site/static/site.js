// What every page needs, as a plain script, so that it also works from file://: exercises, boxes that scroll, and the
// door to the live parts, which are modules and need a server.
"use strict";

const here = document.currentScript.src;

const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

// A box that scrolls can be reached with the keyboard.
const boxes = () => {
  for (const box of document.querySelectorAll(".scrolls, pre:not([aria-hidden]), .table-wrapper, .content")) {
    if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
    else if (box.getAttribute("tabindex") === "0") box.removeAttribute("tabindex");
  }
};

const number = (text) => {
  const whole = /^[−-]?[1-9]\d{0,2}(,\d{3})+$/.test(text.trim()); // 307,720: commas between thousands
  const words = text.trim().replace(whole ? /,/g : ",", whole ? "" : ".").replace("−", "-");
  const parts = words.split("/");
  return words === "" ? NaN : parts.length === 2 ? Number(parts[0]) / Number(parts[1]) : Number(words);
};

const near = (given, answer, tolerance) =>
  Math.abs(given - answer) <= tolerance * (answer === 0 ? 1 : Math.abs(answer));

let asked = 0;
const ask = (box) => {
  const { kind, answer, tolerance } = box.dataset;
  const details = box.querySelector("details.explanation");
  const verdict = make("span", { role: "status", class: "verdict" });
  const tell = (right, words) => {
    verdict.className = `verdict ${right ? "right" : "wrong"}`;
    verdict.textContent = words ?? (right ? "✓ right" : "✗ not yet");
    if (right) details.open = true;
  };
  const form = make("form", { class: "answer" });
  const name = `exercise-${++asked}`;
  if (kind === "number") {
    const field = make("input", { type: "text", id: name, autocomplete: "off" });
    form.append(make("label", { for: name }, "Your answer"), field);
    form.addEventListener("submit", () => {
      const given = number(field.value);
      if (Number.isNaN(given)) tell(false, "✗ give a number, such as 0.25 or 1/4");
      else tell(near(given, Number(answer), Number(tolerance)));
    });
  } else {
    const list = box.querySelector(".choices");
    list.classList.add("asked");
    list.setAttribute("role", "radiogroup");
    list.setAttribute("aria-label", box.querySelector(".exercise-title").textContent);
    [...list.children].forEach((item, n) => {
      item.setAttribute("role", "presentation");
      const label = make("label", {}, make("input", { type: "radio", name, value: n + 1 }), make("span", {}, ...item.childNodes));
      item.append(label);
    });
    form.addEventListener("submit", () => {
      const chosen = list.querySelector("input:checked");
      if (chosen === null) tell(false, "✗ choose one");
      else tell(chosen.value === answer);
    });
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  form.append(make("button", { class: "site", type: "submit" }, "Check"), verdict);
  details.before(form);
};

const fromFile = location.protocol === "file:";
const start = () => {
  document.querySelectorAll(".exercise:not([data-kind=code])").forEach(ask);
  boxes();
  addEventListener("resize", boxes);
  document.addEventListener("toggle", boxes, true);
  document.addEventListener("shown", boxes);
  for (const note of document.querySelectorAll(".site-note[data-served]"))
    note.textContent = fromFile ? note.dataset.file : note.dataset.served;
  if (fromFile) return;
  const modules = new Set([...document.querySelectorAll("[data-module]")].map((e) => e.dataset.module));
  if (document.querySelector(".cell, .exercise[data-kind=code], .sidebyside")) modules.add("live.js");
  for (const module of modules) import(new URL(module, here));
};
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();
