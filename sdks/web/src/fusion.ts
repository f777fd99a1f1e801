// Which of the two modules an engine can run.

/** A function of three floats: of relaxed SIMD the multiply-add of four lanes, and the first of them. */
// prettier-ignore
const MULTIPLY_ADD = new Uint8Array([
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
  1, 8, 1, 0x60, 3, 0x7d, 0x7d, 0x7d, 1, 0x7d,
  3, 2, 1, 0,
  7, 5, 1, 1, 0x66, 0, 0,
  10, 22, 1, 20, 0, 0x20, 0, 0xfd, 0x13, 0x20, 1, 0xfd, 0x13, 0x20, 2, 0xfd, 0x13, 0xfd, 0x85, 2, 0xfd, 0x1f, 0, 0x0b,
]);

/** Whether this engine has relaxed SIMD whose multiply-add rounds once, as that of most CPUs does. */
export function isFused(): boolean {
  if (!WebAssembly.validate(MULTIPLY_ADD)) return false;
  const multiplyAdd = new WebAssembly.Instance(new WebAssembly.Module(MULTIPLY_ADD)).exports["f"] as (a: number, b: number, c: number) => number;
  // The last term of the square of `1 + 2^-12`, which a rounding of the product drops.
  return multiplyAdd(1 + 2 ** -12, 1 + 2 ** -12, -(1 + 2 ** -11)) === 2 ** -24;
}
