// A request under way, as an asynchronous iterable of its events.
//
// Events are fetched when somebody asks for the next one, all that are there at once, so a slow reader is not flooded, and a person
// who is asked for consent is not passed over. Iterators are made by hand: bare Hermes knows no asynchronous generators.

import { CactusError, calling, understood } from "./errors.ts";
import { ASYNC_DISPOSE, DISPOSE, type Held, isCurrent, keep, onAbort, opened, type Signal, spare, unlessEnded } from "./lifetime.ts";
import type { Handle } from "./native.ts";
import { type Answer, answerOf, type ConsentEvent, type EndEvent, type Event, type FailedEvent, isLast } from "./types.ts";

export interface StreamOptions {
  /** Cancels the request when it is aborted. The last event is `cancelled` then. */
  signal?: Signal;
  /** Whether texts that came in one turn of the event loop are joined into one event; they are, unless this is false. */
  join?: boolean;
  /** Asks a person whether something may leave this machine. Without it, the event `consent` asks the reader of the stream. */
  onConsent?: (question: ConsentEvent) => boolean | Promise<boolean>;
}

/** What a stream and its finalizer, signal and starter share. It does not know the stream, which can be forgotten. */
interface Control {
  /** Who answers. It is needed as long as the stream is. */
  owner: object;
  held: Held | undefined;
  isCancelled: boolean;
  /** Ends the wait for a person's answer. */
  unask: (() => void) | undefined;
}

function cancel(control: Control): void {
  control.isCancelled = true;
  control.unask?.();
  const held = control.held;
  // It may have ended, or been closed, in the meantime.
  if (held !== undefined) void calling(() => held.of.requestCancel(held.handle)).catch(() => {});
}

async function begin(control: Control, start: () => Promise<Handle>): Promise<void> {
  control.held = await opened(start, (of, request) => of.requestClose(request), control.owner);
  if (control.isCancelled) cancel(control);
}

/** Joins neighbors of one kind of text. */
function joined(events: Event[]): Event[] {
  const all: Event[] = [];
  for (const event of events) {
    const before = all[all.length - 1];
    if (
      before !== undefined &&
      before.event === event.event &&
      (before.event === "text" || before.event === "reasoning") &&
      (event.event === "text" || event.event === "reasoning")
    ) {
      before.text += event.text;
    } else {
      all.push(event);
    }
  }
  return all;
}

/** The events of a request. It begins at once. Leaving a `for await` loop early cancels it. */
export class Stream implements AsyncIterableIterator<Event> {
  readonly #control: Control;
  readonly #options: StreamOptions;
  readonly #starting: Promise<void>;
  readonly #quit: () => void;
  #events: Event[] = [];
  #next = 0;
  /** The last event of all, once it was fetched. */
  #last: EndEvent | FailedEvent | undefined;
  /** The last event was given, or the reader left. */
  #isOver = false;
  #isClosed = false;
  #closing: Promise<void> | undefined;
  /** Those who ask at the same time wait for each other: how many they are, and the last of them. */
  #asking = 0;
  #turn: Promise<IteratorResult<Event, undefined>> | undefined;

