@file:JvmName("Hybrid")

package examples.hybrid

import dev.cactusengine.Event
import dev.cactusengine.Model
import dev.cactusengine.PolicyOptions
import dev.cactusengine.request
import java.nio.file.Files
import kotlinx.coroutines.runBlocking

/** Hands a question to a target, if a person says yes: MODEL, and the address of a target, as `http://127.0.0.1:8081/v1#name`. */
fun main(args: Array<String>) = runBlocking<Unit> {
    Model.load(args[0]).use { model ->
        val policy = PolicyOptions().apply {
            target = args[1]
            handoff = "always"
            budget = "0.05"
            state = Files.createTempDirectory("policy").toString()
        }
        model.setPolicy(options = policy)
        val asked = request {
            user("What is the capital of France?")
            maxTokens = 20
        }
        model.stream(asked).collect { event ->
            when (event) {
                is Event.Consent -> {
                    print("May ${event.classes} leave for ${event.host}, for at most ${event.most} dollars? [y/N] ")
                    event.answer(readlnOrNull() == "y")
                }
                is Event.Source -> println("[${event.side}: ${event.target ?: "this machine"}, ${event.reason}]")
                is Event.Replaced -> println("\n[void: ${event.reason}]")
                is Event.Text -> print(event.text)
                is Event.Done -> println("\n[answered by ${event.answer.answeredBy}, ${event.answer.costUsd} dollars]")
                is Event.Failed -> throw event.error
                else -> {}
            }
        }
    }
}
