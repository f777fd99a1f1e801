package dev.cactusengine

import kotlin.jvm.JvmField
import kotlin.jvm.JvmStatic

/**
 * A JSON value. Numbers keep the digits that they were written with, and objects keep the order of their fields.
 *
 * `json["a"]["b"].text` reads a field inside of a field; what is not there, or has another type, is `null`. [toString] writes JSON.
 */
public sealed interface Json {
    public companion object {
        /** Reads a text that is one JSON value. */
        @JvmStatic
        public fun parse(text: String): Json = JsonReader(text).whole()

        /**
         * A value of what Kotlin and Java have: `null`, texts, numbers, `Boolean`, maps with texts as keys, lists, arrays, and values of JSON.
         */
        @JvmStatic
        public fun of(value: Any?): Json = when (value) {
            null -> JsonNull
            is Json -> value
            is String -> JsonText(value)
            is Boolean -> JsonBoolean(value)
            is Number -> number(value)
            is Map<*, *> -> JsonObject(value.entries.associate { (name, field) -> name.toString() to of(field) })
            is Iterable<*> -> JsonArray(value.map { of(it) })
            is Array<*> -> JsonArray(value.map { of(it) })
            is IntArray -> JsonArray(value.map { of(it) })
            is FloatArray -> JsonArray(value.map { of(it) })
            is Enum<*> -> JsonText(value.name)
            else -> throw refused("${value::class.simpleName} is nothing that JSON has")
        }

        private fun number(value: Number): JsonNumber {
            val isFinite = value.toDouble().let { !it.isNaN() && !it.isInfinite() }
            return if (isFinite) JsonNumber(value.toString()) else throw refused("$value is no number of JSON")
        }
    }
}

/** `null`. */
public object JsonNull : Json {
    override fun toString(): String = "null"
}

/** `true` or `false`. */
public data class JsonBoolean(@JvmField public val value: Boolean) : Json {
    override fun toString(): String = value.toString()
}

/** A number, as it is written. */
public class JsonNumber(@JvmField public val digits: String) : Json {
    override fun toString(): String = digits
    override fun hashCode(): Int = digits.toDouble().hashCode()
    override fun equals(other: Any?): Boolean =
        other is JsonNumber && (digits == other.digits || digits.toDouble() == other.digits.toDouble())
}

/** A text. */
public data class JsonText(@JvmField public val value: String) : Json {
    override fun toString(): String = StringBuilder().also { quote(value, it) }.toString()
}

/** An array: a list of its values. */
public class JsonArray(private val items: List<Json>) : Json, List<Json> by items {
    override fun toString(): String = StringBuilder().also { write(this, it) }.toString()
    override fun hashCode(): Int = items.hashCode()
    override fun equals(other: Any?): Boolean = other is JsonArray && items == other.items
}

/** An object: a map of its fields. */
public class JsonObject(private val fields: Map<String, Json>) : Json, Map<String, Json> by fields {
    override fun toString(): String = StringBuilder().also { write(this, it) }.toString()
    override fun hashCode(): Int = fields.hashCode()
    override fun equals(other: Any?): Boolean = other is JsonObject && fields == other.fields

    public companion object {
        /** Reads a text that is one object. */
        @JvmStatic
        public fun parse(text: String): JsonObject =
            Json.parse(text) as? JsonObject ?: throw refused("expected a JSON object, found ${text.take(40)}")
    }
}

/** The field [name] of an object. */
public operator fun Json?.get(name: String): Json? = (this as? JsonObject)?.let { (it as Map<String, Json>)[name] }

/** The value at [index] of an array. */
public operator fun Json?.get(index: Int): Json? = (this as? JsonArray)?.let { (it as List<Json>).getOrNull(index) }

/** The text, where it is one. */
public val Json?.text: String? get() = (this as? JsonText)?.value

/** The number, where it is a whole one. */
public val Json?.long: Long? get() = (this as? JsonNumber)?.let { it.digits.toLongOrNull() ?: wholeOf(it.digits) }

/** The number, where it is a whole one of 32 bits. */
public val Json?.int: Int? get() = long?.let { if (it in Int.MIN_VALUE..Int.MAX_VALUE) it.toInt() else null }

/** The number, where it is one. */
public val Json?.double: Double? get() = (this as? JsonNumber)?.digits?.toDoubleOrNull()

/** `true` or `false`, where it is one of them. */
public val Json?.boolean: Boolean? get() = (this as? JsonBoolean)?.value

/** The values, where it is an array; else none. */
public val Json?.items: List<Json> get() = this as? JsonArray ?: emptyList()

private fun wholeOf(digits: String): Long? {
    val number = digits.toDouble()
    val isWhole = number == kotlin.math.floor(number) && kotlin.math.abs(number) <= 9.007199254740992E15
    return if (isWhole) number.toLong() else null
}