  /** @internal */
  constructor(owner: object, start: () => Promise<Handle>, options: StreamOptions = {}) {
    const control: Control = { owner, held: undefined, isCancelled: false, unask: undefined };
    this.#control = control;
    this.#options = options;
    this.#quit = onAbort(options.signal, () => cancel(control));
    this.#starting = begin(control, start);
    const self = typeof WeakRef === "undefined" ? undefined : new WeakRef<Stream>(this);
    // Whoever asks for an event hears of an error.
    this.#starting.then(
      () => {
        const stream = self === undefined ? undefined : self.deref();
        const held = control.held;
        if (held === undefined) return;
        if (stream !== undefined) keep(stream, held);
        else if (self !== undefined) void calling(() => held.close(held.of, held.handle)).catch(() => {});
      },
      () => this.#quit(),
    );
  }

  /** Waits until the request was accepted. Throws why it was refused. */
  async ready(): Promise<void> {
    await this.#starting;
  }

  /** The next event. */
  next(): Promise<IteratorResult<Event, undefined>> {
    if (this.#asking === 0) {
      if (this.#next < this.#events.length) return Promise.resolve(this.#take());
      if (this.#isOver) return Promise.resolve({ done: true, value: undefined });
    }
    const fetch = () => this.#fetch();
    // An event is a few promises, and no more: there may be hundreds in a second.
    this.#turn = this.#asking++ === 0 ? fetch() : this.#turn!.then(fetch, fetch);
    return this.#turn;
  }

  async #fetch(): Promise<IteratorResult<Event, undefined>> {
    try {
      for (;;) {
        if (this.#next < this.#events.length) return this.#take();
        if (this.#isOver) return { done: true, value: undefined };
        if (this.#isClosed) throw new CactusError("handle", "the stream was closed");
        if (this.#control.held === undefined) {
          await this.#starting;
          // It may have been closed while it began.
          if (this.#isClosed) continue;
        }
        const { of, handle } = this.#held();
        const text = await of.requestNext(handle, -1);
        // Whoever closed or left it wants to hear nothing more.
        if (this.#isClosed || this.#isOver) continue;
        const asking = this.#took(JSON.parse(text) as Event[]);
        if (asking !== undefined) await asking;
      }
    } catch (thrown) {
      throw understood(thrown);
    } finally {
      if (--this.#asking === 0) this.#turn = undefined;
    }
  }

  /** Keeps what was fetched. Gives a promise where a person is asked. */
  #took(events: Event[]): Promise<void> | undefined {
    const last = events[events.length - 1];
    if (last === undefined) throw new CactusError("internal", "a stream ended without a last event");
    this.#events = this.#options.join === false || events.length === 1 ? events : joined(events);
    this.#next = 0;
    if (isLast(last)) {
      this.#last = last;
      this.#quit();
      void this.#release();
    } else if (last.event === "consent" && this.#options.onConsent !== undefined) {
      return this.#ask(last, this.#options.onConsent);
    }
    return undefined;
  }

  async #ask(question: ConsentEvent, ask: (question: ConsentEvent) => boolean | Promise<boolean>): Promise<void> {
    let yes = false;
    const control = this.#control;
    // A dialog may stay open for ever; who cancels or closes does not wait for it.
    const left = new Promise<false>((resolve) => (control.unask = () => resolve(false)));
    if (control.isCancelled) control.unask?.();
    try {
      const asked = (async () => ask(question))();
      asked.catch(() => {});
      yes = (await Promise.race([asked, left])) === true;
    } finally {
      control.unask = undefined;
      // Where it was cancelled meanwhile, nothing is asked any more.
      await this.consent(yes).catch(() => {});
    }
  }

  #take(): IteratorResult<Event, undefined> {
    const value = this.#events[this.#next++]!;
    if (this.#next === this.#events.length) this.#events = [];
    if (this.#events.length === 0) this.#next = 0;
    if (isLast(value)) this.#isOver = true;
    return { done: false, value };
  }

  #held(): Held {
    const held = this.#control.held;
    if (held === undefined || !isCurrent(held.of)) throw new CactusError("handle", "the stream was closed");
    return held;
  }

  /** Closes the request of the library. */
  #release(): Promise<void> {
    const held = this.#control.held;
    this.#control.held = undefined;
    if (held !== undefined) {
      spare(held);
      this.#closing = unlessEnded(held, calling(() => held.close(held.of, held.handle)));
      this.#closing.catch(() => {});
    }
    return this.#closing ?? Promise.resolve();
  }

  /** Leaves the stream: what is left of the answer is cancelled, and no further event comes. */
  async return(): Promise<IteratorResult<Event, undefined>> {
    this.#isOver = true;
    this.#events = [];
    this.#next = 0;
    await this.close();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Stops the answer within one token. Its last event is `cancelled`. May be called any number of times. */
  cancel(): void {
    if (this.#last === undefined && !this.#isClosed) cancel(this.#control);
  }

  /** Answers the event `consent`: whether what it lists may leave this machine. Going on without an answer is a no. */
  async consent(yes: boolean): Promise<void> {
    const { of, handle } = this.#held();
    await calling(() => of.requestConsent(handle, yes));
  }

  /** Reads what is left, and gives the whole answer. Throws how the request failed. */
  async answer(): Promise<Answer> {
    while (this.#last === undefined) {
      const { done } = await this.next();
      if (done === true) throw new CactusError("handle", "the stream was left");
    }
    this.#isOver = true;
    this.#events = [];
    return answerOf(this.#last);
  }

  /** The text of the answer, piece by piece. Throws how the request failed. For a model without a policy: what is replaced stays. */
  text(): AsyncIterableIterator<string> {
    const stream = this;
    return {
      async next(): Promise<IteratorResult<string, undefined>> {
        for (;;) {
          const { done, value } = await stream.next();
          if (done === true) return { done: true, value: undefined };
          if (value.event === "text") return { done: false, value: (value as { text: string }).text };
          if (value.event === "failed") answerOf(value as FailedEvent);
        }
      },
      async return(): Promise<IteratorResult<string, undefined>> {
        await stream.return();
        return { done: true, value: undefined };
      },
      [Symbol.asyncIterator]() {
        return this;
      },
    };
  }

  /** Cancels what is left, and waits until nothing of it runs. May be called any number of times. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#events = [];
    this.#next = 0;
    this.#quit();
    cancel(this.#control);
    await this.#starting.catch(() => {});
    await this.#release();
  }

  [ASYNC_DISPOSE](): Promise<void> {
    return this.close();
  }

  [DISPOSE](): void {
    this.close().catch(() => {});
  }
}
