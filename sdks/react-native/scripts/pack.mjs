// Copies into the package what it shares with others, checks that all of it is there, and packs it as a dry run.
//
//   node scripts/pack.mjs [--out FOLDER]        --out writes the archive there
//
// CACTUS_ANDROID is a folder with <abi>/libcactus.so; CACTUS_XCFRAMEWORK is Cactus.xcframework. Without them the package is packed
// without libraries, and says so.

import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const node = join(root, "..", "node");
const fresh = (path) => (rmSync(path, { recursive: true, force: true }), mkdirSync(path, { recursive: true }), path);

const api = fresh(join(root, "src", "api"));
for (const file of readdirSync(join(node, "src"))) if (file !== "node.ts") cpSync(join(node, "src", file), join(api, file));
const core = fresh(join(root, "cpp", "core"));
for (const file of readdirSync(join(node, "native"))) if (file !== "addon.cpp") cpSync(join(node, "native", file), join(core, file));
cpSync(join(root, "..", "..", "crates", "ffi", "include", "cactus.h"), join(core, "cactus.h"));

const { CACTUS_ANDROID: android, CACTUS_XCFRAMEWORK: framework } = process.env;
if (android) cpSync(android, join(root, "android", "src", "main", "jniLibs"), { recursive: true });
else console.log("SKIPPED: libraries for Android (CACTUS_ANDROID)");
if (framework) cpSync(framework, join(root, "ios", "Cactus.xcframework"), { recursive: true });
else console.log("SKIPPED: libraries for iOS (CACTUS_XCFRAMEWORK)");

const at = process.argv.indexOf("--out");
const args = at === -1 ? ["--dry-run"] : ["--pack-destination", process.argv[at + 1]];
const said = JSON.parse(execFileSync("npm", ["pack", "--json", ...args], { cwd: root, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }));
const { files, filename } = Array.isArray(said) ? said[0] : Object.values(said)[0];
const packed = files.map((file) => file.path);
for (const needed of ["src/index.ts", "src/api/api.ts", "cpp/jsi_native.cpp", "cpp/core/raw.cpp", "cpp/core/cactus.h", "android/build.gradle", "android/CMakeLists.txt", "ios/CactusModule.mm", "CactusEngine.podspec", "app.plugin.js", "README.md"]) {
  if (!packed.includes(needed)) throw new Error(`${needed} is not in the package`);
}
if (packed.some((path) => /^(build|test)\//.test(path))) throw new Error("what is for tests alone is in the package");
console.log(`${filename}: ${packed.length} files`);
