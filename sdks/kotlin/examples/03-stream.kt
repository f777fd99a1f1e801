@file:JvmName("Stream")

package examples.stream

import dev.cactusengine.Event
import dev.cactusengine.Model
import dev.cactusengine.request
import kotlinx.coroutines.runBlocking

/** Shows an answer as it is made. */
fun main(args: Array<String>) = runBlocking<Unit> {
    Model.load(args[0]).use { model ->
        val asked = request {
            user("Tell a story about a cactus.")
            maxTokens = 40
        }
        model.stream(asked).collect { event ->
            when (event) {
                is Event.Started -> println("[${event.promptTokens} tokens of prompt]")
                is Event.Text -> print(event.text)
                is Event.Done -> println("\n[${event.answer.finishReason}]")
                is Event.Failed -> throw event.error
                else -> {}
            }
        }
    }
}
