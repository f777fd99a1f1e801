@file:JvmName("Picture")

package examples.picture

import dev.cactusengine.Model
import dev.cactusengine.image
import dev.cactusengine.request
import java.io.File
import kotlinx.coroutines.runBlocking

/** Asks about a picture, with a model that sees. Sound goes the same way, with `audio`, to a model that hears. */
fun main(args: Array<String>) = runBlocking<Unit> {
    Model.load(args[0]).use { model ->
        val asked = request {
            user {
                image(File(args[1]))
                text("What is in this picture?")
            }
            maxTokens = 40
        }
        val answer = model.respond(asked)
        println(answer.text)
        println("(${answer.usage.promptTokens} tokens read, ${answer.usage.completionTokens} written)")
    }
}
