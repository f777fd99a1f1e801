// Made of crates/ffi/abi.json by `cargo xtask sdks`; do not edit.

package dev.cactusengine

/** Codes of errors: [CactusException.code]. They never change their meaning. */
public object CactusCode {
    /**
     * No error.
     */
    public const val OK: Int = 0

    /**
     * A defect of the library. What it was doing is lost; the library goes on.
     */
    public const val INTERNAL: Int = -1

    /**
     * The caller's buffer is too small.
     */
    public const val BUFFER_TOO_SMALL: Int = -2

    /**
     * An argument is null, out of range, not UTF-8, or JSON of the wrong form.
     */
    public const val ARGUMENT: Int = -3

    /**
     * A handle was closed, is of another kind, or never was one.
     */
    public const val HANDLE: Int = -4

    /**
     * The bundle is missing; or it, or a file of a graph or of weights, is damaged, or of a form or version that is
     * not read.
     */
    public const val BUNDLE: Int = -5

    /**
     * The model cannot do what is asked of it.
     */
    public const val UNSUPPORTED: Int = -6

    /**
     * The tokenizer or the chat template is missing or fails.
     */
    public const val TEXT: Int = -7

    /**
     * The prompt does not fit the context.
     */
    public const val CONTEXT_FULL: Int = -8

    /**
     * The model computed something that is no number.
     */
    public const val NUMERIC: Int = -9

    /**
     * Too many requests wait already.
     */
    public const val BUSY: Int = -10

    /**
     * It was cancelled.
     */
    public const val CANCELLED: Int = -11

    /**
     * It cannot be done from inside a callback, because it would wait for that callback.
     */
    public const val IN_CALLBACK: Int = -12

    /**
     * The model cannot be downloaded or converted: what came is damaged, or cannot be used.
     */
    public const val FETCH: Int = -13

    /**
     * A file cannot be read or written, or memory or a thread cannot be had.
     */
    public const val SYSTEM: Int = -14

    /**
     * This build of the library does not have it.
     */
    public const val NOT_IN_BUILD: Int = -15

    /**
     * There is no model of that name, or nothing at that path. The message has names like it.
     */
    public const val NOT_FOUND: Int = -16

    /**
     * The model is not on this machine, and the network cannot be reached or is turned off.
     */
    public const val OFFLINE: Int = -17

    /**
     * The service wants a token, or refuses the one that it got.
     */
    public const val UNAUTHORIZED: Int = -18

    /**
     * Under a policy, neither this machine nor a target has answered.
     */
    public const val UNANSWERED: Int = -19
}
