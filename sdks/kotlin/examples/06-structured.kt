@file:JvmName("Structured")

package examples.structured

import dev.cactusengine.Model
import dev.cactusengine.enumShape
import dev.cactusengine.request
import dev.cactusengine.shape
import kotlinx.coroutines.runBlocking

enum class Mood { GOOD, BAD }

data class Review(val mood: Mood, val stars: Int, val isLong: Boolean)

/** An answer as a value: the model cannot write anything else. */
fun main(args: Array<String>) = runBlocking<Unit> {
    val review = shape {
        val mood = field("mood", enumShape<Mood>(), "How the guest feels")
        val stars = integer("stars", least = 1, most = 5)
        val isLong = flag("is_long")
        makes { Review(it[mood], it[stars], it[isLong]) }
    }
    Model.load(args[0]).use { model ->
        val asked = request {
            user("\"The soup was cold.\" Judge this review.")
            maxTokens = 200
        }
        val value: Review = model.respond(asked, review)
        println(value)
    }
}
