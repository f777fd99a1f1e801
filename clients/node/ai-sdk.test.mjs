// The AI SDK with both of its providers, unmodified. Run by clients/run.py, which sets CACTUS_URL.
import assert from "node:assert/strict";
import { test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, streamText, tool } from "ai";
import { z } from "zod";

const baseURL = `${process.env.CACTUS_URL}/v1`;
const name = (await (await fetch(`${baseURL}/models`)).json()).data[0].id;
const openai = createOpenAI({ baseURL, apiKey: "none" });
const compatible = createOpenAICompatible({ name: "cactus", baseURL, supportsStructuredOutputs: true, includeUsage: true });
const models = { "compatible": compatible(name), "chat completions": openai.chat(name), "responses": openai.responses(name) };
const prompt = "What is the capital of France? Answer in one word.";
const weather = tool({
  description: "Weather of a city",
  inputSchema: z.object({ city: z.enum(["Paris", "Rome"]) }),
});

for (const [kind, model] of Object.entries(models)) {
  const options = { model, prompt, temperature: 0, maxOutputTokens: 20, maxRetries: 0 };

  test(`${kind}: text, whole and as a stream`, async () => {
    const whole = await generateText(options);
    assert.match(whole.text, /Paris/);
    const stream = streamText({ ...options, onError: ({ error }) => { throw error; } });
    assert.equal(await stream.text, whole.text);
    assert.ok(["stop", "length"].includes(await stream.finishReason));
    assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens);
  });

  test(`${kind}: calls, whole and as a stream`, async () => {
    // Without the option for it, the model may call as often as the limit allows.
    const calling = { ...options, maxOutputTokens: 60, tools: { weather }, toolChoice: "required", providerOptions: { openai: { parallelToolCalls: false } } };
    const whole = await generateText(calling);
    assert.ok(["tool-calls", "length"].includes(whole.finishReason));
    assert.ok(["Paris", "Rome"].includes(whole.toolCalls[0].input.city));
    const stream = streamText({ ...calling, onError: ({ error }) => { throw error; } });
    assert.deepEqual((await stream.toolCalls).map((call) => call.input), whole.toolCalls.map((call) => call.input));
  });

  test(`${kind}: objects by a schema`, async () => {
    const { object } = await generateObject({ ...options, maxOutputTokens: 200, schema: z.object({ city: z.enum(["Paris", "Rome"]), capital: z.boolean() }) });
    assert.equal(typeof object.city, "string");
  });

  test(`${kind}: abort`, async () => {
    const abort = new AbortController();
    const stream = streamText({ ...options, maxOutputTokens: 1000, abortSignal: abort.signal, onError: () => {} });
    for await (const _ of stream.textStream) { abort.abort(); break; }
  });
}
