// Headless Chromium, as it is on this machine.

import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";

const found = ["chromium", "chromium-browser", "google-chrome"].find((name) => spawnSync(name, ["--version"]).status === 0);
export const chromium = process.env.CACTUS_CHROMIUM ?? found;

const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
];

/** A browser with a profile of its own, which stays when another page is opened. */
export class Browser {
  #profile = mkdtempSync(join(tmpdir(), "cactus-web-"));
  #process;
  said = "";

  async open(address) {
    await this.close();
    this.#process = spawn(chromium, [...FLAGS, `--user-data-dir=${this.#profile}`, "--enable-logging=stderr", address], { stdio: ["ignore", "ignore", "pipe"] });
    this.#process.stderr.on("data", (text) => (this.said += text));
  }

  async close() {
    const running = this.#process;
    this.#process = undefined;
    if (running === undefined || running.exitCode !== null) return;
    const ended = new Promise((resolve) => running.once("exit", resolve));
    running.kill("SIGTERM");
    const timer = setTimeout(() => running.kill("SIGKILL"), 5000);
    await ended;
    clearTimeout(timer);
  }

  async end() {
    await this.close();
    // Its other processes may write for some time after it has ended.
    for (let left = 100; ; left--) {
      try {
        rmSync(this.#profile, { recursive: true, force: true });
        return;
      } catch (error) {
        if (left === 0 || error.code !== "ENOTEMPTY") throw error;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }
}
