@file:JvmName("Cancel")

package examples.cancel

import dev.cactusengine.Event
import dev.cactusengine.Model
import dev.cactusengine.request
import dev.cactusengine.texts
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.flow.take
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking

/** Three ways to stop an answer. */
fun main(args: Array<String>) = runBlocking<Unit> {
    Model.load(args[0]).use { model ->
        val long = request {
            prompt("Count to a thousand: one, two,")
            maxTokens = 1500
            set("ignore_eos", true)
        }

        // Leave the stream: what is no longer collected is no longer computed.
        println(model.stream(long).texts().take(3).toList())

        // Cancel the coroutine, as a scope does when its screen is left. When `cancelAndJoin` returns, the model is idle.
        val job = launch { model.respond(long) }
        job.cancelAndJoin()

        // Cancel the request, from any thread, and keep what came of it.
        model.start(long).use { active ->
            active.next()
            active.cancel()
            active.events.collect { if (it is Event.Cancelled) println("kept: ${it.answer.text}") }
        }
    }
}
