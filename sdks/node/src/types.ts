// Requests, events and answers. Fields inside of requests and results have the names of the C library, in every SDK.

import { CactusError } from "./errors.ts";
import type { ErrorKind } from "./native.ts";

/** A JSON Schema. */
export type JsonSchema = { [name: string]: unknown };

/** A part of a message: text, a picture or sound. */
export type Part =
  | { type: "text"; text: string }
  | { type: "image_url"; image_url: { url: string } }
  | { type: "input_audio"; input_audio: { data: string; format: string } }
  | { type: string; [name: string]: unknown };

/** A message of a conversation, as in the OpenAI API. */
export interface Message {
  role: "system" | "developer" | "user" | "assistant" | "tool" | (string & {});
  content?: string | Part[] | null;
  reasoning_content?: string;
  tool_calls?: ToolCall[];
  tool_call_id?: string;
  name?: string;
  [name: string]: unknown;
}

/** A call of a tool that the model asks for. `arguments` is a JSON object as text. */
export interface ToolCall {
  id: string;
  type: "function";
  function: { name: string; arguments: string };
}

/** How tokens are chosen, and how many. */
export interface GenerationOptions {
  max_tokens?: number;
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  seed?: number;
  stop?: string | string[];
  logprobs?: number | boolean;
  ignore_eos?: boolean;
  [name: string]: unknown;
}

/** A tool as a request has it. */
export interface ToolDescription {
  type: "function";
  function: { name: string; description?: string; parameters?: JsonSchema; [name: string]: unknown };
}

/** What is asked of a model. One of `messages`, `prompt` and `tokens` has to be there. */
export interface Request {
  messages?: Message[];
  prompt?: string;
  tokens?: number[];
  tools?: ToolDescription[];
  tool_choice?: unknown;
  parallel_tool_calls?: boolean;
  most_tools?: number;
  response_format?: unknown;
  schema?: JsonSchema;
  regex?: string;
  grammar?: string;
  reasoning?: boolean;
  continue_final?: boolean;
  template_variables?: { [name: string]: unknown };
  priority?: "low" | "normal" | "high";
  handoff?: "auto" | "never" | "always";
  session?: string;
  user?: string;
  options?: GenerationOptions;
}

/** What is asked: what a user says, messages, or a whole request. */
export type Asked = string | Message | Message[] | Request;

/** How many tokens were read and written. */
export interface Usage {
  prompt_tokens: number;
  cached_tokens: number;
  completion_tokens: number;
  total_tokens: number;
}

/** The whole result of a request, as the library gives it. */
export interface Result {
  message: Message & { content: string };
  finish_reason: string;
  stop?: unknown;
  whole: boolean;
  usage: Usage;
  timings: { [name: string]: number };
  tokens: number[];
  logprobs?: unknown;
  seed?: unknown;
  notes: string[];
  route?: string;
  reason?: string;
  answered_by?: string;
  confidence?: number | null;
  cost_usd?: number;
  [name: string]: unknown;
}

export interface StartedEvent {
  event: "started";
  prompt_tokens: number;
  cached_tokens: number;
}

export interface TextEvent {
  event: "text" | "reasoning";
  text: string;
}

export interface ToolCallEvent {
  event: "tool_call";
  index: number;
  id?: string;
  name?: string;
  arguments?: string;
  end?: boolean;
  failed?: boolean;
}

/** Who answers, or whose answer is void. */
export interface SourceEvent {
  event: "source" | "replaced";
  side?: "local" | "cloud";
  target?: string | null;
  reason?: string;
  [name: string]: unknown;
}

/** A person is asked whether something may leave this machine. */
export interface ConsentEvent {
  event: "consent";
  classes: string[];
  target: string;
  host: string;
  most?: string;
  reason?: string;
  confidence?: number | null;
  [name: string]: unknown;
}

/** The end, with the whole result, or as much of it as came. */
export interface EndEvent {
  event: "done" | "cancelled";
  result: Result;
}

export interface FailedEvent {
  event: "failed";
  code: number;
  kind: ErrorKind;
  text?: string;
}

/** What happens to a request. `done`, `cancelled` and `failed` are last, and nothing comes after them. */
export type Event = StartedEvent | TextEvent | ToolCallEvent | SourceEvent | ConsentEvent | EndEvent | FailedEvent;

export function isLast(event: Event): event is EndEvent | FailedEvent {
  return event.event === "done" || event.event === "cancelled" || event.event === "failed";
}

/** An answer. */
export class Answer {
  /** Everything that is known of it. */
  readonly json: Result;

  constructor(json: Result) {
    this.json = json;
  }

  get text(): string {
    return this.json.message.content ?? "";
  }
  /** What the model thought before it answered. */
  get reasoning(): string {
    return this.json.message.reasoning_content ?? "";
  }
  /** The message, as it belongs into the conversation. */
  get message(): Message {
    return this.json.message;
  }
  get toolCalls(): ToolCall[] {
    return this.json.message.tool_calls ?? [];
  }
  /** `stop`, `length`, `tool_calls`, `cancelled`, … */
  get finishReason(): string {
    return this.json.finish_reason;
  }
  get usage(): Usage {
    return this.json.usage;
  }
  get tokens(): number[] {
    return this.json.tokens;
  }
  /** Under a policy: `local` or `cloud`. */
  get route(): string | undefined {
    return this.json.route;
  }
  /** Under a policy: who answered. */
  get answeredBy(): string | undefined {
    return this.json.answered_by;
  }
  /** Under a policy: why. */
  get reason(): string | undefined {
    return this.json.reason;
  }
  get confidence(): number | undefined {
    return this.json.confidence ?? undefined;
  }
  get costUsd(): number | undefined {
    return this.json.cost_usd;
  }
  toString(): string {
    return this.text;
  }
}

/** The answer of a last event. Throws how a request failed. */
export function answerOf(event: EndEvent | FailedEvent): Answer {
  if (event.event === "failed") throw new CactusError(event.kind, event.text ?? "the request failed", event.code);
  return new Answer(event.result);
}
