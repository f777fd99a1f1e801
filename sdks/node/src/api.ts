// The SDK, without a host: import this, and `provide` functions of the library.

export * from "./cactus.ts";
export * as Cactus from "./cactus.ts";
export { type Chunk, Documents } from "./documents.ts";
export { CactusError } from "./errors.ts";
export type { Signal } from "./lifetime.ts";
export { type LoadOptions, Model, type PolicyOptions, prepare, type PrepareOptions, type Progress, type Score } from "./model.ts";
export { ABI_VERSION, type ErrorKind, type EventName, type Native, provide } from "./native.ts";
export type { Path } from "./paths.ts";
export type { Infer, ParsedSchema, Schema, StandardSchema } from "./schema.ts";
export { Embedder, type Entry, type Found, Index, type QueryOptions, type Stored } from "./search.ts";
export { Session } from "./session.ts";
export { Stream, type StreamOptions } from "./stream.ts";
export type { RespondOptions } from "./talker.ts";
export { tool, type Tool, type ToolOptions } from "./tools.ts";
export { type LiveOptions, type LiveResult, LiveTranscription, type Pcm, type Segment, type Sound, Transcriber, type TranscribeOptions, type Transcript } from "./transcriber.ts";
export * from "./types.ts";
