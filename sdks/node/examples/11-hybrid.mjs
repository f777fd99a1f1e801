// What this machine should not answer may be handed to a target, if a person says yes.
//
//   node 11-hybrid.mjs MODEL TARGET        TARGET as in http://127.0.0.1:8081/v1#name

import { createInterface } from "node:readline/promises";
import { Model } from "cactus-engine";

const [source, target, said] = process.argv.slice(2);
const model = await Model.load(source);
await model.setPolicy(null, { target, handoff: "always", budget: "0.05", ...(process.env.STATE ? { state: process.env.STATE } : {}) });

async function ask({ classes, host, most }) {
  const question = `May ${classes.join(", ")} go to ${host}, for at most $${most}? [y/N] `;
  if (said !== undefined) return console.log(question + said), said === "y";
  const terminal = createInterface({ input: process.stdin, output: process.stdout });
  const answer = await terminal.question(question);
  terminal.close();
  return answer === "y";
}

const stream = model.stream("Prove that there are infinitely many primes.", { onConsent: ask });
for await (const event of stream) {
  if (event.event === "text") process.stdout.write(event.text);
  // What was said so far is void.
  if (event.event === "replaced") console.log("\n---");
}
const answer = await stream.answer();
console.log(`\n${answer.route} (${answer.answeredBy}), because of ${answer.reason}, for $${answer.costUsd}`);
await model.close();
