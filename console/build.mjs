// Builds the console into `dist` or another folder, its tests (`--tests`), or those that need a browser (`--browser`).
//
// `dist` is checked in, so that `cargo build` needs no Node. The same sources give the same bytes: versions are exact, no time
// and no path goes in. The files of an address that is cached for ever carry the hash of their content in it.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const here = new URL("./", import.meta.url).pathname;
const at = (path) => here + path;

/** The most that a browser loads, compressed. */
const BYTES_MOST = 250_000;

async function bundle(out) {
  const built = await build({
    absWorkingDir: here,
    entryPoints: { console: "src/main.tsx" },
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "inline",
    outdir: "dist",
    write: false,
  });
  const files = new Map(built.outputFiles.map((file) => [file.path.split("/").at(-1), Buffer.from(file.contents)]));
  files.set("icon.svg", readFileSync(at("icon.svg")));
  let page = readFileSync(at("index.html"), "utf8");
  for (const [name, content] of files) {
    const hash = createHash("sha256").update(content).digest("hex").slice(0, 16);
    page = page.replace(`/assets/${name}`, `/assets/${name}?v=${hash}`);
  }
  files.set("index.html", Buffer.from(page));
  const packed = [...files].map(([name, content]) => [`${name}.gz`, gzipSync(content, { level: 9 })]);
  const bytes = packed.reduce((sum, [, content]) => sum + content.length, 0);
  if (bytes > BYTES_MOST) throw new Error(`the console is ${bytes} bytes compressed, more than ${BYTES_MOST}`);
  rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  for (const [name, content] of [...files, ...packed]) writeFileSync(`${out}/${name}`, content);
  console.log(`${files.size} files, ${bytes} bytes compressed`);
}

async function tests(from, out) {
  const names = readdirSync(at(from)).filter((name) => name.endsWith(".test.ts") || name === "pictures.ts");
  rmSync(at(out), { recursive: true, force: true });
  await build({
    absWorkingDir: here,
    entryPoints: names.map((name) => `${from}/${name}`),
    external: ["playwright-core", "axe-core"],
    bundle: true,
    format: "esm",
    platform: "node",
    target: "node20",
    jsx: "automatic",
    jsxImportSource: "preact",
    outdir: out,
    outExtension: { ".js": ".mjs" },
    logLevel: "warning",
  });
}

const wish = process.argv[2] ?? at("dist");
if (wish === "--tests") await tests("test", "target/tests");
else if (wish === "--browser") await tests("browser", "target/browser");
else await bundle(wish);
