// What this phone should not answer may be handed to a target, if a person says yes. `ask` shows a dialog.
import { type ConsentEvent, Model } from "cactus-engine-react-native";

export async function example(
  show: (line: string) => void,
  source: string,
  target: string,
  ask: (question: ConsentEvent) => Promise<boolean>,
  state: string,
): Promise<void> {
  const model = await Model.load(source);
  await model.setPolicy(null, { target, handoff: "always", budget: "0.05", state });
  const answer = await model.respond("Prove that there are infinitely many primes.", { onConsent: ask });
  show(`${answer.route}, because of ${answer.reason}`);
  await model.close();
}
