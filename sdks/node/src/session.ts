// Conversations.

import { calling } from "./errors.ts";
import type { Held } from "./lifetime.ts";
import { type Handle, native } from "./native.ts";
import { requestOf, Talker } from "./talker.ts";
import type { Asked, Message, Request } from "./types.ts";

/** A conversation, which remembers its messages. One request at a time. */
export class Session extends Talker {
  /** @internal */
  constructor(held: Held) {
    super("session", held);
  }

  /** The messages so far. `Model.session({ messages })` takes them back. */
  async messages(): Promise<Message[]> {
    return JSON.parse(await calling(() => native().sessionMessages(this.handle)));
  }

  protected async begin(asked: Asked): Promise<Handle> {
    return native().sessionSend(this.handle, JSON.stringify(typeof asked === "string" ? asked : requestOf(asked)));
  }

  protected messagesOf(request: Request): Message[] {
    return request.messages ?? [];
  }

  /** The conversation has the rest. */
  protected nextRound(_before: Message[], _answer: Message, results: Message[]): Message[] {
    return results;
  }
}
