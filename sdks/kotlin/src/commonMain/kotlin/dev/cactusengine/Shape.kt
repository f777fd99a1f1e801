package dev.cactusengine

import kotlin.jvm.JvmField
import kotlin.jvm.JvmStatic
import kotlin.jvm.JvmSynthetic

/**
 * What a JSON value has to look like, and how it becomes a value of Kotlin: no reflection and no compiler plugin.
 *
 * ```kotlin
 * data class City(val name: String, val inhabitants: Int)
 *
 * val city = shape {
 *     val name = text("name")
 *     val inhabitants = integer("inhabitants", least = 0)
 *     makes { City(it[name], it[inhabitants]) }
 * }
 * val found: City = model.respond(request, city)
 * ```
 */
public class Shape<T>(
    /** The JSON schema. */
    @JvmField public val schema: JsonObject,
    private val read: (Json) -> T,
) {
    /** The value of [json], which follows the schema. */
    public fun read(json: Json): T = read.invoke(json)

    /** The value of a text. */
    public fun parse(text: String): T = read(Json.parse(text))

    /** The same JSON, another value. */
    public fun <R> map(change: (T) -> R): Shape<R> = Shape(schema) { change(read(it)) }

    /** This shape, described to the model. */
    public fun described(description: String): Shape<T> =
        if (description.isEmpty()) this else Shape(JsonObject(schema + ("description" to JsonText(description))), read)

    /** This shape, or nothing. */
    public fun orNull(): Shape<T?> = Shape(schemaOf("anyOf" to listOf(schema, schemaOf("type" to "null")))) {
        if (it is JsonNull) null else read(it)
    }

    public companion object {
        /** Any text. */
        @JvmStatic
        public fun text(): Shape<String> = Shape(schemaOf("type" to "string")) { it.text ?: throw unlike("a text", it) }

        /** A whole number. */
        @JvmStatic
        public fun integer(least: Int? = null, most: Int? = null): Shape<Int> =
            Shape(schemaOf("type" to "integer", "minimum" to least, "maximum" to most)) { it.int ?: throw unlike("a whole number", it) }

        /** A number. */
        @JvmStatic
        public fun number(): Shape<Double> = Shape(schemaOf("type" to "number")) { it.double ?: throw unlike("a number", it) }

        /** `true` or `false`. */
        @JvmStatic
        public fun flag(): Shape<Boolean> = Shape(schemaOf("type" to "boolean")) { it.boolean ?: throw unlike("true or false", it) }

        /** One of some texts. */
        @JvmStatic
        public fun oneOf(vararg choices: String): Shape<String> = Shape(schemaOf("enum" to choices)) { json ->
            json.text?.takeIf { it in choices } ?: throw unlike("one of ${choices.joinToString()}", json)
        }

        /** A list. */
        @JvmStatic
        public fun <T> list(of: Shape<T>, least: Int? = null, most: Int? = null): Shape<List<T>> =
            Shape(schemaOf("type" to "array", "items" to of.schema, "minItems" to least, "maxItems" to most)) { json ->
                (json as? JsonArray ?: throw unlike("a list", json)).map { of.read(it) }
            }

        /** JSON as it is, by a schema of your own. */
        @JvmStatic
        public fun json(schema: JsonObject): Shape<Json> = Shape(schema) { it }
    }
}

/** One of the constants of an enumeration, by their names. */
public inline fun <reified E : Enum<E>> enumShape(): Shape<E> {
    val values = enumValues<E>()
    return Shape.oneOf(*Array(values.size) { values[it].name }).map { name -> values.first { it.name == name } }
}

/** A field of an object that is read: a key for [Fields]. */
public class Key<T> internal constructor(internal val name: String, internal val shape: Shape<T>, internal val absent: (() -> T)?)

/** The fields of an object, by their keys. */
public class Fields internal constructor(private val json: JsonObject) {
    /** The value of a field. */
    public operator fun <T> get(key: Key<T>): T {
        val field = (json as Map<String, Json>)[key.name]
        if (field == null || (field is JsonNull && key.absent != null)) {
            return (key.absent ?: throw refused("`${key.name}`: it is missing"))()
        }
        return key.shape.read(field)
    }
}

/** Says which fields an object has. */
public open class ObjectBuilder internal constructor() {
    private val keys = LinkedHashMap<String, Key<*>>()

    /** A field of any shape. */
    public fun <T> field(name: String, shape: Shape<T>, description: String = ""): Key<T> = key(name, shape.described(description), null)

    /** A field that may be missing. */
    public fun <T> optional(name: String, shape: Shape<T>, description: String = ""): Key<T?> =
        key(name, Shape<T?>(shape.described(description).schema) { shape.read(it) }) { null }

    /** A field that may be missing, and is [otherwise] then. */
    public fun <T> withDefault(name: String, shape: Shape<T>, otherwise: T, description: String = ""): Key<T> =
        key(name, shape.described(description)) { otherwise }

    /** A text. */
    public fun text(name: String, description: String = ""): Key<String> = field(name, Shape.text(), description)

    /** A whole number. */
    public fun integer(name: String, description: String = "", least: Int? = null, most: Int? = null): Key<Int> =
        field(name, Shape.integer(least, most), description)

    /** A number. */
    public fun number(name: String, description: String = ""): Key<Double> = field(name, Shape.number(), description)

    /** `true` or `false`. */
    public fun flag(name: String, description: String = ""): Key<Boolean> = field(name, Shape.flag(), description)

    /** One of some texts. */
    public fun oneOf(name: String, vararg choices: String, description: String = ""): Key<String> =
        field(name, Shape.oneOf(*choices), description)

    /** A list. */
    public fun <T> list(name: String, of: Shape<T>, description: String = ""): Key<List<T>> = field(name, Shape.list(of), description)

    /** An object inside of this one. */
    public fun <T> nested(name: String, description: String = "", block: ShapeBuilder<T>.() -> Unit): Key<T> =
        field(name, shape(block), description)

    private fun <T> key(name: String, shape: Shape<T>, absent: (() -> T)?): Key<T> {
        if (name in keys) throw refused("`$name`: two fields have this name")
        return Key(name, shape, absent).also { keys[name] = it }
    }

    internal fun schema(): JsonObject = schemaOf(
        "type" to "object",
        "properties" to keys.mapValues { it.value.shape.schema },
        "required" to keys.values.filter { it.absent == null }.map { it.name },
        "additionalProperties" to false,
    )
}

/** Says which fields an object has, and what they become. */
public class ShapeBuilder<T> internal constructor() : ObjectBuilder() {
    private var make: ((Fields) -> T)? = null

    /** Makes the value of the fields. */
    public fun makes(make: (Fields) -> T) {
        this.make = make
    }

    @JvmSynthetic
    internal fun build(): Shape<T> {
        val make = make ?: throw refused("a shape of an object needs `makes`, which says what the fields become")
        return Shape(schema()) { make(Fields(it as? JsonObject ?: throw unlike("an object", it))) }
    }
}

/** The shape of an object: fields, and what they become. */
public fun <T> shape(block: ShapeBuilder<T>.() -> Unit): Shape<T> = ShapeBuilder<T>().apply(block).build()

internal fun schemaOf(vararg fields: Pair<String, Any?>): JsonObject =
    JsonObject(fields.filter { it.second != null }.associate { (name, value) -> name to Json.of(value) })

private fun unlike(expected: String, found: Json): CactusException = refused("expected $expected, found $found")
