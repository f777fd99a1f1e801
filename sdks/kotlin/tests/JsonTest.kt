package dev.cactusengine

import kotlin.test.Test
import kotlin.test.assertEquals
import kotlin.test.assertNull

class JsonTest {
    @Test
    fun what_is_read_is_written_again() {
        for (text in listOf(
            "null", "true", "[]", "{}", "-0.5e-7", "18446744073709551615", "[1,[2,{\"a\":null}]]", "{\"b\":1,\"a\":\"x\"}",
            "\"\\\"\\\\\\n\\u0001é😀\"",
        )) {
            assertEquals(text, Json.parse(text).toString())
        }
        assertEquals("😀/\t", Json.parse("\"\\ud83d\\ude00\\/\\t\"").text)
        assertEquals(" [ 1 , 2 ] ".trim().filter { it != ' ' }, Json.parse(" [ 1 , 2 ]\n").toString())
    }

    @Test
    fun what_is_no_json_is_refused_with_its_place() {
        for (text in listOf(
            "", "[1,]", "{\"a\"}", "{a:1}", "01", "1.", "+1", "tru", "\"", "\"\u0001\"", "\"\\x\"", "\"\\u12\"", "[1] 2", "nan",
            "[".repeat(300),
        )) {
            refuses("argument") { Json.parse(text) }
        }
    }

    @Test
    fun fields_are_found_and_what_is_not_there_is_null() {
        val json = Json.parse("""{"a": {"b": [1, 2.0, 2.5, "x"]}, "big": 9007199254740993}""")
        assertEquals(1, json["a"]["b"][0].int)
        assertEquals(2L, json["a"]["b"][1].long)
        assertNull(json["a"]["b"][2].long)
        assertEquals(2.5, json["a"]["b"][2].double)
        assertEquals(9007199254740993L, json["big"].long)
        assertNull(json["a"]["c"]["d"][3].text)
        assertNull(json["big"].int)
        assertEquals(emptyList(), json["a"].items)
    }

    @Test
    fun values_of_kotlin_become_json() {
        val value = mapOf("a" to listOf(1, 2L, 0.5f, null, true), "b" to arrayOf("x"), "c" to JsonNull)
        assertEquals("""{"a":[1,2,0.5,null,true],"b":["x"],"c":null}""", Json.of(value).toString())
        refuses("argument") { Json.of(Double.NaN) }
        refuses("argument") { Json.of(Any()) }
    }
}
