// What the library asks of its system: `wasi_snapshot_preview1`, as far as Rust's standard library uses it. Files are those of a
// `Folder`; there is no network, no process, no environment and no argument.

import { type FileBody, Folder, parts } from "./files.ts";

const OK = 0;
const BADF = 8;
const EXIST = 20;
const INVAL = 28;
const IO = 29;
const ISDIR = 31;
const NOENT = 44;
const NOSYS = 52;
const NOTDIR = 54;
const NOTEMPTY = 55;
const ROFS = 69;

const DIRECTORY = 3;
const REGULAR = 4;
const CHARACTERS = 2;

/** The one folder that is open from the beginning. */
const ROOT_FD = 3;

interface Open {
  what: Folder | FileBody;
  at: number;
  appends: boolean;
}

/** A program that ended itself: a defect, as the library never does. */
export class Exit extends Error {
  readonly status: number;

  constructor(status: number) {
    super(`the library ended with status ${status}`);
    this.status = status;
  }
}

export class Wasi {
  readonly root: Folder;
  #memory: WebAssembly.Memory | undefined;
  #open = new Map<number, Open>();
  #inodes = new WeakMap<object, bigint>();
  #nextInode = 1n;
  #say: (text: string) => void;
  #line = "";

  /** `say` gets lines of the standard error stream: the message of a defect. */
  constructor(root: Folder, say: (text: string) => void) {
    this.root = root;
    this.#say = say;
    this.#open.set(ROOT_FD, { what: root, at: 0, appends: false });
  }

  /** To be called before anything else. */
  attach(memory: WebAssembly.Memory): void {
    this.#memory = memory;
  }

  #view(): DataView {
    return new DataView(this.#memory!.buffer);
  }

  #bytes(at: number, length: number): Uint8Array {
    return new Uint8Array(this.#memory!.buffer, at >>> 0, length >>> 0);
  }

  #text(at: number, length: number): string {
    // Shared memory is not decoded in place.
    return new TextDecoder().decode(this.#bytes(at, length).slice());
  }

  /** Parent and name of a path below an open folder. */
  #place(fd: number, at: number, length: number): { parent: Folder; name: string; found: Folder | FileBody | undefined } | number {
    const base = this.#open.get(fd)?.what;
    if (base === undefined) return BADF;
    if (!(base instanceof Folder)) return NOTDIR;
    const names = parts(this.#text(at, length));
    const name = names.pop();
    if (name === undefined) return { parent: base, name: "", found: base };
    const parent = base.find(names.join("/"));
    if (parent === undefined) return NOENT;
    if (!(parent instanceof Folder)) return NOTDIR;
    return { parent, name, found: parent.get(name) };
  }

