// A question about a picture: a file that a person has chosen, or anything else with bytes.

import { Model, start } from "@cactus-engine/web";

function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}

/** `source` is a model that sees; `picture` is a Blob. */
export async function run(source, say, picture) {
  await start();
  const model = await Model.load(source, { context_tokens: 2048 });
  const data = base64(new Uint8Array(await picture.arrayBuffer()));
  const answer = await model.respond({
    messages: [{ role: "user", content: [{ type: "image", data }, { type: "text", text: "What is in the picture?" }] }],
    options: { max_tokens: 20 },
  });
  say(answer.text);
  await model.close();
}
