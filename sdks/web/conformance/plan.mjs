// The conformance suite over the web package, in Node and in pages.

import { runPlan } from "../../node/conformance/runner.mjs";

/** What no build for the web has: it asks nobody else. */
const WITHOUT_POLICIES = "policies are not in the web build";
/** The case is about downloads of the native library. */
const ADDRESSES = "the web build has a loader of its own, with tests of its own";
const isPolicy = ({ op }) => op === "set_policy";

/**
 * Runs all cases of a plan but those that need what is not there: `lacks(case)` says why, or nothing. `files` is the runner's, with
 * `before(case)` and `after(case)`, where each case needs something of its own.
 */
export async function runWeb(api, plan, files, lacks = () => undefined) {
  for (const one of plan.cases) {
    // With a policy that is set, all that follows is another.
    const isAsked = one.steps.some((step) => isPolicy(step) && step.policy !== null);
    const why = isAsked ? WITHOUT_POLICIES : one.name === "34-address" ? ADDRESSES : lacks(one);
    if (why !== undefined) {
      await files.write(JSON.stringify({ case: one.name, results: one.steps.map(() => ({ absent: why })) }));
      continue;
    }
    await files.before?.(one);
    await runPlan(
      api,
      { cases: [one] },
      {
        read: files.read,
        write: (line) => ("end" in JSON.parse(line) ? undefined : files.write(line)),
        absent: (step) => (isPolicy(step) ? WITHOUT_POLICIES : undefined),
      },
    );
    await files.after?.(one);
  }
  await files.write(JSON.stringify({ end: plan.cases.length }));
}
