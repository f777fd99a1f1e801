// Builds the package: the addon into build/, JavaScript and types into dist/.
//
//   node scripts/build.mjs [addon|js]
//
// CXX and CXXFLAGS say how the addon is compiled, CACTUS_ADDON where it goes. CACTUS_INCLUDE is the folder of cactus.h; that of the repository without it.

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const require = createRequire(join(root, "package.json"));
const wanted = process.argv.slice(2);
const run = (program, args) => execFileSync(program, args, { stdio: "inherit", cwd: root });
const words = (text) => (text ?? "").split(/\s+/).filter((word) => word !== "");

/** The headers of Node-API: those of the package, or of this Node. */
function headers() {
  try {
    return require("node-api-headers").include_dir;
  } catch {
    const beside = join(dirname(process.execPath), "..", "include", "node");
    if (existsSync(join(beside, "node_api.h"))) return beside;
    throw new Error("the headers of Node-API are missing: npm install node-api-headers");
  }
}

function addon() {
  const native = join(root, "native");
  const sources = readdirSync(native).filter((file) => file.endsWith(".cpp")).map((file) => join(native, file));
  const out = process.env.CACTUS_ADDON ?? join(root, "build", "cactus.node");
  const include = process.env.CACTUS_INCLUDE ?? join(root, "..", "..", "crates", "ffi", "include");
  const all = [...readdirSync(native).map((file) => join(native, file)), join(include, "cactus.h")];
  if (existsSync(out) && wanted.length === 0 && all.every((file) => statSync(file).mtimeMs < statSync(out).mtimeMs)) return;
  mkdirSync(dirname(out), { recursive: true });
  const mac = process.platform === "darwin";
  run(process.env.CXX ?? "c++", [
    "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-pthread",
    ...(mac ? ["-bundle", "-undefined", "dynamic_lookup"] : ["-shared", "-Wl,-z,max-page-size=16384"]),
    ...words(process.env.CXXFLAGS),
    `-I${include}`, `-I${headers()}`,
    ...sources, "-o", out,
    ...(mac ? [] : ["-ldl"]),
  ]);
}

function javascript() {
  run(process.execPath, [join(dirname(require.resolve("typescript/package.json")), "bin", "tsc"), "-p", "."]);
  // One copy of the classes for both kinds of modules: that for `import` only passes on.
  const names = Object.keys(require(join(root, "dist", "node.js"))).filter((name) => name !== "default" && name !== "__esModule");
  const lines = [`import cactus from "./node.js";`, `export const { ${names.sort().join(", ")} } = cactus;`, ""];
  writeFileSync(join(root, "dist", "node.mjs"), lines.join("\n"));
  writeFileSync(join(root, "dist", "node.d.mts"), `export * from "./node.js";\n`);
}

if (wanted.length === 0 || wanted.includes("addon")) addon();
if (wanted.length === 0 || wanted.includes("js")) javascript();
