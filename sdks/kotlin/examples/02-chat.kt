@file:JvmName("Chat")

package examples.chat

import dev.cactusengine.Model
import dev.cactusengine.request
import kotlinx.coroutines.runBlocking

/** A conversation: the session remembers what was said. */
fun main(args: Array<String>) = runBlocking<Unit> {
    Model.load(args[0], onProgress = { System.err.println("${it.stage} ${it.what}") }) {}.use { model ->
        val defaults = request {
            system("Be brief.")
            maxTokens = 60
        }
        model.session(defaults).use { session ->
            println(session.respond("Why is the sky blue?").text)
            val answer = session.respond("And at sunset?")
            println(answer.text)
            println("${answer.usage.completionTokens} tokens, ${session.messages.size} messages")
        }
    }
}
