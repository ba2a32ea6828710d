// The museum: plants a mistake in the worker's copy of minadv, runs its demonstration, and takes it out again.
// A classic script, so that it also loads from file://, where it says what is missing.
(() => {
  "use strict";
  const here = document.currentScript ? document.currentScript.src : document.baseURI;
  let kernel = null;
  async function started(say) {
    if (!kernel) {
      try {
        kernel = (await import(new URL("live.js", here).href)).kernel;
      } catch {
        kernel = { available: false };
      }
    }
    if (!kernel.available) {
      throw new Error("This needs Python in the page: build the site with its live parts, serve its folder with "
        + "“python -m http.server -d FOLDER”, and open it from there. The numbers above were made when the site was built.");
    }
    await kernel.start((share, what) => say(`Python is starting in this page${what ? `: ${what}` : ""} …`));
    return kernel;
  }
  for (const piece of document.querySelectorAll(".museum")) {
    const live = piece.querySelector(".museum-live");
    const button = (text, work) => {
      const made = document.createElement("button");
      made.type = "button";
      made.textContent = text;
      made.addEventListener("click", () => run(work));
      return made;
    };
    const buttons = [button("Plant it and run", plant), button("Take it out and run", restore)];
    const output = document.createElement("div");
    output.setAttribute("role", "status");
    const row = document.createElement("div");
    row.className = "ex-buttons";
    row.append(...buttons);
    live.append(row, output);
    live.hidden = false;
    const say = (text) => { output.textContent = text; };
    async function run(work) {
      for (const each of buttons) each.disabled = true;
      try {
        await work(await started(say));
      } catch (error) {
        say(error.message || String(error));
      }
      for (const each of buttons) each.disabled = false;
    }
    async function plant(python) {
      say("Planting …");
      await python.reset();
      const { file, old, new: wrong } = piece.dataset;
      const text = await python.call("museum.text_with", { file, old, new: wrong });
      await python.edit(`minadv/${file}`, text);
      await demonstrate(python, `With the mistake in minadv/${file}, in this page:`);
    }
    async function restore(python) {
      say("Restoring …");
      await python.reset();
      await demonstrate(python, "As it is, in this page:");
    }
    async function demonstrate(python, title) {
      const result = await python.run(piece.dataset.program);
      const said = document.createElement("p");
      said.textContent = title;
      const text = document.createElement("pre");
      text.tabIndex = 0;
      text.textContent = result.text + (result.error || "");
      output.replaceChildren(said, text);
      output.dataset.verdict = result.error || result.text.includes("FAILED") ? "noticed" : "passed";
    }
  }
})();
