// Tools: functions that a model may ask for.

import { wrong } from "./errors.ts";
import { abortReason, type Signal } from "./lifetime.ts";
import { type Infer, jsonSchemaOf, type Schema, valueOf } from "./schema.ts";
import type { ToolCall, ToolDescription } from "./types.ts";

/** A function that a model may ask for. `tool` makes one whose arguments have the type of their schema. */
export interface Tool {
  name: string;
  description?: string;
  /** What the arguments look like. Without it, there are none. */
  parameters?: Schema<unknown>;
  /** What it gives is told to the model: text as it is, anything else as JSON. What it throws is told to the model, too. */
  run: (args: never, context: { signal?: Signal | undefined; id: string }) => unknown;
}

export interface ToolOptions {
  /** Rounds of calls at most. */
  rounds?: number;
  /** Is asked before each call. Where it gives false, the model is told that the call was refused. What it throws ends the answer. */
  confirm?: ((name: string, args: unknown) => boolean | Promise<boolean>) | undefined;
}

/** A tool whose `run` gets arguments of the type that the schema says. */
export function tool<S extends Schema<unknown>>(made: {
  name: string;
  description?: string;
  parameters: S;
  run: (args: Infer<S>, context: { signal?: Signal | undefined; id: string }) => unknown;
}): Tool {
  return made as Tool;
}

/** A tool as a request has it. */
export function descriptionOf(tool: Tool): ToolDescription {
  if (typeof tool?.name !== "string" || typeof tool.run !== "function") throw wrong("a tool has a `name` and a function `run`");
  const parameters = tool.parameters === undefined ? { type: "object", properties: {} } : jsonSchemaOf(tool.parameters);
  const description = tool.description === undefined ? {} : { description: tool.description };
  return { type: "function", function: { name: tool.name, ...description, parameters } };
}

/** Calls what the model asks for, and gives the text that the model is told. Only what was aborted ends the answer. */
export async function answerToCall(
  call: ToolCall,
  tools: Tool[],
  { confirm, signal }: { confirm: ToolOptions["confirm"]; signal: Signal | undefined },
): Promise<string> {
  const { name } = call.function;
  const tool = tools.find((tool) => tool.name === name);
  if (tool === undefined) return `error: there is no tool \`${name}\``;
  const given = objectOf(call.function.arguments);
  if (given === undefined) return "error: the arguments are no JSON object";
  const stopped = (): void => {
    if (signal?.aborted === true) throw abortReason(signal);
  };
  const told = (error: unknown): string => {
    stopped();
    if (error instanceof Error && error.name === "AbortError") throw error;
    return `error: ${error instanceof Error ? error.message : String(error)}`;
  };
  let args: unknown = given;
  try {
    if (tool.parameters !== undefined) args = await valueOf(tool.parameters, given);
  } catch (error) {
    return told(error);
  }
  if (confirm !== undefined && (await confirm(name, args)) !== true) return "error: the call was refused";
  stopped();
  try {
    const result = await tool.run(args as never, { signal, id: call.id });
    return typeof result === "string" ? result : (JSON.stringify(result) ?? "");
  } catch (error) {
    return told(error);
  }
}

/** The object that a text is, if it is one. */
function objectOf(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text === "" ? "{}" : text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
