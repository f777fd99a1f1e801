// Puts `f32x4.relaxed_madd` in the place of each call of `cactus_fma_f32x4`: node scripts/fuse.mjs MODULE
//
// A module that was compiled with the flag `cactus_fma` has these calls (crates/simd/src/wasm/calls.rs). Compiled with relaxed SIMD it
// would have other relaxed instructions, too, whose results are not those that the program says.

import { readFileSync, writeFileSync } from "node:fs";
import process from "node:process";
import { fileURLToPath } from "node:url";

const NAME = "cactus_fma_f32x4";
const MULTIPLY_ADD = [0xfd, 0x85, 0x02];
const [CALL, NOP] = [0x10, 0x01];
/** Sections. */
const [IMPORTS, FUNCTIONS, EXPORTS, CODE] = [2, 3, 7, 10];

/** Reads the binary format: what follows an instruction is known of all that the compiler uses, and anything else is an error. */
class Reader {
  at = 8;
  /** Functions that are imported, whose numbers come first. */
  imported = 0;

  constructor(bytes) {
    this.bytes = bytes;
  }

  byte() {
    return this.bytes[this.at++];
  }

  /** A number of 32 bits in groups of seven. */
  number() {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = this.byte();
      value += (byte & 127) * 2 ** shift;
      if (byte < 128) return value;
    }
  }

  numbers(count) {
    for (let i = 0; i < count; i++) this.number();
  }

  /** Where in memory: alignment, a memory where there are several, and an offset. */
  place() {
    if (this.number() & 64) this.number();
    this.number();
  }

  text() {
    const length = this.number();
    this.at += length;
    return new TextDecoder().decode(this.bytes.subarray(this.at - length, this.at));
  }

  /** Reads the sections that `by` has a function for. */
  sections(by) {
    while (this.at < this.bytes.length) {
      const section = this.byte();
      const end = this.number() + this.at;
      by[section]?.();
      this.at = end;
    }
  }

  /** All code. `told(called, caller, from, to)` hears of each call: of which function by which, and where the instruction lies. */
  functions(told) {
    const count = this.number();
    for (let caller = this.imported; caller < this.imported + count; caller++) {
      const end = this.number() + this.at;
      for (let kinds = this.number(); kinds > 0; kinds--) this.numbers(2);
      while (this.at < end) this.#instruction((called, from, to) => told(called, caller, from, to));
      if (this.at !== end) throw new Error(`a function ends at byte ${end}, and its last instruction at ${this.at}`);
    }
  }

  /** One instruction, of which only calls are told: `called(index, from, to)` hears which function, and where the instruction lies. */
  #instruction(called) {
    const from = this.at;
    const code = this.byte();
    if (code === CALL) {
      const index = this.number();
      return called(index, from, this.at);
    }
    if (code === 0xfd) return this.#vector();
    if (code === 0xfc) return this.#more();
    if (code >= 0x28 && code <= 0x3e) return this.place();
    if (code >= 0x45 && code <= 0xc4) return undefined;
    switch (code) {
      // unreachable, nop, else, end, return, drop, select, ref.is_null
      case 0x00: case 0x01: case 0x05: case 0x0b: case 0x0f: case 0x1a: case 0x1b: case 0xd1:
        return undefined;
      // Blocks, branches, variables, tables, sizes of memory, integers, references
      case 0x02: case 0x03: case 0x04: case 0x0c: case 0x0d: case 0x12: case 0x20: case 0x21: case 0x22: case 0x23: case 0x24:
      case 0x25: case 0x26: case 0x3f: case 0x40: case 0x41: case 0x42: case 0xd0: case 0xd2:
        return this.numbers(1);
      // br_table, and its last label
      case 0x0e:
        return this.numbers(this.number() + 1);
      case 0x11: case 0x13:
        return this.numbers(2);
      case 0x1c:
        return this.numbers(this.number());
      case 0x43:
        this.at += 4;
        return undefined;
      case 0x44:
        this.at += 8;
        return undefined;
      default:
        throw new Error(`there is an unknown instruction, 0x${code.toString(16)}, before byte ${this.at}`);
    }
  }

  #more() {
    const code = this.number();
    if (code > 17) throw new Error(`there is an unknown instruction, 0xfc ${code}, before byte ${this.at}`);
    // Conversions, then copies, initializations and sizes of memory and tables
    this.numbers(code < 8 ? 0 : [8, 10, 12, 14].includes(code) ? 2 : 1);
  }

  #vector() {
    const code = this.number();
    if (code <= 11 || code === 92 || code === 93) this.place();
    else if (code === 12 || code === 13) this.at += 16;
    else if (code >= 21 && code <= 34) this.at += 1;
    else if (code >= 84 && code <= 91) {
      this.place();
      this.at += 1;
    } else if (code > 0xff) throw new Error(`there is an unknown instruction, 0xfd ${code}, before byte ${this.at}`);
  }
}

/** What is called by the function that is exported under the name: where the linker has put another around it, what that one calls. */
function calledFunction(bytes) {
  const reader = new Reader(bytes);
  const types = [];
  let exported;
  let found;
  reader.sections({
    [IMPORTS]: () => {
      for (let imports = reader.number(); imports > 0; imports--) {
        reader.text();
        reader.text();
        const kind = reader.byte();
        if (kind !== 0) throw new Error(`there is an import of an unknown kind, ${kind}, before byte ${reader.at}`);
        types.push(reader.number());
      }
    },
    [FUNCTIONS]: () => {
      reader.imported = types.length;
      for (let functions = reader.number(); functions > 0; functions--) types.push(reader.number());
    },
    [EXPORTS]: () => {
      for (let exports = reader.number(); exports > 0; exports--) {
        const name = reader.text();
        reader.byte();
        const index = reader.number();
        if (name === NAME) exported = index;
      }
    },
    [CODE]: () => {
      found = exported;
      reader.functions((called, caller) => {
        if (caller === exported && types[called] === types[exported]) found = called;
      });
    },
  });
  return found;
}

/** Puts the instruction in the place of calls in `bytes`, and gives how many there were. */
export function fuse(bytes) {
  const fused = calledFunction(bytes);
  let count = 0;
  if (fused === undefined) return count;
  const reader = new Reader(bytes);
  reader.sections({
    [CODE]: () =>
      reader.functions((called, _, from, to) => {
        if (called !== fused) return;
        // The arguments lie in the instruction's order. A call takes up to six bytes.
        if (to - from < MULTIPLY_ADD.length) throw new Error(`the call at byte ${from} is too short`);
        bytes.fill(NOP, from, to);
        bytes.set(MULTIPLY_ADD, from);
        count++;
      }),
  });
  return count;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const bytes = readFileSync(process.argv[2]);
  const count = fuse(bytes);
  if (count === 0) throw new Error(`${process.argv[2]} has no calls of ${NAME}`);
  writeFileSync(process.argv[2], bytes);
  console.log(`${process.argv[2]}: ${count} fused multiply-adds`);
}
