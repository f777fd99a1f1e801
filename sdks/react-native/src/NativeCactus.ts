// The module of React Native. Loading it puts the functions of the library into the global object.

import type { TurboModule } from "react-native";
import { TurboModuleRegistry } from "react-native";

export interface Spec extends TurboModule {
  /** A folder for models that no backup takes. */
  modelFolder(): string;
}

export default TurboModuleRegistry.getEnforcing<Spec>("Cactus");
