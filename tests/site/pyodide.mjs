// node pyodide.mjs PARTS < pages.json: runs examples in the same WebAssembly parts as the reader's browser.
// In: {page: [{code, answer}, ...]}, out: {page: [{text, error, right}, ...]}.
import { createRequire } from "node:module";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";

const [parts] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), "minadv-live-"));
try {
  for (const name of readdirSync(parts).filter((n) => n.endsWith(".gz")))
    writeFileSync(join(folder, name.slice(0, -3)), gunzipSync(readFileSync(join(parts, name))));
  const { loadPyodide } = createRequire(import.meta.url)(join(folder, "pyodide.js"));
  const python = await loadPyodide({ indexURL: folder });
  for (const name of ["numpy.tar", "minadv.tar"]) python.FS.writeFile(`/tmp/${name}`, readFileSync(join(folder, name)));
  python.runPython(`
import site, sys, tarfile
sys.dont_write_bytecode = True
for name in ("numpy", "minadv"):
    with tarfile.open(f"/tmp/{name}.tar") as tar:
        tar.extractall(site.getsitepackages()[0])
`);
  const kernel = python.pyimport("_site.kernel");
  const results = {};
  for (const [page, examples] of Object.entries(JSON.parse(readFileSync(0, "utf8")))) {
    kernel.reset();
    results[page] = examples.map(({ code, answer, edit }) => {
      if (edit) return { value: kernel.edit(edit, code) };
      return JSON.parse(answer ? kernel.exercise(code, answer) : kernel.run(code));
    });
  }
  process.stdout.write(JSON.stringify(results));
} finally {
  rmSync(folder, { recursive: true });
}