private fun write(value: Json, out: StringBuilder) {
    when (value) {
        is JsonText -> quote(value.value, out)
        is JsonArray -> {
            out.append('[')
            (value as List<Json>).forEachIndexed { at, item ->
                if (at > 0) out.append(',')
                write(item, out)
            }
            out.append(']')
        }
        is JsonObject -> {
            out.append('{')
            (value as Map<String, Json>).entries.forEachIndexed { at, (name, field) ->
                if (at > 0) out.append(',')
                quote(name, out)
                out.append(':')
                write(field, out)
            }
            out.append('}')
        }
        else -> out.append(value.toString())
    }
}

private fun quote(text: String, out: StringBuilder) {
    out.append('"')
    for (c in text) {
        when {
            c == '"' || c == '\\' -> out.append('\\').append(c)
            c == '\n' -> out.append("\\n")
            c < ' ' -> out.append("\\u").append(c.code.toString(16).padStart(4, '0'))
            else -> out.append(c)
        }
    }
    out.append('"')
}

private const val DEEPEST = 200

/** Reads JSON by the letter of its standard. */
private class JsonReader(private val text: String) {
    private var at = 0

    fun whole(): Json {
        val value = value(0)
        space()
        if (at < text.length) throw wrong("the end")
        return value
    }

    private fun wrong(expected: String): CactusException {
        val found = if (at < text.length) "'${text[at]}'" else "the end"
        return refused("JSON, at character $at: expected $expected, found $found")
    }

    private fun space() {
        while (at < text.length && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t')) at++
    }

    private fun next(c: Char): Boolean {
        space()
        val isNext = at < text.length && text[at] == c
        if (isNext) at++
        return isNext
    }

    private fun word(word: String, value: Json): Json {
        if (!text.startsWith(word, at)) throw wrong("a value")
        at += word.length
        return value
    }

    private fun value(depth: Int): Json {
        space()
        if (depth > DEEPEST) throw wrong("at most $DEEPEST levels")
        if (at >= text.length) throw wrong("a value")
        return when (text[at]) {
            '{' -> fields(depth)
            '[' -> items(depth)
            '"' -> JsonText(string())
            't' -> word("true", JsonBoolean(true))
            'f' -> word("false", JsonBoolean(false))
            'n' -> word("null", JsonNull)
            else -> number()
        }
    }

    private fun fields(depth: Int): Json {
        at++
        val fields = LinkedHashMap<String, Json>()
        if (next('}')) return JsonObject(fields)
        do {
            space()
            if (at >= text.length || text[at] != '"') throw wrong("a name")
            val name = string()
            if (!next(':')) throw wrong("':'")
            fields[name] = value(depth + 1)
        } while (next(','))
        if (!next('}')) throw wrong("',' or '}'")
        return JsonObject(fields)
    }

    private fun items(depth: Int): Json {
        at++
        val items = ArrayList<Json>()
        if (next(']')) return JsonArray(items)
        do items.add(value(depth + 1)) while (next(','))
        if (!next(']')) throw wrong("',' or ']'")
        return JsonArray(items)
    }

    private fun string(): String {
        val begin = ++at
        while (at < text.length && text[at] != '"' && text[at] != '\\' && text[at] >= ' ') at++
        if (at < text.length && text[at] == '"') return text.substring(begin, at++)
        val out = StringBuilder(text.substring(begin, at))
        while (true) {
            if (at >= text.length || text[at] < ' ') throw wrong("'\"'")
            when (val c = text[at++]) {
                '"' -> return out.toString()
                '\\' -> out.append(escaped())
                else -> out.append(c)
            }
        }
    }

    private fun escaped(): Char {
        if (at >= text.length) throw wrong("an escape")
        return when (text[at++]) {
            '"' -> '"'
            '\\' -> '\\'
            '/' -> '/'
            'b' -> '\b'
            'f' -> '\u000C'
            'n' -> '\n'
            'r' -> '\r'
            't' -> '\t'
            'u' -> {
                val digits = text.substring(at, minOf(at + 4, text.length))
                if (digits.length < 4 || digits.any { it.digitToIntOrNull(16) == null }) throw wrong("four digits")
                at += 4
                digits.toInt(16).toChar()
            }
            else -> {
                at--
                throw wrong("an escape")
            }
        }
    }

    private fun digits() {
        val begin = at
        while (at < text.length && text[at] in '0'..'9') at++
        if (at == begin) throw wrong("a digit")
    }

    private fun number(): Json {
        val begin = at
        if (text[at] == '-') at++
        if (at >= text.length || text[at] !in '0'..'9') throw wrong("a value")
        if (text[at] == '0') at++ else digits()
        if (at < text.length && text[at] == '.') {
            at++
            digits()
        }
        if (at < text.length && (text[at] == 'e' || text[at] == 'E')) {
            at++
            if (at < text.length && (text[at] == '+' || text[at] == '-')) at++
            digits()
        }
        return JsonNumber(text.substring(begin, at))
    }
}
