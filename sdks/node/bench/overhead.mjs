// CPU time that a streamed event costs, beside an answer that is waited for: node bench/overhead.mjs MODEL [TOKENS] [ROUNDS]
//
// At 200 tokens a second a token takes 5,000 microseconds, of which an SDK may take 2 %: 100.

import process from "node:process";
import { Model } from "../dist/node.mjs";

const [source, tokens = "400", rounds = "10"] = process.argv.slice(2);
const extra = process.env.EXTRA === undefined ? {} : JSON.parse(process.env.EXTRA);
const model = await Model.load(source, { context_tokens: Number(tokens) + 64, threads: 1 });
const request = { prompt: "Count.", options: { max_tokens: Number(tokens), temperature: 0, ignore_eos: true, ...extra } };

/** Microseconds of CPU of this process, all threads, and of the clock. */
async function measured(work) {
  const [cpu, clock] = [process.cpuUsage(), process.hrtime.bigint()];
  const count = await work();
  const { user, system } = process.cpuUsage(cpu);
  return { cpu: user + system, clock: Number(process.hrtime.bigint() - clock) / 1000, count };
}

const ways = {
  wait: async () => ((await model.respond(request)), 0),
  stream: async () => {
    let count = 0;
    for await (const _ of model.stream(request, { join: false })) count++;
    return count;
  },
};
const found = { wait: [], stream: [] };
for (let i = 0; i < Number(rounds); i++) for (const [name, way] of Object.entries(ways)) found[name].push(await measured(way));
const median = (list) => list.sort((a, b) => a - b)[list.length >> 1];
const cpu = Object.fromEntries(Object.keys(ways).map((name) => [name, median(found[name].map((one) => one.cpu))]));
const { count } = found.stream[0];
const clock = median(found.stream.map((one) => one.clock));
console.log(`${count} events at ${((1e6 * count) / clock).toFixed(0)} a second: ${((cpu.stream - cpu.wait) / count).toFixed(1)} microseconds of CPU each`);
await model.close();
