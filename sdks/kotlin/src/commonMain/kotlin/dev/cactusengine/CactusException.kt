package dev.cactusengine

/**
 * A call that failed.
 *
 * [message] says what was expected, what was found, and where. [kind] is the name of [code], as in `argument`; a closed object gives
 * `handle`. A program decides by [code] or [kind], never by the message.
 */
public class CactusException(
    /** One of [CactusCode]. */
    public val code: Int,
    /** The name of the code. It never changes its meaning. */
    public val kind: String,
    message: String,
) : RuntimeException(message)

internal fun refused(message: String): CactusException = CactusException(CactusCode.ARGUMENT, "argument", message)

internal fun closed(what: String): CactusException = CactusException(CactusCode.HANDLE, "handle", "$what: it was closed")
