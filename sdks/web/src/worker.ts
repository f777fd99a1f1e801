// The engine's worker in browsers.

import { type Asked, Engine, turns } from "./engine.ts";
import { Kept } from "./kept.ts";

const scope = self as unknown as {
  postMessage(message: unknown, transfer: Transferable[]): void;
  onmessage: (event: MessageEvent<Asked>) => void;
};
const engine = new Engine(new Kept(), (answered, transfer) => scope.postMessage(answered, transfer ?? []), turns());
scope.onmessage = (event) => void engine.take(event.data);