  #inode(what: object): bigint {
    let inode = this.#inodes.get(what);
    if (inode === undefined) {
      inode = this.#nextInode++;
      this.#inodes.set(what, inode);
    }
    return inode;
  }

  #stat(what: Folder | FileBody, at: number): number {
    const view = this.#view();
    this.#bytes(at, 64).fill(0);
    view.setBigUint64(at + 8, this.#inode(what), true);
    view.setUint8(at + 16, what instanceof Folder ? DIRECTORY : REGULAR);
    view.setBigUint64(at + 24, 1n, true);
    view.setBigUint64(at + 32, BigInt(what instanceof Folder ? 0 : what.size()), true);
    return OK;
  }

  #file(fd: number): (Open & { what: FileBody }) | number {
    const open = this.#open.get(fd);
    if (open === undefined) return BADF;
    return open.what instanceof Folder ? ISDIR : (open as Open & { what: FileBody });
  }

  /** Reads or writes each of `count` buffers, whose list is at `list`. */
  #each(list: number, count: number, done: number, one: (bytes: Uint8Array) => number): number {
    let total = 0;
    for (let i = 0; i < count; i++) {
      const view = this.#view();
      const length = view.getUint32(list + 8 * i + 4, true);
      const moved = one(this.#bytes(view.getUint32(list + 8 * i, true), length));
      total += moved;
      if (moved < length) break;
    }
    this.#view().setUint32(done, total, true);
    return OK;
  }

  #read(fd: number, list: number, count: number, done: number, at?: bigint): number {
    const open = this.#file(fd);
    if (typeof open === "number") return open;
    let place = at === undefined ? open.at : Number(at);
    const code = this.#each(list, count, done, (bytes) => {
      const moved = open.what.read(bytes, place);
      place += moved;
      return moved;
    });
    if (at === undefined) open.at = place;
    return code;
  }

  #write(fd: number, list: number, count: number, done: number, at?: bigint): number {
    if (fd === 1 || fd === 2) {
      return this.#each(list, count, done, (bytes) => {
        this.#print(new TextDecoder().decode(bytes.slice()));
        return bytes.length;
      });
    }
    const open = this.#file(fd);
    if (typeof open === "number") return open;
    const write = open.what.write?.bind(open.what);
    if (write === undefined) return ROFS;
    let place = open.appends ? open.what.size() : at === undefined ? open.at : Number(at);
    const code = this.#each(list, count, done, (bytes) => {
      const moved = write(bytes, place);
      place += moved;
      return moved;
    });
    if (at === undefined) open.at = place;
    return code;
  }

  #print(text: string): void {
    const lines = (this.#line + text).split("\n");
    this.#line = lines.pop() ?? "";
    for (const line of lines) this.#say(line);
  }

  #openPath(fd: number, path: number, length: number, options: number, flags: number, opened: number): number {
    const place = this.#place(fd, path, length);
    if (typeof place === "number") return place;
    const [creates, wantsFolder, exclusive, truncates] = [1, 2, 4, 8].map((bit) => (options & bit) !== 0);
    let found = place.found;
    if (found === undefined) {
      if (!creates) return NOENT;
      found = place.parent.makeFile(place.name);
    } else if (exclusive) {
      return EXIST;
    }
    if (wantsFolder && !(found instanceof Folder)) return NOTDIR;
    if (truncates && !(found instanceof Folder)) {
      if (found.truncate === undefined) return ROFS;
      found.truncate(0);
    }
    let number = ROOT_FD + 1;
    while (this.#open.has(number)) number++;
    this.#open.set(number, { what: found, at: 0, appends: (flags & 1) !== 0 });
    this.#view().setUint32(opened, number, true);
    return OK;
  }

  #rename(fd: number, path: number, length: number, toFd: number, toPath: number, toLength: number): number {
    const [from, to] = [this.#place(fd, path, length), this.#place(toFd, toPath, toLength)];
    if (typeof from === "number") return from;
    if (typeof to === "number") return to;
    if (from.found === undefined) return NOENT;
    if (to.found instanceof Folder && to.found.names().length > 0) return NOTEMPTY;
    from.parent.move(from.name, to.parent, to.name);
    return OK;
  }

  #unlink(fd: number, path: number, length: number, isFolder: boolean): number {
    const place = this.#place(fd, path, length);
    if (typeof place === "number") return place;
    if (place.found === undefined) return NOENT;
    if (place.found instanceof Folder !== isFolder) return isFolder ? NOTDIR : ISDIR;
    if (place.found instanceof Folder && place.found.names().length > 0) return NOTEMPTY;
    place.parent.drop(place.name);
    return OK;
  }

  #list(fd: number, buffer: number, room: number, cookie: bigint, used: number): number {
    const folder = this.#open.get(fd)?.what;
    if (!(folder instanceof Folder)) return folder === undefined ? BADF : NOTDIR;
    let at = 0;
    let next = cookie;
    for (const name of folder.names().slice(Number(cookie))) {
      const child = folder.get(name);
      next++;
      if (child === undefined) continue;
      const text = new TextEncoder().encode(name);
      const entry = new Uint8Array(24 + text.length);
      const view = new DataView(entry.buffer);
      view.setBigUint64(0, next, true);
      view.setBigUint64(8, this.#inode(child), true);
      view.setUint32(16, text.length, true);
      view.setUint8(20, child instanceof Folder ? DIRECTORY : REGULAR);
      entry.set(text, 24);
      const part = entry.subarray(0, room - at);
      this.#bytes(buffer + at, part.length).set(part);
      at += part.length;
      if (at === room) break;
    }
    this.#view().setUint32(used, at, true);
    return OK;
  }

  #seek(fd: number, offset: bigint, whence: number, place: number): number {
    const open = this.#file(fd);
    if (typeof open === "number") return open;
    const base = whence === 0 ? 0 : whence === 1 ? open.at : open.what.size();
    const at = base + Number(offset);
    if (at < 0) return INVAL;
    open.at = at;
    this.#view().setBigUint64(place, BigInt(at), true);
    return OK;
  }

  /** The functions, as the module imports them. */
  imports(): WebAssembly.ModuleImports {
    // Addresses above 2 GiB come as negative numbers.
    const unsigned = (given: number | bigint): number | bigint => (typeof given === "number" ? given >>> 0 : given);
    const imports: WebAssembly.ModuleImports = {};
    for (const [name, call] of Object.entries(this.#calls())) {
      imports[name] = (...given: (number | bigint)[]) => {
        try {
          return (call as (...given: unknown[]) => unknown)(...given.map(unsigned));
        } catch (thrown) {
          if (thrown instanceof Exit) throw thrown;
          this.#say(`${name}: ${String(thrown)}`);
          return IO;
        }
      };
    }
    return imports;
  }

  #calls(): { [name: string]: unknown } {
    const none = (count: number, size: number): number => {
      this.#view().setUint32(count, 0, true);
      this.#view().setUint32(size, 0, true);
      return OK;
    };
    return {
      args_sizes_get: none,
      args_get: () => OK,
      environ_sizes_get: none,
      environ_get: () => OK,
      clock_time_get: (clock: number, _precision: bigint, at: number) => {
        const now = clock === 0 ? Date.now() : performance.now();
        this.#view().setBigUint64(at, BigInt(Math.round(now * 1e6)), true);
        return OK;
      },
      clock_res_get: (_clock: number, at: number) => {
        this.#view().setBigUint64(at, 1000n, true);
        return OK;
      },
      random_get: (at: number, length: number) => {
        // At most 65,536 bytes at once, and not into shared memory.
        const some = new Uint8Array(Math.min(length, 65_536));
        for (let done = 0; done < length; done += some.length) {
          crypto.getRandomValues(some);
          this.#bytes(at + done, Math.min(some.length, length - done)).set(some.subarray(0, length - done));
        }
        return OK;
      },
      sched_yield: () => OK,
      poll_oneoff: () => NOSYS,
      proc_exit: (status: number) => {
        throw new Exit(status);
      },
      fd_prestat_get: (fd: number, at: number) => {
        if (fd !== ROOT_FD) return BADF;
        this.#view().setUint32(at, 0, true);
        this.#view().setUint32(at + 4, 1, true);
        return OK;
      },
      fd_prestat_dir_name: (fd: number, at: number, length: number) => {
        if (fd !== ROOT_FD || length < 1) return fd === ROOT_FD ? INVAL : BADF;
        this.#bytes(at, 1).set([0x2f]);
        return OK;
      },
      fd_fdstat_get: (fd: number, at: number) => {
        const open = this.#open.get(fd);
        if (open === undefined && fd > 2) return BADF;
        const view = this.#view();
        view.setUint8(at, open === undefined ? CHARACTERS : open.what instanceof Folder ? DIRECTORY : REGULAR);
        view.setUint16(at + 2, open?.appends ? 1 : 0, true);
        view.setBigUint64(at + 8, ~0n & 0xffff_ffff_ffff_ffffn, true);
        view.setBigUint64(at + 16, ~0n & 0xffff_ffff_ffff_ffffn, true);
        return OK;
      },
      fd_fdstat_set_flags: () => OK,
      fd_filestat_get: (fd: number, at: number) => {
        const open = this.#open.get(fd);
        return open === undefined ? BADF : this.#stat(open.what, at);
      },
      fd_filestat_set_size: (fd: number, size: bigint) => {
        const open = this.#file(fd);
        if (typeof open === "number") return open;
        if (open.what.truncate === undefined) return ROFS;
        open.what.truncate(Number(size));
        return OK;
      },
      fd_filestat_set_times: () => OK,
      fd_close: (fd: number) => (fd !== ROOT_FD && this.#open.delete(fd) ? OK : BADF),
      fd_sync: () => OK,
      fd_datasync: () => OK,
      fd_advise: () => OK,
      fd_read: (fd: number, list: number, count: number, done: number) => this.#read(fd, list, count, done),
      fd_pread: (fd: number, list: number, count: number, at: bigint, done: number) => this.#read(fd, list, count, done, at),
      fd_write: (fd: number, list: number, count: number, done: number) => this.#write(fd, list, count, done),
      fd_pwrite: (fd: number, list: number, count: number, at: bigint, done: number) => this.#write(fd, list, count, done, at),
      fd_seek: (fd: number, offset: bigint, whence: number, place: number) => this.#seek(fd, offset, whence, place),
      fd_tell: (fd: number, place: number) => this.#seek(fd, 0n, 1, place),
      fd_readdir: (fd: number, buffer: number, room: number, cookie: bigint, used: number) => this.#list(fd, buffer, room, cookie, used),
      path_open: (fd: number, _look: number, path: number, length: number, options: number, _rights: bigint, _inherited: bigint, flags: number, opened: number) =>
        this.#openPath(fd, path, length, options, flags, opened),
      path_filestat_get: (fd: number, _look: number, path: number, length: number, at: number) => {
        const place = this.#place(fd, path, length);
        if (typeof place === "number") return place;
        return place.found === undefined ? NOENT : this.#stat(place.found, at);
      },
      path_filestat_set_times: () => OK,
      path_create_directory: (fd: number, path: number, length: number) => {
        const place = this.#place(fd, path, length);
        if (typeof place === "number") return place;
        if (place.found !== undefined) return EXIST;
        place.parent.makeFolder(place.name);
        return OK;
      },
      path_remove_directory: (fd: number, path: number, length: number) => this.#unlink(fd, path, length, true),
      path_unlink_file: (fd: number, path: number, length: number) => this.#unlink(fd, path, length, false),
      path_rename: (fd: number, path: number, length: number, toFd: number, toPath: number, toLength: number) =>
        this.#rename(fd, path, length, toFd, toPath, toLength),
      path_readlink: () => INVAL,
      path_symlink: () => NOSYS,
      path_link: () => NOSYS,
    };
  }
}
