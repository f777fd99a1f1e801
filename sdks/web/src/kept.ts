// Bundles in a browser: fetched file by file from the address of their folder, kept in the origin's private file system, checked,
// and read from there without the network the next time. What was fetched of a file that broke off is not fetched again.

import { type FileBody, parts } from "./files.ts";
import type { SourceOptions, Sources, Tell } from "./engine.ts";
import { Failure, type Library } from "./library.ts";

const MANIFEST = "components/manifest.json";
const WEIGHTS = "weights_manifest.json";
/** What is known of a kept bundle. No bundle has a file of that name. */
const STATE = ".kept.json";
const FOLDER = "cactus-bundles";
/** Where the library sees bundles. */
const MOUNT = "/bundles";
/** Bytes that are written at once. */
const WRITE_BYTES = 1 << 20;
/** Milliseconds between two words on progress. */
const TELL_EVERY = 100;

/** What only workers have. The types of workers and those of pages exclude each other. */
interface FileSystemSyncAccessHandle {
  getSize(): number;
  read(into: Uint8Array, options: { at: number }): number;
  write(from: Uint8Array, options: { at: number }): number;
  truncate(size: number): void;
  flush(): void;
  close(): void;
}

interface State {
  source: string;
  /** The manifest's own checksum: what was begun of another version is void. */
  checksum: string;
  whole: boolean;
}

/** A file that is open here. Tabs that can share it do. */
async function handleOf(file: FileSystemFileHandle, mode: "read-only" | "readwrite"): Promise<FileSystemSyncAccessHandle> {
  const opens = file as FileSystemFileHandle & { createSyncAccessHandle(options: { mode: string }): Promise<FileSystemSyncAccessHandle> };
  try {
    return await opens.createSyncAccessHandle({ mode });
  } catch (thrown) {
    if ((thrown as DOMException).name !== "NoModificationAllowedError") throw thrown;
    throw new Failure(-10, "busy", `\`${file.name}\` is in use by another tab`);
  }
}

/** A kept file as the library sees it. */
class KeptFile implements FileBody {
  readonly #handle: FileSystemSyncAccessHandle;

  constructor(handle: FileSystemSyncAccessHandle) {
    this.#handle = handle;
  }

  size(): number {
    return this.#handle.getSize();
  }

  read(into: Uint8Array, at: number): number {
    return this.#handle.read(into, { at });
  }

  close(): void {
    this.#handle.close();
  }
}

/** A network error as one of the library's. */
function failed(address: string, why: unknown): Failure {
  if (why instanceof Failure) return why;
  const error = why as Error;
  if (error.name === "QuotaExceededError") return new Failure(-14, "system", `there is no room for ${address}: ${error.message}`);
  return new Failure(-17, "offline", `${address} cannot be fetched: ${error.message}`);
}

function status(address: string, code: number): Failure {
  if (code === 401 || code === 403) return new Failure(-18, "unauthorized", `${address} is refused: status ${code}`);
  if (code === 404 || code === 410) return new Failure(-16, "not_found", `there is nothing at ${address}: status ${code}`);
  return new Failure(-13, "fetch", `${address} cannot be fetched: status ${code}`);
}

export class Kept implements Sources {
  /** Bundles that are open, and how often. */
  #open = new Map<string, number>();
  /** What is under way with a bundle: one at a time. */
  #turns = new Map<string, Promise<unknown>>();

