@file:JvmName("EmbedAndSearch")

package examples.search

import dev.cactusengine.Document
import dev.cactusengine.Embedder
import dev.cactusengine.Index
import dev.cactusengine.QueryOptions
import java.nio.file.Files
import kotlinx.coroutines.runBlocking

/** Finds the text that is nearest to a question. */
fun main(args: Array<String>) = runBlocking<Unit> {
    val texts = listOf("A cactus stores water in its stem.", "The kettle is on the stove.", "Rain falls in autumn.")
    val folder = Files.createTempDirectory("search").toFile()
    Embedder.load(args[0]).use { embedder ->
        val vectors = embedder.embed(texts)
        Index.open(folder.path, vectors[0].size).use { index ->
            index.add(texts.indices.map { Document(it, texts[it], vectors[it]) })
            val found = index.query(embedder.embed("How does a desert plant drink?"), QueryOptions().apply { count = 2 })
            for (each in found) println("%.3f %s".format(each.score, texts[each.id]))
        }
    }
    folder.deleteRecursively()
}
