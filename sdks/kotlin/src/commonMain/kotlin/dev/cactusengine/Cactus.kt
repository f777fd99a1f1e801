package dev.cactusengine

import kotlin.jvm.JvmField
import kotlin.jvm.JvmOverloads
import kotlin.jvm.JvmStatic

/** How far it is on the way to a model. */
public class Progress internal constructor(
    /** `downloading`, `converting`, `loading` and so on; or `note`, which the user should read. */
    @JvmField public val stage: String,
    /** What it is about, or empty. */
    @JvmField public val what: String,
    /** How much is done, of [total]. */
    @JvmField public val done: Long,
    /** 0 where it is not known. */
    @JvmField public val total: Long,
)

/** Hears how far it is. It is called on a thread of this SDK, and must not wait. What it throws stops the loading. */
public fun interface ProgressListener {
    public fun on(progress: Progress)
}

/** Hears what the library has to say. It is called on any thread, and must not wait. */
public fun interface LogListener {
    public fun on(level: Int, component: String, message: String)
}

/** What is known of a bundle. */
public class BundleReport internal constructor(@JvmField public val json: JsonObject) {
    /** Whether this build can use it. */
    public val isUsable: Boolean get() = json["usable"].boolean == true

    /** Why not, as an error would have it. */
    public val error: CactusException?
        get() = if (isUsable) null
        else CactusException(json["code"].int ?: CactusCode.INTERNAL, json["kind"].text.orEmpty(), json["message"].text.orEmpty())
}

/** The library as a whole. */
public object Cactus {
    /** The version of the library. */
    @JvmStatic
    public val version: String get() = library.version()

    /** The ABI of the library. One that does not fit this SDK is refused when it is loaded. */
    @JvmStatic
    public val abiVersion: Int get() = library.abiVersion()

    /** Whether the bundle in a folder can be used, and why not. With [verify] all of it is read and compared with its checksums. */
    public suspend fun checkBundle(path: String, verify: Boolean = false): BundleReport = away { checkBundleBlocking(path, verify) }

    /** As [checkBundle], on this thread. */
    @JvmStatic
    @JvmOverloads
    public fun checkBundleBlocking(path: String, verify: Boolean = false): BundleReport =
        BundleReport(JsonObject.parse(library.checkBundle(path, verify)))

    /** Says that memory is short: models forget what they keep of earlier prompts. Answers stay the same. */
    @JvmStatic
    public fun memoryPressure(): Unit = library.memoryPressure()

    /**
     * Listens to what the library says from [level] on: 0 debug, 1 information, 2 warning, 3 error. Without a listener nothing is said.
     */
    @JvmStatic
    public fun setLog(level: Int, log: LogListener?): Unit = library.setLog(level, log)
}
