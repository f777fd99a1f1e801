package dev.cactusengine

import java.lang.reflect.InvocationTargetException
import java.lang.reflect.Method
import java.lang.reflect.ParameterizedType
import java.lang.reflect.Type

/** A function that a model may call: [toolsOf] makes a tool of it. Each parameter has an [Argument]. It may block. */
@Target(AnnotationTarget.FUNCTION)
@Retention(AnnotationRetention.RUNTIME)
public annotation class ToolFunction(
    /** What it does, for the model. */
    val description: String,
    /** Without it, the name of the function. */
    val name: String = "",
)

/** A parameter of a [ToolFunction]. */
@Target(AnnotationTarget.VALUE_PARAMETER)
@Retention(AnnotationRetention.RUNTIME)
public annotation class Argument(
    val name: String,
    /** What it means, for the model. */
    val description: String = "",
    /** Whether the model may leave it out. It is `null` then. */
    val optional: Boolean = false,
)

/**
 * Tools of the functions of [owner] that have a [ToolFunction]. Parameters are texts, numbers, `Boolean`, enumerations, and lists of
 * these. It uses Java's reflection; [tool] does without.
 */
public fun toolsOf(owner: Any): List<Tool> {
    val functions = owner.javaClass.methods.filter { it.isAnnotationPresent(ToolFunction::class.java) && !it.isBridge }
    if (functions.isEmpty()) throw refused("${owner.javaClass.name} has no public function with @ToolFunction")
    return functions.sortedBy { it.name }.map { toolOf(owner, it) }
}

private fun toolOf(owner: Any, function: Method): Tool {
    val marked = function.getAnnotation(ToolFunction::class.java)
    val name = marked.name.ifEmpty { function.name }
    val keys = ArrayList<Key<Any?>>()
    val arguments = ObjectBuilder()
    function.parameterAnnotations.forEachIndexed { at, annotations ->
        val argument = annotations.filterIsInstance<Argument>().firstOrNull()
            ?: throw refused("${function.name}: its parameter ${at + 1} has no @Argument")
        val shape = shapeOf(function.genericParameterTypes[at], function.name)
        keys += if (argument.optional) arguments.optional(argument.name, shape, argument.description)
        else arguments.field<Any?>(argument.name, shape.map { it }, argument.description)
    }
    function.isAccessible = true
    return tool(name, marked.description, arguments.schema()) { json ->
        val fields = Fields(json)
        val values = keys.map { fields[it] }.toTypedArray()
        away {
            try {
                function.invoke(owner, *values) ?: Unit
            } catch (e: InvocationTargetException) {
                throw e.targetException
            }
        }
    }
}

private fun shapeOf(type: Type, function: String): Shape<Any> {
    fun <T : Any> Shape<T>.any(): Shape<Any> = map { it }
    return when {
        type == String::class.java -> Shape.text().any()
        type == Int::class.javaPrimitiveType || type == Int::class.javaObjectType -> Shape.integer().any()
        type == Long::class.javaPrimitiveType || type == Long::class.javaObjectType ->
            Shape(schemaOf("type" to "integer")) { it.long ?: throw refused("expected a whole number, found $it") }.any()
        type == Double::class.javaPrimitiveType || type == Double::class.javaObjectType -> Shape.number().any()
        type == Float::class.javaPrimitiveType || type == Float::class.javaObjectType -> Shape.number().map { it.toFloat() }.any()
        type == Boolean::class.javaPrimitiveType || type == Boolean::class.javaObjectType -> Shape.flag().any()
        type is Class<*> && type.isEnum -> {
            val constants = type.enumConstants.map { it as Enum<*> }
            Shape.oneOf(*constants.map { it.name }.toTypedArray()).map { name -> constants.first { it.name == name } }.any()
        }
        type is ParameterizedType && type.rawType == List::class.java -> {
            val of = type.actualTypeArguments.single().let { if (it is java.lang.reflect.WildcardType) it.upperBounds.single() else it }
            Shape.list(shapeOf(of, function)).any()
        }
        else -> throw refused("$function: a parameter has the type $type, which no JSON becomes")
    }
}
