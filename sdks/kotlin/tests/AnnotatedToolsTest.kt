package dev.cactusengine

import kotlin.test.Test
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlinx.coroutines.runBlocking

class AnnotatedToolsTest {
    enum class Unit2 { CELSIUS, KELVIN }

    class House {
        @ToolFunction("Sets the heating", name = "set_heating")
        fun heat(
            @Argument("degrees", "How warm") degrees: Double,
            @Argument("unit") unit: Unit2,
            @Argument("rooms") rooms: List<String>,
            @Argument("minutes", optional = true) minutes: Int?,
        ): String = "$degrees $unit in $rooms for $minutes"

        @ToolFunction("Fails")
        fun broken(): Unit = throw IllegalStateException("no power")

        fun other(): Int = 1
    }

    class Nothing2

    class Wrong {
        @ToolFunction("x")
        fun x(@Argument("a") a: Any): String = "$a"
    }

    @Test
    fun annotated_functions_are_tools() = runBlocking<Unit> {
        val (broken, heat) = toolsOf(House())
        assertEquals("set_heating", heat.name)
        assertEquals(
            """{"type":"object","properties":{"degrees":{"type":"number","description":"How warm"},"unit":{"enum":["CELSIUS","KELVIN"]},""" +
                """"rooms":{"type":"array","items":{"type":"string"}},"minutes":{"type":"integer"}},"required":["degrees","unit","rooms"],""" +
                """"additionalProperties":false}""",
            heat.parameters.toString(),
        )
        assertEquals(
            "20.5 KELVIN in [a, b] for null",
            heat.call(JsonObject.parse("""{"degrees": 20.5, "unit": "KELVIN", "rooms": ["a", "b"]}""")),
        )
        assertFailsWith<IllegalStateException> { broken.call(JsonObject.parse("{}")) }
        refuses("argument") { toolsOf(Nothing2()) }
        refuses("argument") { toolsOf(Wrong()) }
    }
}
