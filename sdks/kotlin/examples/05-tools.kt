@file:JvmName("Tools")

package examples.tools

import dev.cactusengine.Model
import dev.cactusengine.Shape
import dev.cactusengine.request
import dev.cactusengine.tool
import kotlinx.coroutines.runBlocking

/** Lets the model call a function, and asks before each call. */
fun main(args: Array<String>) = runBlocking<Unit> {
    val weather = tool("weather", "The weather of a city") {
        val city = oneOf("city", "Paris", "Rome", description = "Name of the city")
        val days = withDefault("days", Shape.integer(least = 1, most = 9), otherwise = 1)
        runs { "Sunny in ${it[city]} for ${it[days]} days." }
    }
    Model.load(args[0]).use { model ->
        val asked = request {
            user("What is the weather in Paris?")
            // It has to call one; without this line the model decides.
            toolChoice("required")
            field("parallel_tool_calls", false)
            maxTokens = 120
        }
        val answer = model.respondWithTools(asked, listOf(weather), most = 1, confirm = { call ->
            println("may it call $call? yes")
            true
        })
        println(answer.text)
    }
}
