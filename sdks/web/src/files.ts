// What the library sees as files: folders in memory, and files that are in memory or behind something that reads at once.

/** A file. All of it is synchronous, as the library is. */
export interface FileBody {
  size(): number;
  /** Reads into `into` from `at` on; returns how many bytes. */
  read(into: Uint8Array, at: number): number;
  /** Absent where it is read-only. */
  write?(from: Uint8Array, at: number): number;
  truncate?(size: number): void;
  close?(): void;
}

/** A file in memory. */
export class MemoryFile implements FileBody {
  #bytes: Uint8Array;
  #size: number;

  constructor(bytes: Uint8Array = new Uint8Array(0)) {
    this.#bytes = bytes;
    this.#size = bytes.length;
  }

  size(): number {
    return this.#size;
  }

  bytes(): Uint8Array {
    return this.#bytes.subarray(0, this.#size);
  }

  read(into: Uint8Array, at: number): number {
    const part = this.#bytes.subarray(Math.min(at, this.#size), Math.min(at + into.length, this.#size));
    into.set(part);
    return part.length;
  }

  write(from: Uint8Array, at: number): number {
    if (at + from.length > this.#bytes.length) {
      const grown = new Uint8Array(Math.max(at + from.length, 2 * this.#bytes.length));
      grown.set(this.bytes());
      this.#bytes = grown;
    }
    // What lies between the old end and `at` may hold what was cut off before.
    if (at > this.#size) this.#bytes.fill(0, this.#size, at);
    this.#bytes.set(from, at);
    this.#size = Math.max(this.#size, at + from.length);
    return from.length;
  }

  truncate(size: number): void {
    if (size > this.#size) this.write(new Uint8Array(size - this.#size), this.#size);
    this.#size = size;
  }
}

/** A folder in memory. One that is elsewhere overrides what has no underscore. */
export class Folder {
  protected readonly _children = new Map<string, Folder | FileBody>();

  get(name: string): Folder | FileBody | undefined {
    return this._children.get(name);
  }

  names(): string[] {
    return [...this._children.keys()];
  }

  /** Makes an empty file; there is nothing of that name yet. */
  makeFile(name: string): FileBody {
    const body = new MemoryFile();
    this._children.set(name, body);
    return body;
  }

  /** Makes an empty folder; there is nothing of that name yet. */
  makeFolder(name: string): Folder {
    const folder = new Folder();
    this._children.set(name, folder);
    return folder;
  }

  /** Takes a child away; what was opened of it stays open. */
  drop(name: string): void {
    this._children.delete(name);
  }

  /** Moves a child to a folder of the same kind, over what is there. */
  move(name: string, to: Folder, toName: string): void {
    const child = this._children.get(name);
    if (child === undefined) return;
    this._children.delete(name);
    to._children.set(toName, child);
  }

  /** The folder at `path` under this one, made where it is not there. */
  folder(path: string): Folder {
    let folder: Folder = this;
    for (const name of parts(path)) {
      const child = folder.get(name);
      folder = child instanceof Folder ? child : folder.makeFolder(name);
    }
    return folder;
  }

  /** Puts `body` at `path`. */
  put(path: string, body: Folder | FileBody): void {
    const names = parts(path);
    const name = names.pop();
    if (name === undefined) throw new Error("a file needs a name");
    this.folder(names.join("/"))._children.set(name, body);
  }

  /** What is at `path`. */
  find(path: string): Folder | FileBody | undefined {
    let found: Folder | FileBody | undefined = this;
    for (const name of parts(path)) {
      if (!(found instanceof Folder)) return undefined;
      found = found.get(name);
    }
    return found;
  }

  /** Takes away what is at `path`, and closes what was open. */
  remove(path: string): void {
    const names = parts(path);
    const name = names.pop();
    const parent = this.find(names.join("/"));
    if (name === undefined || !(parent instanceof Folder)) return;
    const child = parent.get(name);
    parent.drop(name);
    if (child !== undefined) closeAll(child);
  }
}

function closeAll(what: Folder | FileBody): void {
  if (!(what instanceof Folder)) what.close?.();
  else for (const name of what.names()) closeAll(what.get(name)!);
}

/** The names of a path, without `.` and `..`. */
export function parts(path: string): string[] {
  const names: string[] = [];
  for (const name of path.split("/")) {
    if (name === "..") names.pop();
    else if (name !== "" && name !== ".") names.push(name);
  }
  return names;
}
