// The official Node client, unmodified. Run by clients/run.py, which sets CACTUS_URL.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ baseURL: `${process.env.CACTUS_URL}/v1`, apiKey: "none", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "What is the capital of France? Answer in one word." }];
const parameters = {
  type: "object",
  properties: { city: { type: "string", enum: ["Paris", "Rome"] } },
  required: ["city"],
  additionalProperties: false,
};
const tools = [{ type: "function", function: { name: "get_weather", description: "Weather of a city", parameters } }];

test("chat, whole and as a stream", async () => {
  const options = { model, messages, temperature: 0, max_completion_tokens: 20 };
  const whole = await client.chat.completions.create(options);
  assert.match(whole.choices[0].message.content, /Paris/);
  const stream = client.chat.completions.stream({ ...options, stream_options: { include_usage: true } });
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
  assert.equal(final.usage.completion_tokens, whole.usage.completion_tokens);
});

test("tools through the helper that runs them", async () => {
  let called = 0;
  const runner = client.chat.completions.runTools({
    model,
    messages,
    temperature: 0,
    max_completion_tokens: 300,
    tool_choice: { type: "function", function: { name: "get_weather" } },
    parallel_tool_calls: false,
    stream: true,
    tools: [{
      type: "function",
      function: { name: "get_weather", parameters, parse: JSON.parse, function: ({ city }) => { called++; return `${city}: sunny`; } },
    }],
  });
  await runner.done();
  assert.equal(called, 1);
});

test("a stream of calls", async () => {
  const stream = client.chat.completions.stream({ model, messages, tools, tool_choice: "required", temperature: 0, parallel_tool_calls: false });
  const final = await stream.finalChatCompletion();
  const [call] = final.choices[0].message.tool_calls;
  assert.ok(["Paris", "Rome"].includes(JSON.parse(call.function.arguments).city));
});

test("parse", async () => {
  const City = z.object({ name: z.enum(["Paris", "Rome"]), capital: z.boolean() });
  const answer = await client.chat.completions.parse({ model, messages, response_format: zodResponseFormat(City, "city"), max_completion_tokens: 200 });
  City.parse(answer.choices[0].message.parsed);
});

test("responses as a stream", async () => {
  const stream = client.responses.stream({ model, input: "What is the capital of France? Answer in one word.", temperature: 0, max_output_tokens: 20 });
  const final = await stream.finalResponse();
  assert.match(final.output_text, /Paris/);
});

test("errors name what is wrong", async () => {
  await assert.rejects(client.chat.completions.create({ model: "none", messages }), { status: 404, code: "model_not_found" });
  await assert.rejects(client.chat.completions.create({ model, messages, top_p: 7 }), { status: 400, param: "top_p" });
});

test("abort", async () => {
  const stream = await client.chat.completions.create({ model, messages, stream: true, max_completion_tokens: 2000, ignore_eos: true });
  for await (const chunk of stream) if (chunk.choices[0].delta.content) break;
  const running = async () => {
    const text = await (await fetch(`${process.env.CACTUS_URL}/metrics`)).text();
    return Number(/^cactus_requests_running\{.*\} (\d+)/m.exec(text)[1]);
  };
  for (let i = 0; i < 200 && (await running()); i++) await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(await running(), 0);
});
