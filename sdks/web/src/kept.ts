// Bundles in a browser: fetched file by file from the address of their folder, kept in the origin's private file system, checked,
// and read from there without the network the next time. What was fetched of a file that broke off is not fetched again.

import { type FileBody, parts } from "./files.ts";
import { Heard, type SourceOptions, type Sources } from "./engine.ts";
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
    throw inUse(file.name, thrown);
  }
}

/** What another tab has open is busy. Anything else stays what it is. */
function inUse(name: string, thrown: unknown): unknown {
  if ((thrown as Error).name !== "NoModificationAllowedError") return thrown;
  return new Failure(-10, "busy", `\`${name}\` is in use by another tab`);
}

/** Takes a bundle away, if it is there. */
async function removed(root: FileSystemDirectoryHandle, key: string, source: string): Promise<void> {
  try {
    await root.removeEntry(key, { recursive: true });
  } catch (thrown) {
    if ((thrown as Error).name !== "NotFoundError") throw inUse(source, thrown);
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

/** A bundle that the library sees. */
interface Open {
  source: string;
  /** How often it was opened. */
  count: number;
}

export class Kept implements Sources {
  /** By their paths. */
  #open = new Map<string, Open>();
  /** What is under way with a bundle: one at a time. */
  #turns = new Map<string, Promise<unknown>>();

  async open(library: Library, name: string, options: SourceOptions, heard: Heard): Promise<string> {
    const source = addressOf(name);
    const key = await keyOf(source);
    return this.#inTurn(key, heard, async () => {
      if (options.reconvert === true && this.#open.has(pathOf(key))) throw new Failure(-10, "busy", `${source} is loaded; close its models first`);
      return this.#opened(library, key, source, async (path) => {
        const folder = await this.#fetched(source, key, options, heard);
        await mount(library, folder, path);
        await this.#check(library, folder, path, source, heard);
      });
    });
  }

  /** Opens a bundle once more. `see` makes it visible where it is not. */
  async #opened(library: Library, key: string, source: string, see: (path: string) => Promise<void>): Promise<string> {
    const path = pathOf(key);
    const open = this.#open.get(path);
    if (open !== undefined) {
      open.count++;
      return path;
    }
    try {
      await see(path);
    } catch (thrown) {
      // Also where only a part of it was visible.
      library.files.remove(path);
      throw thrown;
    }
    this.#open.set(path, { source, count: 1 });
    return path;
  }

  async close(library: Library, path: string): Promise<void> {
    const open = this.#open.get(path);
    if (open === undefined || --open.count > 0) return;
    this.#open.delete(path);
    library.files.remove(path);
  }

  async show(library: Library, path: string): Promise<string> {
    // A file that was put there, or a bundle that is kept.
    const open = this.#open.get(path);
    if (open !== undefined) open.count++;
    if (library.files.find(path) !== undefined) return path;
    const source = addressOf(path);
    const key = await keyOf(source);
    return this.#inTurn(key, undefined, async () => {
      const folder = await (await bundles()).getDirectoryHandle(key).catch(() => undefined);
      if (folder === undefined) return path;
      return this.#opened(library, key, source, (path) => mount(library, folder, path));
    });
  }

  async reach(library: Library, path: string): Promise<string> {
    return library.files.find(path) === undefined ? this.open(library, path, {}, new Heard(null)) : path;
  }

  nameOf(path: string): string {
    return this.#open.get(path)?.source ?? path;
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
    const source = addressOf(name);
    const key = await keyOf(source);
    return this.#inTurn(key, undefined, async () => {
      if (this.#open.has(pathOf(key))) throw new Failure(-10, "busy", `${name} is loaded; close its models first`);
      await removed(await bundles(), key, source);
    });
  }

  /** Does `work` when what is under way with the bundle is done. Whoever is told to stop waits no longer. */
  async #inTurn<T>(key: string, heard: Heard | undefined, work: () => Promise<T>): Promise<T> {
    const before = this.#turns.get(key);
    let isBegun = false;
    const begun = async (): Promise<T> => {
      heard?.signal.throwIfAborted();
      isBegun = true;
      return work();
    };
    const turn = before === undefined ? begun() : before.then(begun, begun);
    this.#turns.set(key, turn);
    const over = (): void => {
      if (this.#turns.get(key) === turn) this.#turns.delete(key);
    };
    turn.then(over, over);
    if (before === undefined || heard === undefined) return turn;
    // Somebody else fetches it.
    heard.tell("downloading", "", 0, 0);
    const { signal } = heard;
    return new Promise((give, fail) => {
      // What has begun stops by itself, and lets go of what it has opened.
      const stop = (): void => void (isBegun || fail(signal.reason));
      signal.addEventListener("abort", stop, { once: true });
      turn.then(give, fail).finally(() => signal.removeEventListener("abort", stop));
    });
  }

  /** The folder of a bundle, with all of its files. */
  async #fetched(source: string, key: string, options: SourceOptions, heard: Heard): Promise<FileSystemDirectoryHandle> {
    const root = await bundles();
    if (options.reconvert === true) await removed(root, key, source);
    const kept = await root.getDirectoryHandle(key).catch(() => undefined);
    const state = kept === undefined ? undefined : await stateOf(kept);
    if (kept !== undefined && state?.whole === true) return kept;
    if (options.offline === true) throw new Failure(-17, "offline", `${source} is not on this device, and the network is turned off`);
    heard.tell("downloading", MANIFEST, 0, 0);
    const manifest = await fetched(source, MANIFEST, heard.signal);
    const { checksum, files } = parsed(manifest, source) as { checksum: string; files: { [path: string]: { bytes: number } } };
    if (state !== undefined && state.checksum !== checksum) await removed(root, key, source);
    // Of what is not there, nothing is kept.
    const folder = await root.getDirectoryHandle(key, { create: true });
    await put(folder, STATE, new TextEncoder().encode(JSON.stringify({ source, checksum, whole: false } satisfies State)));
    await put(folder, MANIFEST, manifest);
    const weights = await fetched(source, WEIGHTS, heard.signal);
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
      heard.tell("downloading", file, Math.min(done, total), total);
    };
    for (const [path, bytes] of sizes) {
      say(path, true);
      heard.signal.throwIfAborted();
      try {
        await this.#file(source, folder, path, bytes, heard.signal, (more) => {
          done += more;
          say(path, false);
        });
      } catch (thrown) {
        if (thrown instanceof Failure && thrown.kind === "bundle") await removed(root, key, source);
        throw thrown;
      }
    }
    say("", true);
    return folder;
  }

  /** Fetches what is missing of a file of at least `bytes`. `came` hears how much is there, and how much more. */
  async #file(source: string, folder: FileSystemDirectoryHandle, path: string, bytes: number, signal: AbortSignal, came: (more: number) => void): Promise<void> {
    const address = `${source}${path.split("/").map(encodeURIComponent).join("/")}`;
    const handle = await handleOf(await fileAt(folder, path, true), "readwrite");
    try {
      let at = handle.getSize();
      if (at >= bytes) {
        came(bytes);
        return;
      }
      const answer = await fetch(address, { signal, ...(at > 0 ? { headers: { range: `bytes=${at}-` } } : {}) });
      const short = (length: number): Failure => new Failure(-5, "bundle", `${address} has ${length} bytes, and its manifest says ${bytes}`);
      // There is nothing behind what was kept.
      if (answer.status === 416) throw short(at);
      if (!answer.ok) throw status(address, answer.status);
      if (answer.status !== 206) at = 0;
      came(at);
      let fetched = 0;
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
          fetched += value.length;
          came(value.length);
        }
      } finally {
        // Where it ended too soon, nobody reads the rest.
        void reader.cancel().catch(() => {});
        // What has come is kept, also where the rest has not.
        flush();
        handle.flush();
      }
      handle.truncate(at);
      // All that was announced has come.
      if (at < bytes && fetched === Number(answer.headers.get("content-length") ?? Number.NaN)) throw short(at);
      if (at < bytes) throw new Failure(-13, "fetch", `${address} ended after ${at} of ${bytes} bytes; load it again to go on`);
    } catch (thrown) {
      throw failed(address, thrown);
    } finally {
      handle.close();
    }
  }

  /** Compares all of a new bundle with its checksums. One that is damaged is forgotten. */
  async #check(library: Library, folder: FileSystemDirectoryHandle, path: string, source: string, heard: Heard): Promise<void> {
    const state = await stateOf(folder);
    if (state?.whole === true) return;
    heard.tell("checking", source, 0, 0);
    // What follows is computed as a whole.
    await heard.goesOn();
    const report = JSON.parse(library.calls.checkBundle(path, true)) as { usable: boolean; code: number; kind: Failure["kind"]; message: string };
    // Whole is also what makes vectors or hears, and answers no prompts.
    if (!report.usable && report.kind !== "unsupported") {
      library.files.remove(path);
      if (report.kind === "bundle") await removed(await bundles(), folder.name, source);
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

/** Where the library sees a bundle. */
function pathOf(key: string): string {
  return `${MOUNT}/${key}`;
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
async function fetched(source: string, path: string, signal: AbortSignal): Promise<Uint8Array> {
  try {
    const answer = await fetch(source + path, { signal });
    if (!answer.ok) throw status(source + path, answer.status);
    return new Uint8Array(await answer.arrayBuffer());
  } catch (thrown) {
    throw failed(source + path, thrown);
  }
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
