// Node, Bun and Deno: finds the addon and the library when the first function is called.

import { existsSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { CactusError, understood } from "./errors.ts";
import { type Native, provide } from "./native.ts";

export * from "./api.ts";

/** The library that `useLibrary` names. */
let told: string | undefined;

/** Says where libcactus is: its file, or the folder of it. Before the first call; `CACTUS_LIB_PATH` says the same. */
export function useLibrary(path: string): void {
  told = path;
  provide(load);
}

function libraryName(): string {
  switch (process.platform) {
    case "win32":
      return "cactus.dll";
    case "darwin":
      return "libcactus.dylib";
    default:
      return "libcactus.so";
  }
}

/** As in `linux-x64-gnu`. */
function platform(): string {
  if (process.platform !== "linux") return `${process.platform}-${process.arch}`;
  const report = process.report?.getReport?.() as { header?: { glibcVersionRuntime?: string } } | undefined;
  // Some hosts make no report, and some systems have both.
  const loader = `/lib/ld-musl-${process.arch === "arm64" ? "aarch64" : "x86_64"}.so.1`;
  const isMusl = report?.header?.glibcVersionRuntime === undefined && existsSync(loader);
  return `${process.platform}-${process.arch}-${isMusl ? "musl" : "gnu"}`;
}

/** The addon, and the folder that it lies in. `CACTUS_ADDON` names another. */
function findAddon(): { path: string; folder: string } {
  const named = process.env["CACTUS_ADDON"];
  if (named !== undefined && named !== "") return { path: named, folder: dirname(named) };
  const tried: string[] = [];
  // Where it is built, in the repository.
  const folders = [join(__dirname, "..", "build")];
  try {
    folders.unshift(join(require.resolve(`@cactus-engine/${platform()}/package.json`), ".."));
  } catch {
    tried.push(`the package @cactus-engine/${platform()}`);
  }
  for (const folder of folders) {
    const path = join(folder, "cactus.node");
    if (existsSync(path)) return { path, folder };
    tried.push(path);
  }
  throw new CactusError("not_in_build", `there is no addon for ${platform()}; looked for ${tried.join(" and ")}`, -15);
}

/** Where the library may be: what was told alone, else beside the addon, else where the system looks. */
function findLibrary(folder: string): string {
  const named = told ?? process.env["CACTUS_LIB_PATH"];
  if (named !== undefined && named !== "") {
    return statSync(named, { throwIfNoEntry: false })?.isDirectory() === true ? join(named, libraryName()) : named;
  }
  const beside = join(folder, libraryName());
  return existsSync(beside) ? beside : libraryName();
}

function load(): Native {
  const { path, folder } = findAddon();
  const addon = require(path) as { open(library: string): Native };
  try {
    return addon.open(findLibrary(folder));
  } catch (thrown) {
    throw understood(thrown);
  }
}

provide(load);
