// The config plugin for Expo: entitlements for models that need memory, and libraries that stay aligned to pages of 16 KiB.
//
//   { "expo": { "plugins": [["cactus-engine-react-native", { "memory": true }]] } }

const { withEntitlementsPlist, withGradleProperties } = require("expo/config-plugins");

const ENTITLEMENTS = ["com.apple.developer.kernel.increased-memory-limit", "com.apple.developer.kernel.extended-virtual-addressing"];

/** What Gradle is told. Without legacy packaging, libraries lie uncompressed and aligned in the APK, and are mapped from it. */
const PROPERTIES = { "expo.useLegacyPackaging": "false", "android.bundle.enableUncompressedNativeLibs": "true" };

module.exports = function withCactus(config, { memory = true } = {}) {
  if (memory) {
    config = withEntitlementsPlist(config, (config) => {
      for (const name of ENTITLEMENTS) config.modResults[name] = true;
      return config;
    });
  }
  return withGradleProperties(config, (config) => {
    for (const [key, value] of Object.entries(PROPERTIES)) {
      const found = config.modResults.find((item) => item.type === "property" && item.key === key);
      if (found !== undefined) found.value = value;
      else config.modResults.push({ type: "property", key, value });
    }
    return config;
  });
};
