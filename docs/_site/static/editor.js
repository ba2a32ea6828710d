// An editor of Python in place of a highlighted block: a text area over the coloured text, in the same grid cell.

const WORDS =
  "False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield";
const KEYWORDS = new Set(WORDS.split(" "));
const TOKEN =
  /(#[^\n]*)|([rRbBfFuU]{0,2}(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))|(\b\d[\d_]*(?:\.\d*)?(?:[eE][+-]?\d+)?\b)|(\b[A-Za-z_]\w*\b)/g;

const escape = (text) => text.replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);

// Python as HTML, with the classes that the style sheet of the page knows.
export const highlight = (text) => {
  let html = "";
  let at = 0;
  for (const match of text.matchAll(TOKEN)) {
    const [token, comment, string, number, word] = match;
    const kind = comment ? "c1" : string ? "s2" : number ? "mi" : KEYWORDS.has(word) ? "k" : null;
    html += escape(text.slice(at, match.index)) + (kind ? `<span class="${kind}">${escape(token)}</span>` : escape(token));
    at = match.index + token.length;
  }
  return html + escape(text.slice(at)) + "\n";
};

// Makes the block editable and returns {text, set, reset, onRun, onChange, focus}.
export const editor = (block, label) => {
  const shown = block.querySelector("pre");
  const source = shown.textContent.replace(/\n+$/, "");
  const html = shown.innerHTML;
  const area = document.createElement("textarea");
  Object.assign(area, { value: source, spellcheck: false, autocapitalize: "off", autocomplete: "off", wrap: "off", rows: 1 });
  area.setAttribute("aria-label", label);
  block.classList.add("editor");
  shown.setAttribute("aria-hidden", "true"); // the text area says the same
  shown.removeAttribute("tabindex");
  shown.after(area);
  let changed = () => {};
  let run = () => {};
  const draw = () => {
    shown.innerHTML = area.value === source ? html : highlight(area.value);
    block.classList.toggle("edited", area.value !== source);
    changed(area.value);
  };
  area.addEventListener("input", draw);
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.shiftKey || event.metaKey)) {
      event.preventDefault();
      run();
    }
  });
  const set = (text) => {
    area.value = text;
    draw();
  };
  return {
    text: () => area.value,
    set,
    reset: () => set(source),
    onRun: (f) => (run = f),
    onChange: (f) => (changed = f),
    focus: () => area.focus(),
  };
};
