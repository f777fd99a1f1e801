package dev.cactusengine

import kotlin.jvm.JvmField
import kotlin.jvm.JvmOverloads
import kotlin.jvm.JvmStatic

/** A piece of a document. */
public class Piece internal constructor(@JvmField public val json: Json) {
    public val source: String get() = json["source"].text.orEmpty()
    public val content: String get() = json["content"].text.orEmpty()

    /** The cosine of its vector and that of the question. */
    public val similarity: Double? get() = json["similarity"].double
}

/** A folder of documents, which is asked for the pieces that are nearest to a question. */
public class Documents internal constructor(number: Long) : Closeable("the documents", number, { library.destroy(it) }) {
    /** The [count] nearest pieces, the best first. */
    public suspend fun query(text: String, count: Int = 5): List<Piece> = away { queryBlocking(text, count) }

    /** As [query], on this thread. */
    @JvmOverloads
    public fun queryBlocking(text: String, count: Int = 5): List<Piece> =
        Json.parse(with { library.ragQuery(it, text, count) })["chunks"].items.map { Piece(it) }

    public companion object {
        /**
         * Opens a folder with the model in the folder [bundle]: one that makes vectors, or one that writes, if the environment variable
         * `CACTUS_EMBEDDER` names one that makes vectors. Only what is new in the folder is read.
         */
        public suspend fun open(bundle: String, folder: String): Documents = away(discard = { it.close() }) { openBlocking(bundle, folder) }

        /** As [open], on this thread. */
        @JvmStatic
        public fun openBlocking(bundle: String, folder: String): Documents = Documents(library.documentsOpen(bundle, folder))
    }
}
