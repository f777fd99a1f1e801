package dev.cactusengine

import kotlin.jvm.JvmOverloads
import kotlin.jvm.JvmStatic
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.ensureActive

/** A model that makes vectors of texts, and maybe of pictures. */
public class Embedder internal constructor(number: Long) : Closeable("the embedder", number, { library.destroy(it) }) {
    /** The vector of a text. [normalize] gives it the length 1. */
    public suspend fun embed(text: String, normalize: Boolean = true): FloatArray = away { embedBlocking(text, normalize) }

    /** The vectors of texts, in their order. */
    public suspend fun embed(texts: List<String>, normalize: Boolean = true): List<FloatArray> = texts.map { text ->
        currentCoroutineContext().ensureActive()
        embed(text, normalize)
    }

    /** As [embed], on this thread. */
    @JvmOverloads
    public fun embedBlocking(text: String, normalize: Boolean = true): FloatArray = with { library.embed(it, text, normalize) }

    /** The vector of a picture in a PNG, JPEG or WebP file, to be compared with those of texts. */
    public suspend fun embedImage(path: String): FloatArray = away { embedImageBlocking(path) }

    /** As [embedImage], on this thread. */
    public fun embedImageBlocking(path: String): FloatArray = with { library.imageEmbed(it, path) }

    public companion object {
        /** Loads the bundle in a folder. */
        public suspend fun load(bundle: String): Embedder = away(discard = { it.close() }) { loadBlocking(bundle) }

        /** As [load], on this thread. */
        @JvmStatic
        public fun loadBlocking(bundle: String): Embedder = Embedder(library.embedderLoad(bundle))
    }
}
