// Errors: what the library says, as one class.

import type { ErrorKind, Soon } from "./native.ts";

const CODES: Partial<Record<ErrorKind, number>> = { argument: -3, handle: -4, text: -7, cancelled: -11, internal: -1 };

/** A call that failed. `message` says what was expected, what was found, and where. */
export class CactusError extends Error {
  /** The code of the C library; a negative number that never changes its meaning. */
  readonly code: number;
  /** Its name, such as `argument`, `handle` or `not_found`. */
  readonly kind: ErrorKind;

  constructor(kind: ErrorKind, message: string, code = CODES[kind] ?? -1, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "CactusError";
    this.kind = kind;
    this.code = code;
  }
}

/** What a host threw, as an error of the SDK. Anything else stays what it is. */
export function understood(thrown: unknown): unknown {
  if (thrown instanceof CactusError || !(thrown instanceof Error)) return thrown;
  const { code, kind } = thrown as Error & { code?: unknown; kind?: unknown };
  if (typeof code !== "number" || typeof kind !== "string") return thrown;
  return new CactusError(kind as ErrorKind, thrown.message, code);
}

/** Makes a call of the raw layer. Its stack begins here, so that it shows who called. */
export async function calling<T>(call: () => Soon<T>): Promise<T> {
  try {
    return await call();
  } catch (thrown) {
    throw understood(thrown);
  }
}

/** As `calling`, of what returns at once. */
export function callingNow<T>(call: () => T): T {
  try {
    return call();
  } catch (thrown) {
    throw understood(thrown);
  }
}

export function wrong(message: string): CactusError {
  return new CactusError("argument", message);
}
