// node browser.mjs PACKAGES CHROMIUM SITE SCENARIO: drives a browser over the built site, and prints what it saw as JSON.
// PACKAGES holds playwright-core and axe-core, SITE is the folder that sphinx-build wrote; a server of this file's own
// serves it, and no other request is let through.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { existsSync, readFileSync, readdirSync, statSync } from "node:fs";
import { extname, join, relative } from "node:path";
import { pathToFileURL } from "node:url";

const [packages, executablePath, site, scenario] = process.argv.slice(2);
const { chromium } = createRequire(import.meta.url)(join(packages, "playwright-core"));
const axe = readFileSync(join(packages, "axe-core", "axe.min.js"), "utf8");

const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".json": "application/json", ".woff2": "font/woff2" };
const server = createServer((request, response) => {
  const file = join(site, decodeURIComponent(new URL(request.url, "http://x").pathname));
  if (!existsSync(file) || !statSync(file).isFile()) return response.writeHead(404).end();
  response.writeHead(200, { "Content-Type": types[extname(file)] ?? "application/octet-stream" }).end(readFileSync(file));
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const address = `http://127.0.0.1:${server.address().port}/`;

const files = (folder) =>
  readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return entry.name.startsWith("_") ? [] : files(path);
    return entry.name.endsWith(".html") ? [relative(site, path)] : [];
  });

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const complaints = [];
const contexts = new Map(); // one for each way to look at pages: what it has loaded once is in its cache
const contextOf = (look) => {
  const key = JSON.stringify(look);
  if (!contexts.has(key)) {
    const { width, scheme, javaScriptEnabled, base } = look;
    const made = browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme, javaScriptEnabled });
    contexts.set(
      key,
      made.then(async (context) => {
        await context.route(/^(?!data:|blob:)/, (route) => {
          const url = route.request().url();
          if (url.startsWith(base)) return route.continue();
          complaints.push(`a request leaves the machine: ${url}`);
          return route.abort();
        });
        return context;
      }),
    );
  }
  return contexts.get(key);
};
const open = async (name, { width = 1280, scheme = "light", javaScriptEnabled = true, base = address } = {}) => {
  const page = await (await contextOf({ width, scheme, javaScriptEnabled, base })).newPage();
  page.setDefaultTimeout(240_000);
  page.on("console", (m) => ["error", "warning"].includes(m.type()) && complaints.push(`${name}: ${m.text()} ${m.location().url}`));
  page.on("pageerror", (e) => complaints.push(`${name}: ${e.message}`));
  page.on("response", (r) => r.status() >= 400 && complaints.push(`${name}: ${r.status()} for ${r.url()}`));
  await page.goto(base + name, { waitUntil: "load" });
  return page;
};
const close = (page) => page.close();

// What is wider than the page, without what scrolls in a box of its own.
const overflow = (page) =>
  page.evaluate(() => {
    const wide = document.documentElement.clientWidth;
    const inBox = (e) => e.closest(".scrolls, pre, .table-wrapper, .highlight, svg, .sidebar-drawer, .toc-drawer, math") !== null;
    const found = [...document.querySelectorAll("body *")].filter((e) => {
      const box = e.getBoundingClientRect();
      return box.width > 0 && box.right > wide + 1 && !inBox(e) && getComputedStyle(e).position !== "fixed";
    });
    const content = document.querySelector(".content");
    const scrolls = document.documentElement.scrollWidth > wide + 1 || (content && content.scrollWidth > content.clientWidth + 1);
    return scrolls ? [`${document.documentElement.scrollWidth} px`, ...found.slice(0, 5).map((e) => `${e.tagName}.${e.className} ${e.textContent.slice(0, 40)}`)] : [];
  });

// Code of the paper, of one sitting and of the walk that is wider than its box: a reader at a desk sees whole lines.
const cut = (page) =>
  page.evaluate(() => {
    const boxes = [...document.querySelectorAll(".sidebyside .code pre, .wide pre, .highlight.editor")];
    return boxes.filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => `a cut line in: ${e.textContent.slice(0, 60)}`);
  });

const WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"];
const accessible = async (page, rules = WCAG) => {
  await page.evaluate(axe);
  const { violations } = await page.evaluate((rules) => axe.run(document.querySelector("article") ?? document, { runOnly: rules }), rules);
  return violations.flatMap((v) => v.nodes.slice(0, 3).map((n) => `${v.id}: ${n.html.slice(0, 160)} ${(n.any[0] ?? n.all[0] ?? n.none[0])?.message ?? ""}`));
};

const settled = (tools) => tools.locator("button.site:not(.plain):not([data-busy])").waitFor();
const press = async (tools) => {
  await tools.locator("button").first().click();
  await tools.locator("button[data-busy]").waitFor({ timeout: 2000 }).catch(() => {});
  await settled(tools);
  return tools.locator(".status").textContent();
};

