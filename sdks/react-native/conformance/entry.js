// The conformance runner on JSI; the runner itself is the Node package's.
import * as api from "../src/index.ts";
import { runPlan } from "../../node/conformance/runner.mjs";

const [plan, results] = host.arguments;
runPlan(api, JSON.parse(host.readText(plan)), {
  read: async (path) => new Uint8Array(host.read(path)),
  write: (line) => host.append(results, `${line}\n`),
}).then(
  () => host.exit(0),
  (error) => {
    host.print(String(error?.stack ?? error));
    host.exit(1);
  },
);
