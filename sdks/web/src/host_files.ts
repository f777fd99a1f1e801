// Node's file system as the library sees it: every path is where it is.

import { closeSync, existsSync, fstatSync, ftruncateSync, mkdirSync, openSync, readdirSync, readSync, renameSync, rmSync, statSync, writeSync } from "node:fs";
import { join } from "node:path";
import { type FileBody, Folder } from "./files.ts";

/** A file of Node's, opened when it is first read. */
class HostFile implements FileBody {
  readonly #path: string;
  #fd: number | undefined;
  #isWritable = false;

  constructor(path: string) {
    this.#path = path;
  }

  #opened(toWrite: boolean): number {
    if (this.#fd === undefined || (toWrite && !this.#isWritable)) {
      this.close();
      this.#fd = openSync(this.#path, toWrite ? "r+" : "r");
      this.#isWritable = toWrite;
      closer?.register(this, this.#fd, this);
    }
    return this.#fd;
  }

  size(): number {
    return this.#fd === undefined ? statSync(this.#path).size : fstatSync(this.#fd).size;
  }

  read(into: Uint8Array, at: number): number {
    let done = 0;
    while (done < into.length) {
      const read = readSync(this.#opened(false), into, done, into.length - done, at + done);
      if (read === 0) break;
      done += read;
    }
    return done;
  }

  write(from: Uint8Array, at: number): number {
    return writeSync(this.#opened(true), from, 0, from.length, at);
  }

  truncate(size: number): void {
    ftruncateSync(this.#opened(true), size);
  }

  close(): void {
    if (this.#fd === undefined) return;
    closer?.unregister(this);
    closeSync(this.#fd);
    this.#fd = undefined;
  }
}

// The library closes files, but who reads them next may still have this object.
const closer = new FinalizationRegistry<number>((fd) => closeSync(fd));

/** A folder of Node's. */
export class HostFolder extends Folder {
  readonly #path: string;

  constructor(path: string) {
    super();
    this.#path = path;
  }

  #child(name: string): Folder | FileBody {
    const path = join(this.#path, name);
    return statSync(path).isDirectory() ? new HostFolder(path) : new HostFile(path);
  }

  override get(name: string): Folder | FileBody | undefined {
    return existsSync(join(this.#path, name)) ? this.#child(name) : undefined;
  }

  override names(): string[] {
    return readdirSync(this.#path);
  }

  override makeFile(name: string): FileBody {
    closeSync(openSync(join(this.#path, name), "wx"));
    return new HostFile(join(this.#path, name));
  }

  override makeFolder(name: string): Folder {
    mkdirSync(join(this.#path, name));
    return new HostFolder(join(this.#path, name));
  }

  override drop(name: string): void {
    rmSync(join(this.#path, name), { recursive: true });
  }

  override move(name: string, to: Folder, toName: string): void {
    if (!(to instanceof HostFolder)) throw new Error("a file cannot leave the file system");
    renameSync(join(this.#path, name), join(to.#path, toName));
  }
}
