// The page's one worker: Python with NumPy and minadv. It loads the parts, unpacks them, and answers calls one by one.
// {id, method, args} comes in; {id, value} or {id, error} goes out, and {progress, what} while it starts.
"use strict";

const base = new URL("live/", location.href);
const files = new Map(); // what Pyodide asks for, by name: unpacked already

const load = async (sizes) => {
  const total = Object.values(sizes).reduce((a, b) => a + b, 0);
  let loaded = 0;
  await Promise.all(
    Object.keys(sizes).map(async (name) => {
      const response = await fetch(new URL(name, base));
      if (!response.ok) throw new Error(`${name} cannot be loaded: ${response.status}`);
      const counted = new TransformStream({
        transform(chunk, controller) {
          loaded += chunk.byteLength;
          postMessage({ progress: (0.8 * loaded) / total, what: `loading Python, ${(loaded / 1e6).toFixed(1)} MB` });
          controller.enqueue(chunk);
        },
      });
      const unzipped = response.body.pipeThrough(counted).pipeThrough(new DecompressionStream("gzip"));
      files.set(name.slice(0, -3), await new Response(unzipped).arrayBuffer());
    }),
  );
};

const script = (name) => {
  const url = URL.createObjectURL(new Blob([files.get(name)], { type: "text/javascript" }));
  importScripts(url);
  URL.revokeObjectURL(url);
};

const types = { wasm: "application/wasm", json: "application/json" };
const start = async () => {
  const sizes = await (await fetch(new URL("parts.json", base))).json();
  await load(sizes);
  const outside = self.fetch;
  self.fetch = (what, ...rest) => {
    const name = String(what.url ?? what).split("/").pop();
    if (!files.has(name)) return outside(what, ...rest);
    const type = types[name.split(".").pop()] ?? "application/octet-stream";
    return Promise.resolve(new Response(files.get(name), { headers: { "Content-Type": type } }));
  };
  postMessage({ progress: 0.82, what: "starting Python" });
  script("pyodide.js");
  script("pyodide.asm.js");
  const python = await loadPyodide({ indexURL: base.href });
  postMessage({ progress: 0.9, what: "unpacking NumPy and minadv" });
  for (const name of ["numpy.tar", "minadv.tar"]) python.FS.writeFile(`/tmp/${name}`, new Uint8Array(files.get(name)));
  files.clear();
  python.runPython(`
import site, sys, tarfile
sys.dont_write_bytecode = True  # a module that is edited twice within a second must not be taken from its bytecode
for name in ("numpy", "minadv"):
    with tarfile.open(f"/tmp/{name}.tar") as tar:
        tar.extractall(site.getsitepackages()[0])
`);
  postMessage({ progress: 0.94, what: "importing minadv" });
  const kernel = python.pyimport("_site.kernel");
  kernel.run("");
  return kernel;
};

const lastLine = (text) => text.trimEnd().split("\n").pop();
let kernel = null;
let queue = Promise.resolve();
onmessage = ({ data: { id, method, args } }) => {
  queue = queue.then(async () => {
    try {
      kernel ??= await start();
      const value = method === "start" ? null : kernel[method](...args);
      postMessage({ id, value: typeof value === "string" ? JSON.parse(value) : null });
    } catch (problem) {
      postMessage({ id, error: lastLine(String(problem.message ?? problem)) });
    }
  });
};
