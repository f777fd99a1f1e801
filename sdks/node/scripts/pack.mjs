// Writes the packages of npm into packages/: the main one, and one for each platform with addon and library. Then packs them.
//
//   node scripts/pack.mjs [--out FOLDER]        --out writes the archives there; without it, it is a dry run
//
// The addon of this platform is that in build/, its library CACTUS_LIB_PATH. CACTUS_PLATFORMS may name a folder with
// <os>-<cpu>-<libc>/{cactus.node,libcactus.so} of others; a platform without both is skipped, and said so.

import { execFileSync } from "node:child_process";
import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const packages = join(root, "packages");
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const { version, license } = manifest;

const PLATFORMS = [
  ["linux", "x64", "glibc"],
  ["linux", "arm64", "glibc"],
  ["linux", "x64", "musl"],
  ["linux", "arm64", "musl"],
  ["darwin", "arm64"],
  ["darwin", "x64"],
  ["win32", "x64"],
].map(([os, cpu, libc]) => ({ os, cpu, libc, name: [os, cpu, ...(libc === undefined ? [] : [libc === "glibc" ? "gnu" : libc])].join("-") }));
const LIBRARIES = { linux: "libcactus.so", darwin: "libcactus.dylib", win32: "cactus.dll" };

const write = (path, text) => (mkdirSync(dirname(path), { recursive: true }), writeFileSync(path, text));
const json = (path, value) => write(path, `${JSON.stringify(value, null, 2)}\n`);

rmSync(packages, { recursive: true, force: true });
const here = PLATFORMS.find(({ os, cpu, libc }) => os === process.platform && cpu === process.arch && libc !== "musl");
for (const platform of PLATFORMS) {
  const folder = join(packages, platform.name);
  const library = LIBRARIES[platform.os];
  const found = join(process.env.CACTUS_PLATFORMS ?? "", platform.name);
  const [addon, lib] =
    platform === here && process.env.CACTUS_LIB_PATH
      ? [join(root, "build", "cactus.node"), process.env.CACTUS_LIB_PATH]
      : [join(found, "cactus.node"), join(found, library)];
  if (!existsSync(addon) || !existsSync(lib)) {
    console.log(`SKIPPED: @cactus-engine/${platform.name}, of which there is no addon and library`);
    continue;
  }
  mkdirSync(folder, { recursive: true });
  copyFileSync(addon, join(folder, "cactus.node"));
  copyFileSync(lib, join(folder, library));
  json(join(folder, "package.json"), {
    name: `@cactus-engine/${platform.name}`,
    version,
    description: `The library and addon of cactus-engine for ${platform.name}`,
    license,
    os: [platform.os],
    cpu: [platform.cpu],
    ...(platform.libc === undefined ? {} : { libc: [platform.libc] }),
    files: ["cactus.node", library],
    preferUnplugged: true,
  });
  write(join(folder, "README.md"), `The library and addon of \`cactus-engine\` for ${platform.name}. Install that; it takes this one.\n`);
}

const main = join(packages, "cactus-engine");
const { devDependencies: _, scripts: __, ...rest } = manifest;
json(join(main, "package.json"), { ...rest, optionalDependencies: Object.fromEntries(PLATFORMS.map(({ name }) => [`@cactus-engine/${name}`, version])) });
for (const name of ["dist", "src", "README.md", "MIGRATING.md"]) cpSync(join(root, name), join(main, name), { recursive: true });

const at = process.argv.indexOf("--out");
const args = at === -1 ? ["--dry-run"] : ["--pack-destination", process.argv[at + 1]];
for (const folder of [main, ...PLATFORMS.map(({ name }) => join(packages, name))].filter(existsSync)) {
  const said = JSON.parse(execFileSync("npm", ["pack", "--json", ...args], { cwd: folder, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }));
  const { filename, files, size, unpackedSize } = Array.isArray(said) ? said[0] : Object.values(said)[0];
  const needed = folder === main ? ["dist/node.js", "dist/node.mjs", "dist/node.d.ts", "dist/api.js", "src/native.ts", "README.md"] : ["cactus.node", "package.json"];
  for (const path of needed) if (!files.some((file) => file.path === path)) throw new Error(`${path} is not in ${filename}`);
  console.log(`${filename}: ${files.length} files, ${(size / 1024).toFixed(0)} KiB, unpacked ${(unpackedSize / 1024).toFixed(0)} KiB`);
}
