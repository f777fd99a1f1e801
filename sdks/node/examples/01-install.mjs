// Which library is this, and can it use a model?
//
//   npm install cactus-engine
//   node 01-install.mjs MODEL

import { Cactus, Model } from "cactus-engine";

const [source] = process.argv.slice(2);
console.log(`libcactus ${Cactus.version()}, ABI ${Cactus.abiVersion()}`);

const model = await Model.load(source, {
  onProgress: ({ stage, what, done, total }) => total > 0 && console.error(`${stage} ${what} ${Math.round((100 * done) / total)} %`),
});
const info = await model.info();
console.log(`${info.family}, ${info.context_tokens} tokens of context, ${info.threads} threads`);
await model.close();
