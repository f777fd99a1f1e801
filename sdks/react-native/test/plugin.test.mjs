// The config plugin, with Expo's two functions as they are documented.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import Module from "node:module";
import test from "node:test";

const require = createRequire(import.meta.url);
const mods = [];
const stand = {
  withEntitlementsPlist: (config, action) => (mods.push(["entitlements", action]), config),
  withGradleProperties: (config, action) => (mods.push(["gradle", action]), config),
};
const load = Module._load;
Module._load = function (name, ...rest) {
  return name === "expo/config-plugins" ? stand : load.call(this, name, ...rest);
};
const withCactus = require("../app.plugin.js");

test("memory is asked for, and libraries stay aligned to pages of 16 KiB", () => {
  const config = withCactus({ name: "app" });
  assert.equal(config.name, "app");
  const [[first, entitle], [second, gradle]] = mods.splice(0);
  assert.deepEqual([first, second], ["entitlements", "gradle"]);
  const { modResults } = entitle({ modResults: { kept: 1 } });
  assert.equal(modResults.kept, 1);
  assert.equal(modResults["com.apple.developer.kernel.increased-memory-limit"], true);
  assert.equal(modResults["com.apple.developer.kernel.extended-virtual-addressing"], true);
  const before = [{ type: "property", key: "expo.useLegacyPackaging", value: "true" }, { type: "comment", value: "x" }];
  const properties = gradle({ modResults: before }).modResults.filter((item) => item.type === "property");
  assert.equal(properties.filter((item) => item.key === "expo.useLegacyPackaging").length, 1);
  assert.equal(properties.find((item) => item.key === "expo.useLegacyPackaging").value, "false");
});

test("an app without need of memory says so", () => {
  withCactus({}, { memory: false });
  assert.deepEqual(mods.splice(0).map(([name]) => name), ["gradle"]);
});
