// A file beside its reasons: click on lines to edit them, then run the file's check on what you have made of it.
import { editor, highlight } from "./editor.js";
import { forgetRuns, kernel, make, tools } from "./live.js";

const page = document.querySelector(".sidebyside");
const check = document.querySelector(".module-check");
const blocks = [...page.querySelectorAll(".code")].map((box) => {
  const source = box.dataset.source;
  const tail = source.match(/\n*$/)[0];
  const shown = box.innerHTML;
  const block = { box, text: () => source, edit: null, reset: null };
  block.edit = () => {
    if (box.querySelector("textarea")) return;
    box.innerHTML = '<div class="highlight"><pre></pre></div>';
    const code = source.slice(0, source.length - tail.length);
    box.querySelector("pre").innerHTML = highlight(code);
    const edits = editor(box.firstChild, `Code, ${box.dataset.label}`);
    edits.onChange(changed);
    edits.onRun(() => begin());
    block.text = () => edits.text() + tail;
    return edits;
  };
  block.reset = () => {
    box.innerHTML = shown;
    block.text = () => source;
  };
  box.addEventListener("click", (event) => {
    if (!event.target.closest("a, summary, textarea") && !String(getSelection())) block.edit()?.focus();
  });
  return block;
});
const whole = () => blocks.map((block) => block.text()).join("\n") + "\n";
const original = whole();

const verdicts = make("span", { class: "verdicts" });
const changed = () => verdicts.replaceChildren(whole() === original ? "" : "changed, not checked yet");
const built = check.querySelector(".check-rows").innerHTML;
const title = check.querySelector("summary");
const titled = title.textContent;

const { box, begin } = tools("Check", async () => {
  const source = whole();
  forgetRuns();
  await kernel.reset();
  if (source !== original) await kernel.edit(page.dataset.path, source);
  const { rows, html } = await kernel.call("checks.report", [check.dataset.moduleName]);
  const wrong = rows.filter((row) => !row.passed).length;
  check.querySelector(".check-rows").innerHTML = html;
  title.textContent = wrong ? `The check: ${wrong} of ${rows.length} are wrong` : `The check: all ${rows.length} pass`;
  verdicts.replaceChildren(
    ...rows.map((row) => make("span", { class: `verdict ${row.passed ? "right" : "wrong"}` }, `${row.passed ? "✓" : "✗"} ${row.name}`)),
  );
  return wrong ? `${wrong} wrong` : "all right";
}, () => {
  blocks.forEach((block) => block.reset());
  verdicts.replaceChildren();
  check.querySelector(".check-rows").innerHTML = built;
  title.textContent = titled;
  forgetRuns();
  kernel.reset();
});
const edit = make("button", { class: "site plain", type: "button" }, "Edit all");
edit.addEventListener("click", () => blocks.forEach((block) => block.edit()));
box.children[0].after(edit);
box.classList.add("sticky");
box.append(verdicts);
page.append(box);
page.classList.add("editable");
