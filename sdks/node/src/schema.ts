// What a value has to look like: a JSON Schema, a schema of a library such as zod (Standard Schema), or a JSON Schema with `parse`.

import { CactusError, wrong } from "./errors.ts";
import type { Answer, JsonSchema } from "./types.ts";

/** The part of Standard Schema (standardschema.dev) that is used. */
export interface StandardSchema<T> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => StandardResult<T> | Promise<StandardResult<T>>;
    readonly jsonSchema?: { readonly input: (options: { target: string }) => Record<string, unknown> };
    readonly types?: { readonly input: unknown; readonly output: T } | undefined;
  };
}

type StandardResult<T> =
  | { readonly value: T; readonly issues?: undefined }
  | { readonly issues: ReadonlyArray<{ readonly message: string; readonly path?: ReadonlyArray<PropertyKey | { key: PropertyKey }> | undefined }> };

/** A JSON Schema, and a function that makes a value of what came. */
export interface ParsedSchema<T> {
  schema: JsonSchema;
  parse: (value: unknown) => T;
}

/** What says how a value of the type `T` looks like. */
export type Schema<T> = StandardSchema<T> | ParsedSchema<T> | JsonSchema;

/** The type of the values of a schema. */
export type Infer<S> = S extends StandardSchema<infer T> ? T : S extends ParsedSchema<infer T> ? T : unknown;

function isStandard(schema: unknown): schema is StandardSchema<unknown> {
  return (typeof schema === "object" || typeof schema === "function") && schema !== null && "~standard" in schema;
}

function isParsed(schema: unknown): schema is ParsedSchema<unknown> {
  const { schema: json, parse } = schema as Partial<ParsedSchema<unknown>>;
  return typeof parse === "function" && typeof json === "object" && json !== null;
}

/** The JSON Schema that the engine holds the model to. */
export function jsonSchemaOf(schema: Schema<unknown>): JsonSchema {
  if (schema === null || (typeof schema !== "object" && typeof schema !== "function")) {
    throw wrong(`expected a schema, found ${schema === null ? "null" : typeof schema}`);
  }
  if (isStandard(schema)) {
    const standard = schema["~standard"];
    const { toJSONSchema } = schema as { toJSONSchema?: () => JsonSchema };
    let made: JsonSchema | undefined;
    if (standard.jsonSchema !== undefined) made = standard.jsonSchema.input({ target: "draft-2020-12" });
    else if (typeof toJSONSchema === "function") made = toJSONSchema.call(schema);
    if (made === undefined) throw wrong(`the schema of ${standard.vendor} makes no JSON Schema of itself; give { schema, parse }`);
    const { $schema: _, ...rest } = made;
    return rest;
  }
  return isParsed(schema) ? schema.schema : (schema as JsonSchema);
}

/** The value that a schema makes of what came. */
export async function valueOf<S extends Schema<unknown>>(schema: S, value: unknown): Promise<Infer<S>> {
  if (isStandard(schema)) {
    const result = await schema["~standard"].validate(value);
    if (result.issues !== undefined) throw wrong(`the value is not what the schema says: ${result.issues.map(issue).join("; ")}`);
    return result.value as Infer<S>;
  }
  return (isParsed(schema) ? schema.parse(value) : value) as Infer<S>;
}

function issue(found: { message: string; path?: ReadonlyArray<PropertyKey | { key: PropertyKey }> | undefined }): string {
  const path = (found.path ?? []).map((part) => String(typeof part === "object" ? part.key : part)).join(".");
  return path === "" ? found.message : `${path}: ${found.message}`;
}

/** What an answer that follows a schema says. */
export function parsed({ text, finishReason, json }: Answer): unknown {
  if (!json.whole) throw new CactusError("cancelled", `the answer ended before it was whole, with the finish reason \`${finishReason}\``);
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new CactusError("text", `the answer is no JSON: ${(error as Error).message}`);
  }
}
