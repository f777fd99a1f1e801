package dev.cactusengine

import kotlin.jvm.JvmField
import kotlin.jvm.JvmOverloads
import kotlin.jvm.JvmStatic

/** A document of an [Index]. */
public class Document @JvmOverloads constructor(
    /** A number of your own. */
    @JvmField public val id: Int,
    @JvmField public val text: String,
    @JvmField public val vector: FloatArray,
    /** A text that belongs to it. */
    @JvmField public val metadata: String? = null,
)

/** A document that was found. */
public class Found internal constructor(
    @JvmField public val id: Int,
    /** The cosine. */
    @JvmField public val score: Float,
)

/** Documents with vectors, in a folder. What a call changes is on the disk when it returns. */
public class Index internal constructor(@JvmField public val dimension: Int, number: Long) :
    Closeable("the index", number, waits = true, { library.indexClose(it) }) {

    /** Adds documents. An id that is there already, or a wrong vector, refuses all of them. */
    public suspend fun add(documents: List<Document>): Unit = away { addBlocking(documents) }

    /** As [add], on this thread. */
    public fun addBlocking(documents: List<Document>): Unit = with { index ->
        val ids = IntArray(documents.size) { documents[it].id }
        val texts = Array(documents.size) { documents[it].text }
        val metadatas = if (documents.all { it.metadata == null }) null else Array(documents.size) { documents[it].metadata }
        library.indexAdd(index, dimension, ids, texts, metadatas, Array(documents.size) { checked(documents[it].vector) })
    }

    /** Documents by their ids. One that is not there is an error. The vector has the length 1, and 8 bits in each dimension. */
    public suspend fun get(ids: List<Int>): List<Document> = away { getBlocking(ids) }

    /** As [get], on this thread. */
    public fun getBlocking(ids: List<Int>): List<Document> = with { index ->
        library.indexGet(index, dimension, ids.toIntArray()).mapIndexed { at, it -> Document(ids[at], it.text, it.vector, it.metadata) }
    }

    /** The nearest documents to a vector, the best first. */
    public suspend fun query(vector: FloatArray, options: QueryOptions? = null): List<Found> = query(listOf(vector), options).first()

    /** The nearest documents to each of some vectors. */
    public suspend fun query(vectors: List<FloatArray>, options: QueryOptions? = null): List<List<Found>> =
        away { queryBlocking(vectors, options) }

    /** As [query], on this thread. */
    @JvmOverloads
    public fun queryBlocking(vectors: List<FloatArray>, options: QueryOptions? = null): List<List<Found>> = with { index ->
        val most = maxOf(options?.count ?: 10, 0)
        library.indexQuery(index, dimension, Array(vectors.size) { checked(vectors[it]) }, most, options?.json())
            .map { found -> found.map { (id, score) -> Found(id, score) } }
    }

    /** Deletes documents; ids that are not there are left out. */
    public suspend fun delete(ids: List<Int>): Unit = away { deleteBlocking(ids) }

    /** As [delete], on this thread. */
    public fun deleteBlocking(ids: List<Int>): Unit = with { library.indexDelete(it, ids.toIntArray()) }

    /** Writes the file anew, without what was deleted. */
    public suspend fun compact(): Unit = away { compactBlocking() }

    /** As [compact], on this thread. */
    public fun compactBlocking(): Unit = with { library.indexCompact(it) }

    private fun checked(vector: FloatArray): FloatArray =
        if (vector.size == dimension) vector else throw refused("a vector has ${vector.size} numbers, and those of the index have $dimension")

    public companion object {
        /** Opens the index in a folder, or makes one there, for vectors of [dimension] numbers. */
        public suspend fun open(folder: String, dimension: Int): Index = away(discard = { it.close() }) { openBlocking(folder, dimension) }

        /** As [open], on this thread. */
        @JvmStatic
        public fun openBlocking(folder: String, dimension: Int): Index = Index(dimension, library.indexOpen(folder, dimension))
    }
}