  async open(library: Library, name: string, options: SourceOptions, tell: Tell): Promise<string> {
    const source = addressOf(name);
    const key = await keyOf(source);
    const path = `${MOUNT}/${key}`;
    return this.#inTurn(key, async () => {
      const open = this.#open.get(key) ?? 0;
      if (open === 0) {
        const folder = await this.#fetched(source, key, options, tell);
        await mount(library, folder, path);
        try {
          await this.#check(library, folder, path, source, tell);
        } catch (thrown) {
          library.files.remove(path);
          throw thrown;
        }
      }
      this.#open.set(key, open + 1);
      return path;
    });
  }

  async close(library: Library, path: string): Promise<void> {
    const key = parts(path).pop()!;
    const open = this.#open.get(key);
    if (open === undefined) return;
    if (open > 1) {
      this.#open.set(key, open - 1);
    } else {
      this.#open.delete(key);
      library.files.remove(path);
    }
  }

  async show(library: Library, path: string): Promise<string> {
    // A file that was put there, or a bundle that is kept.
    if (library.files.find(path) !== undefined) return path;
    const key = await keyOf(addressOf(path));
    const folder = await (await bundles()).getDirectoryHandle(key).catch(() => undefined);
    if (folder === undefined) return path;
    if (!this.#open.has(key)) await mount(library, folder, `${MOUNT}/${key}`);
    return `${MOUNT}/${key}`;
  }

  async listBundles(): Promise<{ source: string; bytes: number; whole: boolean }[]> {
    const all = [];
    for await (const folder of (await bundles()).values()) {
      if (folder.kind !== "directory") continue;
      const state = await stateOf(folder);
      if (state !== undefined) all.push({ source: state.source, bytes: await bytesOf(folder), whole: state.whole });
    }
    return all;
  }

  async removeBundle(name: string): Promise<void> {
    const key = await keyOf(addressOf(name));
    if (this.#open.has(key)) throw new Failure(-10, "busy", `${name} is loaded; close its models first`);
    await (await bundles()).removeEntry(key, { recursive: true }).catch(() => {});
  }

  async #inTurn<T>(key: string, work: () => Promise<T>): Promise<T> {
    const before = this.#turns.get(key) ?? Promise.resolve();
    const turn = before.then(work, work);
    this.#turns.set(key, turn);
    return turn;
  }

  /** The folder of a bundle, with all of its files. */
  async #fetched(source: string, key: string, options: SourceOptions, tell: Tell): Promise<FileSystemDirectoryHandle> {
    const root = await bundles();
    if (options.reconvert === true) await root.removeEntry(key, { recursive: true }).catch(() => {});
    let folder = await root.getDirectoryHandle(key, { create: true });
    const state = await stateOf(folder);
    if (state?.whole === true) return folder;
    if (options.offline === true) throw new Failure(-17, "offline", `${source} is not on this device, and the network is turned off`);
    const manifest = await fetched(source, MANIFEST);
    const { checksum, files } = parsed(manifest, source) as { checksum: string; files: { [path: string]: { bytes: number } } };
    if (state !== undefined && state.checksum !== checksum) {
      await root.removeEntry(key, { recursive: true });
      folder = await root.getDirectoryHandle(key, { create: true });
    }
    await put(folder, STATE, new TextEncoder().encode(JSON.stringify({ source, checksum, whole: false } satisfies State)));
    await put(folder, MANIFEST, manifest);
    const weights = await fetched(source, WEIGHTS);
    const sizes = new Map(Object.entries(files).map(([path, { bytes }]) => [path, bytes]));
    sizes.delete(WEIGHTS);
    await put(folder, WEIGHTS, weights);
    for (const { file, offset, bytes } of Object.values((parsed(weights, source) as { weights: { [name: string]: { file: string; offset: number; bytes: number } } }).weights)) {
      sizes.set(file, Math.max(sizes.get(file) ?? 0, offset + bytes));
    }
    const total = [...sizes.values()].reduce((sum, bytes) => sum + bytes, 0);
    let done = 0;
    let told = 0;
    const say = (file: string, now: boolean): void => {
      if (!now && performance.now() - told < TELL_EVERY) return;
      told = performance.now();
      tell("downloading", file, Math.min(done, total), total);
    };
    for (const [path, bytes] of sizes) {
      say(path, true);
      await this.#file(source, folder, path, bytes, (more) => {
        done += more;
        say(path, false);
      });
    }
    say("", true);
    return folder;
  }

  /** Fetches what is missing of a file of at least `bytes`. `came` hears how much is there, and how much more. */
  async #file(source: string, folder: FileSystemDirectoryHandle, path: string, bytes: number, came: (more: number) => void): Promise<void> {
    const address = `${source}${path.split("/").map(encodeURIComponent).join("/")}`;
    const handle = await handleOf(await fileAt(folder, path, true), "readwrite");
    try {
      let at = handle.getSize();
      if (at >= bytes) {
        came(bytes);
        return;
      }
      const answer = await fetch(address, at > 0 ? { headers: { range: `bytes=${at}-` } } : {});
      if (!answer.ok) throw status(address, answer.status);
      if (answer.status !== 206) at = 0;
      came(at);
      let chunk = new Uint8Array(WRITE_BYTES);
      let filled = 0;
      const flush = (): void => {
        // A short write means that there is no room, which not every browser throws.
        const written = handle.write(chunk.subarray(0, filled), { at });
        if (written < filled) throw new Failure(-14, "system", `there is no room for ${address}`);
        at += filled;
        filled = 0;
      };
      const reader = answer.body!.getReader();
      try {
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          for (let from = 0; from < value.length; ) {
            const part = value.subarray(from, from + chunk.length - filled);
            chunk.set(part, filled);
            filled += part.length;
            from += part.length;
            if (filled === chunk.length) flush();
          }
          came(value.length);
        }
      } finally {
        // What has come is kept, also where the rest has not.
        flush();
        handle.flush();
      }
      handle.truncate(at);
      if (at < bytes) throw new Failure(-13, "fetch", `${address} ended after ${at} of ${bytes} bytes; load it again to go on`);
    } catch (thrown) {
      throw failed(address, thrown);
    } finally {
      handle.close();
    }
  }

  /** Compares all of a new bundle with its checksums. One that is damaged is forgotten. */
  async #check(library: Library, folder: FileSystemDirectoryHandle, path: string, source: string, tell: Tell): Promise<void> {
    const state = await stateOf(folder);
    if (state?.whole === true) return;
    tell("checking", source, 0, 0);
    const report = JSON.parse(library.calls.checkBundle(path, true)) as { usable: boolean; code: number; kind: Failure["kind"]; message: string };
    if (!report.usable) {
      library.files.remove(path);
      if (report.kind === "bundle") await (await bundles()).removeEntry(folder.name, { recursive: true });
      throw new Failure(report.code, report.kind, `${source}: ${report.message}`);
    }
    await put(folder, STATE, new TextEncoder().encode(JSON.stringify({ ...(state as State), whole: true })));
  }
}

