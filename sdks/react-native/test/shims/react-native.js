// In place of React Native where there is only JSI: the host has installed the functions already.
export const TurboModuleRegistry = {
  getEnforcing(name) {
    if (name !== "Cactus") throw new Error(`there is no module ${name}`);
    return { modelFolder: () => "/nowhere" };
  },
};
