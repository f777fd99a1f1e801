// A question about a picture or a sound.
//
//   node 07-picture-or-sound.mjs MODEL PICTURE

import { readFile } from "node:fs/promises";
import { Model } from "cactus-engine";

const [source, file] = process.argv.slice(2);
const model = await Model.load(source);
const data = (await readFile(file)).toString("base64");
const isSound = /\.(wav|mp3|flac|ogg|m4a)$/i.test(file);

const answer = await model.respond({
  messages: [
    {
      role: "user",
      content: [
        isSound ? { type: "audio", data } : { type: "image", data },
        { type: "text", text: isSound ? "What is said?" : "What is in the picture?" },
      ],
    },
  ],
  options: { max_tokens: 20 },
});
console.log(answer.text);
await model.close();
