// What belongs to no model.

import { calling, callingNow } from "./errors.ts";
import { native } from "./native.ts";
import { type Path, pathOf } from "./paths.ts";

/** Whether a bundle can be used, and why not. */
export interface BundleReport {
  usable: boolean;
  code?: number;
  kind?: string;
  message?: string;
  [name: string]: unknown;
}

export type LogLevel = "debug" | "info" | "warning" | "error";
const LEVELS: LogLevel[] = ["debug", "info", "warning", "error"];

/** The version of the library, as in `0.1.0`. */
export function version(): string {
  return callingNow(() => native().version());
}

/** The ABI of the library. */
export function abiVersion(): number {
  return callingNow(() => native().abiVersion());
}

/** Whether the bundle in a folder can be used with this library. With `verify`, all of it is read and compared with its checksums. */
export async function checkBundle(path: Path, { verify = false }: { verify?: boolean } = {}): Promise<BundleReport> {
  return JSON.parse(await calling(() => native().checkBundle(pathOf(path, "path"), verify)));
}

/** Call it when memory is short: models forget what they keep of earlier prompts. Answers stay the same. */
export async function memoryPressure(): Promise<void> {
  await calling(() => native().memoryPressure());
}

/** Hears what the library has to say, from `level` on. Without a function, nothing is said. */
export async function setLog(listener: ((level: LogLevel, component: string, message: string) => void) | null, level: LogLevel = "warning"): Promise<void> {
  const hear = (number: number, component: string, message: string): void => {
    try {
      listener?.(LEVELS[number] ?? "error", component, message);
    } catch {
      // A log must not break what it tells of.
    }
  };
  await calling(() => native().logSetLevel(LEVELS.indexOf(level)));
  await calling(() => native().logSetCallback(listener === null ? null : hear));
}
