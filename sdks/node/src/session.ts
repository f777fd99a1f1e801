// Conversations.

import { calling } from "./errors.ts";
import type { Held } from "./lifetime.ts";
import type { Handle } from "./native.ts";
import { requestOf, Talker } from "./talker.ts";
import type { Asked, Message, Request } from "./types.ts";

/** A conversation, which remembers its messages. One request at a time. */
export class Session extends Talker {
  /** The last request. It alone can be under way. */
  #request: Handle | undefined;

  /** @internal */
  constructor(held: Held) {
    super("session", held);
  }

  /** The messages so far. `Model.session({ messages })` takes them back. */
  async messages(): Promise<Message[]> {
    return JSON.parse(await this.call((of, session) => of.sessionMessages(session)));
  }

  protected async begin(asked: Asked): Promise<Handle> {
    const json = JSON.stringify(typeof asked === "string" ? asked : requestOf(asked));
    return this.call(async (of, session) => (this.#request = await of.sessionSend(session, json)));
  }

  /** Closing cancels the request, and does not wait for it. */
  protected override async closing(held: Held): Promise<void> {
    await super.closing(held);
    await this.idle();
    const request = this.#request;
    // It may have been closed long ago.
    if (request !== undefined) await calling(() => held.of.requestWait(request)).catch(() => {});
  }

  protected messagesOf(request: Request): Message[] {
    return request.messages ?? [];
  }

  /** The conversation has the rest. */
  protected nextRound(_before: Message[], _answer: Message, results: Message[]): Message[] {
    return results;
  }
}