/** The address of a folder, which ends with a slash. */
function addressOf(name: string): string {
  let address: URL;
  try {
    address = new URL(name, self.location.href);
  } catch {
    throw new Failure(-3, "argument", `\`source\`: \`${name}\` is no address`);
  }
  address.hash = "";
  return address.href.endsWith("/") ? address.href : `${address.href}/`;
}

async function keyOf(source: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(source));
  const hex = Array.from(new Uint8Array(digest).subarray(0, 8), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const name = parts(new URL(source).pathname).pop() ?? "bundle";
  return `${name.replace(/[^A-Za-z0-9._-]/g, "_")}-${hex}`;
}

async function bundles(): Promise<FileSystemDirectoryHandle> {
  return (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
}

async function fileAt(folder: FileSystemDirectoryHandle, path: string, create: boolean): Promise<FileSystemFileHandle> {
  const names = parts(path);
  const name = names.pop()!;
  let parent = folder;
  for (const name of names) parent = await parent.getDirectoryHandle(name, { create });
  return parent.getFileHandle(name, { create });
}

async function put(folder: FileSystemDirectoryHandle, path: string, bytes: Uint8Array): Promise<void> {
  const handle = await handleOf(await fileAt(folder, path, true), "readwrite");
  try {
    handle.truncate(0);
    if (handle.write(bytes, { at: 0 }) < bytes.length) throw new Failure(-14, "system", `there is no room for ${path}`);
    handle.flush();
  } finally {
    handle.close();
  }
}

async function stateOf(folder: FileSystemDirectoryHandle): Promise<State | undefined> {
  try {
    return JSON.parse(await (await (await fileAt(folder, STATE, false)).getFile()).text()) as State;
  } catch {
    return undefined;
  }
}

async function bytesOf(folder: FileSystemDirectoryHandle): Promise<number> {
  let bytes = 0;
  for await (const child of folder.values()) bytes += child.kind === "file" ? (await child.getFile()).size : await bytesOf(child);
  return bytes;
}

/** A small file of a bundle. */
async function fetched(source: string, path: string): Promise<Uint8Array> {
  let answer: Response;
  try {
    answer = await fetch(source + path);
  } catch (thrown) {
    throw failed(source + path, thrown);
  }
  if (!answer.ok) throw status(source + path, answer.status);
  return new Uint8Array(await answer.arrayBuffer());
}

function parsed(bytes: Uint8Array, source: string): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    throw new Failure(-5, "bundle", `${source} is no bundle: its manifest is not JSON`);
  }
}

/** Makes the files of a kept bundle visible to the library. */
async function mount(library: Library, folder: FileSystemDirectoryHandle, path: string): Promise<void> {
  for await (const child of folder.values()) {
    if (child.kind === "directory") await mount(library, child, `${path}/${child.name}`);
    else if (child.name !== STATE) library.files.put(`${path}/${child.name}`, new KeptFile(await handleOf(child, "read-only")));
  }
}