const scenarios = {
  // Every page, light and dark, narrow and wide: nothing overflows, axe finds nothing, the console is silent.
  async pages() {
    const wrong = {};
    const looks = [[1280, "light", WCAG], [375, "dark", ["color-contrast"]]]; // labels do not depend on colours
    const left = files(site).flatMap((name) => looks.map((look) => [name, ...look]));
    const work = async () => {
      for (let next = left.shift(); next; next = left.shift()) {
        const [name, width, scheme, rules] = next;
        const page = await open(name, { width, scheme });
        const found = await overflow(page);
        if (width > 1000 && /^(walk|code|one_sitting)/.test(name)) found.push(...(await cut(page)));
        const reference = /^(api|genindex|py-modindex|search)\.html$/.test(name); // Sphinx's own, and too long for axe
        if (!reference) found.push(...(await accessible(page, rules)));
        for (const other of width > 1000 ? [1010, 1320, 1440] : []) { // where columns come and go at the sides
          await page.setViewportSize({ width: other, height: 900 });
          found.push(...(await overflow(page)).map((what) => `at ${other}: ${what}`));
        }
        if (found.length) wrong[`${name} ${width} ${scheme}`] = found;
        await close(page);
      }
    };
    await Promise.all([work(), work()]);
    return { wrong, count: files(site).length };
  },
  // Without JavaScript: every page has its text, examples their results, exercises their answers.
  async plain() {
    const wrong = {};
    for (const name of files(site)) {
      const page = await open(name, { javaScriptEnabled: false });
      const text = await page.locator("article").innerText().catch(() => "");
      const outputs = await page.locator(".cell-output").count();
      const answers = await page.locator("details.explanation").count();
      const exercises = await page.locator(".exercise").count();
      if (!/^(genindex|py-modindex|search)\.html$/.test(name) && (text.length < 100 || answers !== exercises || (outputs === 0 && (await page.locator(".cell").count()) > 0)))
        wrong[name] = { text: text.length, outputs, answers, exercises };
      await close(page);
    }
    return { wrong };
  },
  // From file://: exercises work, and the page says how to serve it.
  async file() {
    const base = pathToFileURL(site).href + "/";
    const notes = {};
    for (const name of files(site).filter((n) => /^(walk|code)\//.test(n))) {
      const page = await open(name, { base });
      const note = page.locator(".site-note").first();
      if (await note.count()) notes[name] = await note.textContent();
      await close(page);
    }
    return { notes };
  },
  // Exercises accept what is right and refuse what is wrong.
  async exercises() {
    const seen = [];
    for (const name of files(site).filter((n) => readFileSync(join(site, n), "utf8").includes("data-kind="))) {
      const page = await open(name);
      for (const box of await page.locator(".exercise[data-kind=number]").all()) {
        const answer = Number(await box.getAttribute("data-answer"));
        const verdict = async (text) => {
          await box.locator("input").fill(text);
          await box.locator("button").click();
          return box.locator(".verdict").getAttribute("class");
        };
        const wrong = await verdict(String(answer * 1.5 + 1));
        const closed = !(await box.locator("details.explanation").evaluate((d) => d.open));
        seen.push({ name, wrong, words: await verdict("seven"), right: await verdict(String(answer)), closed, opened: await box.locator("details.explanation").evaluate((d) => d.open) });
      }
      for (const box of await page.locator(".exercise[data-kind=choice]").all()) {
        const answer = Number(await box.getAttribute("data-answer"));
        const verdict = async (n) => {
          await box.locator("input[type=radio]").nth(n - 1).check();
          await box.locator("button").click();
          return box.locator(".verdict").getAttribute("class");
        };
        seen.push({ name, wrong: await verdict(answer === 1 ? 2 : 1), right: await verdict(answer), closed: true, opened: await box.locator("details.explanation").evaluate((d) => d.open) });
      }
      await close(page);
    }
    return { seen };
  },
  // The worker starts; the README's example gives its digits; an edited cell gives another result; reset restores it.
  async example() {
    const page = await open("index.html");
    const cell = page.locator(".cell").first();
    const output = cell.locator(".cell-output");
    const built = await output.innerText();
    const status = await press(cell.locator(".cell-tools"));
    const ran = await output.innerText();
    const area = cell.locator("textarea");
    const source = await area.inputValue();
    await area.fill(source + "\nprint('and', 6 * 7)");
    await press(cell.locator(".cell-tools"));
    const edited = await output.innerText();
    await area.fill("1 / 0");
    const failed = await press(cell.locator(".cell-tools"));
    const error = await output.innerText();
    await cell.locator(".cell-tools button", { hasText: "Reset" }).click();
    const result = { built, status, ran, edited, failed, error, source: (await area.inputValue()) === source, reset: await output.innerText() };
    await close(page);
    return result;
  },
  // A changed sign in a backward turns its arguments red, and reset turns them green.
  async mutation() {
    const page = await open("code/lstm.html");
    const tools = page.locator(".cell-tools.sticky");
    const verdicts = () => tools.locator(".verdict").evaluateAll((all) => all.map((v) => `${v.className.split(" ").pop()} ${v.textContent.slice(2)}`));
    await press(tools);
    const before = await verdicts();
    const block = page.locator(".code", { hasText: "dc_t = f * dc_t + carried_c" });
    await block.locator("pre").first().click();
    const area = block.locator("textarea");
    await area.fill((await area.inputValue()).replace("dc_t = f * dc_t", "dc_t = -f * dc_t"));
    await press(tools);
    const mutated = await verdicts();
    const wrong = await accessible(page);
    await tools.locator("button", { hasText: "Reset" }).click();
    await press(tools);
    const after = await verdicts();
    await close(page);
    return { before, mutated, after, wrong };
  },
  // The explorer's numbers for every mask: as the site was built, by keys, and computed in the page, by clicks.
  async explorer() {
    const page = await open("explorer.html");
    await page.locator("#explorer[data-ready]").waitFor();
    const shown = () =>
      page.evaluate(() => ({
        d: document.getElementById("ex-d").textContent,
        units: [...document.querySelectorAll(".ex-unit")].map((unit) => ({
          dropped: unit.querySelector("button").getAttribute("aria-pressed") === "true",
          numbers: [...unit.querySelectorAll(".ex-gain b")].map((b) => b.textContent),
        })),
        said: document.querySelector(".ex-said").textContent,
      }));
    const all = async (flip) => {
      const seen = [await shown()];
      for (let n = 1; n < 256; n++) {
        await flip(31 - Math.clz32(n & -n)); // Gray's order: every mask once, one flip at a time
        seen.push(await shown());
      }
      await page.locator(".ex-buttons button").first().click();
      return seen;
    };
    await page.locator(".ex-unit button").first().focus();
    const built = await all((unit) => page.keyboard.press(String(unit + 1)));
    const choose = async (n, value) => {
      await page.locator(".ex-settings select").nth(n).selectOption(value);
      await page.locator("#explorer:not([aria-busy])").waitFor();
    };
    await choose(0, "kl");
    await choose(1, "kept");
    const live = await all((unit) => page.locator(".ex-unit button").nth(unit).click());
    await page.locator("text=Run all searches here").click();
    await page.locator(".ex-compare table").waitFor();
    const searches = await page.locator(".ex-compare tbody tr").evaluateAll((rows) => rows.map((row) => [...row.children].slice(0, 4).map((cell) => cell.textContent)));
    await page.locator(".ex-compare tbody button").nth(1).click();
    await page.locator(".ex-steps li").first().waitFor();
    const steps = await page.locator(".ex-steps li").count();
    await page.locator(".ex-steps [data-key=next]").press("Enter");
    const focus = await page.evaluate(() => document.activeElement.dataset.key);
    const wrong = await accessible(page);
    const status = await page.locator(".ex-status").textContent();
    await close(page);
    return { built, live, searches, steps, focus, status, wrong };
  },
  // From file:// the explorer shows what was built, and says what the rest needs.
  async "explorer from a file"() {
    const page = await open("explorer.html", { base: pathToFileURL(site).href + "/" });
    await page.locator("#explorer[data-ready]").waitFor();
    await page.locator(".ex-unit button").nth(2).click();
    const said = await page.locator(".ex-said").textContent();
    await page.locator(".ex-settings select").first().selectOption("kl");
    await page.locator("#explorer:not([aria-busy])").waitFor();
    const result = { said, status: await page.locator(".ex-status").textContent(), distance: await page.locator(".ex-settings select").first().inputValue() };
    complaints.splice(0, complaints.length, ...complaints.filter((c) => !c.includes("live.js"))); // a module is not loaded from a file
    await close(page);
    return result;
  },
  // The museum: each mistake that is planted in the page is noticed, and is gone when it is taken out.
  async museum() {
    const page = await open("museum.html");
    const seen = [];
    for (const piece of await page.locator(".museum").all()) {
      const verdict = async (name) => {
        await piece.locator("button", { hasText: name }).click();
        await piece.locator("button:disabled").first().waitFor({ timeout: 2000 }).catch(() => {});
        await piece.locator("button:not(:disabled)").nth(1).waitFor();
        return [await piece.locator("[role=status]").getAttribute("data-verdict"), await piece.locator("[role=status]").textContent()];
      };
      seen.push({ planted: await verdict("Plant it"), restored: await verdict("Take it out") });
    }
    const wrong = await accessible(page);
    await close(page);
    return { seen, wrong };
  },
  // Exercises of code, with the worker: what is given is refused, the solution is accepted.
  async code() {
    const seen = [];
    for (const name of files(site)) {
      if (!readFileSync(join(site, name), "utf8").includes('data-kind="code"')) continue;
      const page = await open(name);
      for (const box of await page.locator(".exercise[data-kind=code]").all()) {
        const tools = box.locator(".cell-tools");
        await press(tools);
        const given = await box.locator(".verdict").getAttribute("class");
        await box.locator("textarea").fill(await box.locator("details.explanation pre").first().textContent());
        await press(tools);
        seen.push({ name, wrong: given, right: await box.locator(".verdict").getAttribute("class") });
      }
      await close(page);
    }
    return { seen };
  },
};

const result = await scenarios[scenario]();
await browser.close();
server.close();
process.stdout.write(JSON.stringify({ ...result, complaints }));
