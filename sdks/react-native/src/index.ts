// React Native: the API of the package `cactus-engine` over an object of JSI.

import NativeCactus from "./NativeCactus.ts";
import { type Native, provide } from "./api/native.ts";
import { CactusError } from "./api/errors.ts";

export * from "./api/api.ts";

declare global {
  // eslint-disable-next-line no-var
  var __cactusNative: Native | undefined;
}

/** A folder for models that no backup takes. Give it as `cache`. */
export function modelFolder(): string {
  return NativeCactus.modelFolder();
}

provide(() => {
  // The module has put the functions there when it was loaded.
  void NativeCactus;
  const found = globalThis.__cactusNative;
  if (found === undefined) throw new CactusError("not_in_build", "the native module of Cactus is not in this app; build it again", -15);
  return found;
});
