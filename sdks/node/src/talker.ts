// What models and conversations have in common: they answer.

import { CactusError, calling, wrong } from "./errors.ts";
import { abortable, Closable, keepAlive, type Signal } from "./lifetime.ts";
import type { Handle } from "./native.ts";
import { type Infer, jsonSchemaOf, parsed, type Schema, valueOf } from "./schema.ts";
import { Stream, type StreamOptions } from "./stream.ts";
import { answerToCall, descriptionOf, type Tool, type ToolOptions } from "./tools.ts";
import { Answer, answerOf, type Asked, type ConsentEvent, type EndEvent, type Event, type FailedEvent, isLast, type Message, type Request } from "./types.ts";

export interface RespondOptions {
  /** Stops the answer; the promise is rejected with the signal's reason. */
  signal?: Signal;
  /** Hears the text as it is written, whole characters. */
  onToken?: (text: string) => void;
  /** Hears every event. */
  onEvent?: (event: Event) => void;
  /** Asks a person whether something may leave this machine. Without it, nothing leaves that needs a yes. */
  onConsent?: (question: ConsentEvent) => boolean | Promise<boolean>;
}

/** Something that answers. */
export abstract class Talker extends Closable {
  /** Begins a request of the library. */
  protected abstract begin(asked: Asked): Promise<Handle>;
  /** What is asked, as messages to go on from. */
  protected abstract messagesOf(request: Request): Message[];
  /** The messages of the next round of tools. */
  protected abstract nextRound(before: Message[], answer: Message, results: Message[]): Message[];

  /** Answers, and gives the whole answer. */
  async respond(asked: Asked, options: RespondOptions = {}): Promise<Answer> {
    if (options.onToken !== undefined || options.onEvent !== undefined || options.onConsent !== undefined) {
      return this.#heard(asked, options);
    }
    if (options.signal?.aborted === true) return abortable(options.signal, () => {}, () => Promise.reject(new Error()));
    const { of } = this.held;
    const request = await this.begin(asked);
    try {
      const stop = () => of.requestCancel(request);
      const json = await abortable(options.signal, stop, async () => of.requestWait(request));
      return new Answer(JSON.parse(json));
    } finally {
      await calling(() => of.requestClose(request));
      keepAlive(this);
    }
  }

  async #heard(asked: Asked, options: RespondOptions): Promise<Answer> {
    const { onToken, onEvent, ...rest } = options;
    const stream = this.stream(asked, rest);
    return abortable(options.signal, () => {}, async () => {
      let last: EndEvent | FailedEvent | undefined;
      try {
        for (;;) {
          const { done, value } = await stream.next();
          if (done === true) break;
          onEvent?.(value);
          if (value.event === "text") onToken?.((value as { text: string }).text);
          if (isLast(value)) last = value;
        }
      } finally {
        await stream.close();
      }
      if (last === undefined) throw new CactusError("internal", "a stream ended without a last event");
      return answerOf(last);
    });
  }

  /** Answers, and gives what happens as it happens. It begins at once. */
  stream(asked: Asked, options: StreamOptions = {}): Stream {
    return new Stream(this, () => this.begin(asked), options);
  }

  /** Answers with a value of a schema. The engine lets the model write nothing else. */
  async respondAs<S extends Schema<unknown>>(asked: Asked, schema: S, options: RespondOptions = {}): Promise<Infer<S>> {
    const request: Request = { ...requestOf(asked), schema: jsonSchemaOf(schema) };
    const answer = await this.respond(request, options);
    return valueOf(schema, parsed(answer));
  }

  /**
   * Answers with tools: calls what the model asks for, tells it what came of it, and goes on until it answers with text. After
   * `rounds` rounds, the last answer is given, with the calls that were not made any more.
   */
  async respondWithTools(asked: Asked, tools: Tool[], options: ToolOptions & RespondOptions = {}): Promise<Answer> {
    const { rounds = 8, confirm, ...rest } = options;
    if (!Number.isInteger(rounds) || rounds < 0) throw wrong(`\`rounds\`: expected a whole number, found ${rounds}`);
    const request = requestOf(asked);
    const fields: Request = { ...request, tools: [...(request.tools ?? []), ...tools.map(descriptionOf)] };
    let messages = this.messagesOf(request);
    for (let round = 0; ; round++) {
      const answer = await this.respond({ ...fields, messages }, rest);
      const calls = answer.toolCalls;
      if (calls.length === 0 || round === rounds || answer.finishReason === "cancelled") return answer;
      const results: Message[] = [];
      for (const call of calls) {
        results.push({ role: "tool", tool_call_id: call.id, content: await answerToCall(call, tools, { confirm, signal: rest.signal }) });
      }
      messages = this.nextRound(messages, answer.message, results);
    }
  }
}

/** What is asked, as a request. */
export function requestOf(asked: Asked): Request {
  if (typeof asked === "string") return { messages: [{ role: "user", content: asked }] };
  if (Array.isArray(asked)) return { messages: asked };
  if (typeof asked !== "object" || asked === null) throw wrong(`expected a text, messages or a request, found ${typeof asked}`);
  return "role" in asked ? { messages: [asked as Message] } : (asked as Request);
}
