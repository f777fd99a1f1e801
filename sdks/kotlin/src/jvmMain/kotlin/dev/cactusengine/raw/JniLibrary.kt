package dev.cactusengine.raw

import dev.cactusengine.CactusCode
import dev.cactusengine.CactusException
import dev.cactusengine.Library
import dev.cactusengine.LogListener
import dev.cactusengine.Next
import dev.cactusengine.Progress
import dev.cactusengine.ProgressListener
import dev.cactusengine.Recording
import dev.cactusengine.StoredDocument
import dev.cactusengine.noZero
import dev.cactusengine.refused
import java.nio.Buffer
import java.nio.ByteBuffer
import java.nio.ByteOrder

/** Room for the result of a recording; more is taken where it does not fit. */
private const val ROOM_BYTES = 1 shl 20

/** Buffers of this size are kept for each thread: direct memory is given back late. */
private const val SCRATCH_BYTES = 1 shl 16
private const val MOST_ROOM_BYTES = 1 shl 28

/** Room is taken for what is counted. */
private const val MOST_COUNT = 1 shl 20

/** The C library by JNI. */
internal class JniLibrary private constructor() : Library {
    companion object {
        fun open(): JniLibrary {
            val path = LibraryLoader.load()
            Raw.open(path?.bytes(), Raw.ABI_VERSION)?.let { throw CactusException(CactusCode.NOT_IN_BUILD, "not_in_build", it.text()) }
            return JniLibrary()
        }
    }

    override fun version(): String = Raw.version()!!.text()

    override fun abiVersion(): Int = Raw.abiVersion()

    override fun checkBundle(path: String, verify: Boolean): String {
        // The report says what is wrong.
        val report = arrayOfNulls<ByteArray>(1)
        val code = Raw.checkBundle(path.bytes(), verify, report)
        return report[0]?.text() ?: throw failure(code)
    }

    override fun memoryPressure(): Unit = Raw.memoryPressure()

    override fun setLog(level: Int, log: LogListener?) {
        Raw.logSetLevel(level)
        Log.listener = log
        if (log != null) Log.begin()
    }

    override fun modelLoad(source: String, options: String?, progress: ProgressListener?): Long =
        made { Raw.modelLoad(source.bytes(), options?.bytes(), progress?.let(::heard), it) }

    override fun modelPrepare(source: String, options: String?, progress: ProgressListener?): String =
        given { Raw.modelPrepare(source.bytes(), options?.bytes(), progress?.let(::heard), it) }

    override fun modelClose(model: Long): Unit = check(Raw.modelClose(model))

    override fun modelInfo(model: Long): String = given { Raw.modelInfo(model, it) }

    override fun modelTokenize(model: Long, text: String, special: Boolean): IntArray {
        val tokens = arrayOfNulls<IntArray>(1)
        check(Raw.modelTokenize(model, text.bytes(), special, tokens))
        return tokens[0] ?: IntArray(0)
    }

    override fun modelDetokenize(model: Long, tokens: IntArray, special: Boolean): String =
        given { Raw.modelDetokenize(model, tokens, tokens.size.toLong(), special, it) }

    override fun modelScore(model: Long, tokens: IntArray, first: Int): String =
        given { Raw.modelScore(model, tokens, tokens.size.toLong(), first.toLong(), it) }

    override fun modelSetThreads(model: Long, threads: Int, decodeThreads: Int): Unit =
        check(Raw.modelSetThreads(model, count(threads, "threads"), count(decodeThreads, "decodeThreads")))

    override fun modelSetPolicy(model: Long, policy: String?, options: String?): Unit =
        check(Raw.modelSetPolicy(model, policy?.bytes(), options?.bytes()))

    override fun sessionOpen(model: Long, defaults: String?): Long = made { Raw.sessionOpen(model, defaults?.bytes(), it) }

    override fun sessionSend(session: Long, request: String): Long = made { Raw.sessionSend(session, request.bytes(), it) }

    override fun sessionMessages(session: Long): String = given { Raw.sessionMessages(session, it) }

    override fun sessionClose(session: Long): Unit = check(Raw.sessionClose(session))

    override fun requestStart(model: Long, request: String): Long = made { Raw.requestStart(model, request.bytes(), it) }

    override fun requestNext(request: Long, timeoutMs: Long): Next {
        val event = arrayOfNulls<ByteArray>(1)
        val over = BooleanArray(1)
        check(Raw.requestNext(request, timeoutMs, event, over))
        return Next(event[0]?.text(), over[0])
    }

    override fun requestWait(request: Long): String = given { Raw.requestWait(request, it) }

    override fun requestCancel(request: Long): Unit = check(Raw.requestCancel(request))

    override fun requestConsent(request: Long, yes: Boolean): Unit = check(Raw.requestConsent(request, yes))

    override fun requestClose(request: Long): Unit = check(Raw.requestClose(request))

    override fun embedderLoad(bundle: String): Long =
        opened(Raw.init(bundle.bytes(), null, false)).doing { Raw.embed(it, ByteArray(0), null, 0, null, false) }

    override fun transcriberLoad(bundle: String): Long {
        val room = direct(1 shl 12)
        return opened(Raw.init(bundle.bytes(), null, false)).doing {
            Raw.transcribe(it, null, null, room, room.capacity().toLong(), null, null, null, 0)
        }
    }

    override fun documentsOpen(bundle: String, folder: String): Long = opened(Raw.init(bundle.bytes(), folder.bytes(), false))

    /** One function loads models of all kinds. Asked for nothing, the right kind says that an argument is wrong. */
    private inline fun Long.doing(ask: (Long) -> Int): Long {
        val code = ask(this)
        val found = failure(code)
        if (code >= 0 || found.code == CactusCode.ARGUMENT) return this
        Raw.destroy(this)
        throw found
    }

    override fun destroy(model: Long): Unit = Raw.destroy(model)

    override fun stop(model: Long): Unit = Raw.stop(model)

    override fun ragQuery(model: Long, text: String, count: Int): String =
        written(SCRATCH_BYTES) { buffer, size -> Raw.ragQuery(model, text.bytes(), buffer, size, count(count, "count")) }

    override fun embed(model: Long, text: String, normalize: Boolean): FloatArray {
        val bytes = text.bytes()
        return vector { buffer, size, dimension -> Raw.embed(model, bytes, buffer, size, dimension, normalize) }
    }

    override fun imageEmbed(model: Long, path: String): FloatArray {
        val bytes = path.bytes()
        return vector { buffer, size, dimension -> Raw.imageEmbed(model, bytes, buffer, size, dimension) }
    }

    override fun transcriptionStart(model: Long, recording: Recording, options: String?): Long {
        val samples = recording.samples?.direct()
        return made { Raw.transcriptionStart(model, recording.file?.bytes(), samples, samples.size(), options?.bytes(), it) }
    }

    override fun detectLanguage(model: Long, recording: Recording, options: String?): String {
        val samples = recording.samples?.direct()
        return written { buffer, size ->
            Raw.detectLanguage(model, recording.file?.bytes(), buffer, size, options?.bytes(), samples, samples.size())
        }
    }

    override fun speech(model: Long, recording: Recording, options: String?): String {
        val samples = recording.samples?.direct()
        return written { buffer, size ->
            Raw.vad(model, recording.file?.bytes(), buffer, size, options?.bytes(), samples, samples.size())
        }
    }

    override fun liveStart(model: Long, options: String?): Long = opened(Raw.streamTranscribeStart(model, options?.bytes()))

    override fun livePush(live: Long, samples: ShortArray, from: Int, to: Int): String = livePush(live, samples.direct(from, to))

    /** Takes what is between position and limit of a direct buffer. */
    fun livePush(live: Long, samples: ByteBuffer): String {
        if (!samples.isDirect) throw refused("`samples`: a buffer that is not direct")
        val slice = samples.slice()
        // What did not fit is kept, and asked for again without sound.
        var isGiven = false
        return written(SCRATCH_BYTES) { buffer, size ->
            val sound = if (isGiven) null else slice
            isGiven = true
            Raw.streamTranscribeProcess(live, sound, sound.size(), buffer, size)
        }
    }

    override fun liveFinish(live: Long): String {
        // The handle is closed whatever comes of it, so nothing can be asked again with more room.
        val buffer = direct(MOST_ROOM_BYTES shr 6)
        return read(buffer, Raw.streamTranscribeStop(live, buffer, buffer.capacity().toLong()))
    }

    override fun liveClose(live: Long) {
        Raw.streamTranscribeStop(live, null, 0)
    }

    override fun indexOpen(folder: String, dimension: Int): Long =
        opened(Raw.indexInit(folder.bytes(), count(dimension, "dimension")))

    override fun indexAdd(
        index: Long, dimension: Int, ids: IntArray, documents: Array<String>, metadatas: Array<String?>?, vectors: Array<FloatArray>,
    ) {
        val texts = Array<ByteArray?>(documents.size) { documents[it].bytes() }
        val beside = metadatas?.let { all -> Array(all.size) { all[it]?.bytes() } }
        checkPublic(Raw.indexAdd(index, ids, texts, beside, vectors.direct(), ids.size.toLong(), dimension.toLong()))
    }

    override fun indexGet(index: Long, dimension: Int, ids: IntArray): List<StoredDocument> {
        // Without buffers it says how much room there has to be.
        val count = ids.size
        var sizes = Array(3) { LongArray(count) }
        var rooms = Array(2) { arrayOfNulls<ByteBuffer>(count) }
        val vectors = Array<ByteBuffer?>(count) { direct(dimension * Float.SIZE_BYTES) }
        for (attempt in 0..2) {
            for (at in 0..1) for (i in 0 until count) {
                rooms[at][i] = direct(maxOf(sizes[at][i], 1 shl 12).toInt())
                sizes[at][i] = rooms[at][i]!!.capacity().toLong()
            }
            sizes[2].fill(dimension.toLong())
            val code = Raw.indexGet(index, ids, count.toLong(), rooms[0], sizes[0], rooms[1], sizes[1], vectors, sizes[2])
            if (code == CactusCode.BUFFER_TOO_SMALL && attempt < 2) continue
            checkPublic(code)
            break
        }
        return List(count) { i ->
            val metadata = rooms[1][i]!!.cString()
            StoredDocument(rooms[0][i]!!.cString(), metadata.ifEmpty { null }, vectors[i]!!.floats(dimension))
        }
    }

    override fun indexQuery(
        index: Long, dimension: Int, vectors: Array<FloatArray>, most: Int, options: String?,
    ): List<List<Pair<Int, Float>>> {
        count(most, "top_k")
        val count = vectors.size
        val ids = Array<ByteBuffer?>(count) { direct(most * Int.SIZE_BYTES) }
        val scores = Array<ByteBuffer?>(count) { direct(most * Float.SIZE_BYTES) }
        val sizes = Array(2) { LongArray(count) { most.toLong() } }
        checkPublic(
            Raw.indexQuery(index, vectors.direct(), count.toLong(), dimension.toLong(), options?.bytes(), ids, sizes[0], scores, sizes[1]),
        )
        return List(count) { at ->
            val found = minOf(sizes[0][at].toInt(), most)
            List(found) { ids[at]!!.getInt(it * Int.SIZE_BYTES) to scores[at]!!.getFloat(it * Float.SIZE_BYTES) }
        }
    }

    override fun indexDelete(index: Long, ids: IntArray): Unit = checkPublic(Raw.indexDelete(index, ids, ids.size.toLong()))

    override fun indexCompact(index: Long): Unit = checkPublic(Raw.indexCompact(index))

    override fun indexClose(index: Long): Unit = Raw.indexDestroy(index)

    // ---- results ----

    /** The last error of this thread, which the call before has made. */
    private fun failure(code: Int): CactusException {
        val number = IntArray(1)
        val texts = arrayOfNulls<ByteArray>(2)
        Raw.lastError(number, texts)
        val known = if (number[0] != 0) number[0] else code
        return CactusException(known, texts[0]?.text() ?: "internal", texts[1]?.text().orEmpty())
    }

    private fun check(code: Int) {
        if (code != CactusCode.OK) throw failure(code)
    }

    /** Public functions give what they have counted, and less than 0 where they fail. */
    private fun checkPublic(code: Int) {
        if (code < 0) throw failure(code)
    }

    private inline fun made(call: (LongArray) -> Int): Long {
        val handle = LongArray(1)
        check(call(handle))
        return handle[0]
    }

    private fun opened(handle: Long): Long = if (handle != 0L) handle else throw failure(CactusCode.INTERNAL)

    private inline fun given(call: (Array<ByteArray?>) -> Int): String {
        val text = arrayOfNulls<ByteArray>(1)
        check(call(text))
        return text[0]?.text() ?: throw failure(CactusCode.INTERNAL)
    }

    /** A text that is written into a buffer, with more room where it does not fit. */
    private inline fun written(room: Int = ROOM_BYTES, call: (ByteBuffer, Long) -> Int): String {
        var bytes = room
        while (true) {
            val buffer = room(bytes)
            val code = call(buffer, bytes.toLong())
            if (code == CactusCode.BUFFER_TOO_SMALL && bytes < MOST_ROOM_BYTES) {
                bytes = bytes shl 4
                continue
            }
            return read(buffer, code)
        }
    }

    private fun read(buffer: ByteBuffer, code: Int): String {
        checkPublic(code)
        val text = ByteArray(code)
        buffer.get(text)
        return text.text()
    }

    private inline fun vector(call: (ByteBuffer, Long, LongArray) -> Int): FloatArray {
        val dimension = LongArray(1)
        var floats = SCRATCH_BYTES / Float.SIZE_BYTES
        while (true) {
            val buffer = room(floats * Float.SIZE_BYTES)
            val code = call(buffer, buffer.capacity().toLong(), dimension)
            if (code == CactusCode.BUFFER_TOO_SMALL && dimension[0] > floats) {
                floats = dimension[0].toInt()
                continue
            }
            checkPublic(code)
            return buffer.floats(code)
        }
    }

    private fun count(number: Int, name: String): Long =
        if (number in 0..MOST_COUNT) number.toLong() else throw refused("`$name`: expected 0 to $MOST_COUNT, found $number")
}

/** One callback for the life of the process: the library keeps what it is given. */
private object Log {
    @Volatile
    var listener: LogListener? = null

    private val callback = LogCallback { level, component, message -> listener?.on(level, component.text(), message.text()) }
    private val began by lazy { Raw.logSetCallback(callback) }

    fun begin() = began
}

private fun heard(listener: ProgressListener) = ProgressCallback { stage, what, done, total ->
    listener.on(Progress(stage.text(), what.text(), done, total))
    0
}

private fun String.bytes(): ByteArray = noZero().toByteArray(Charsets.UTF_8)

private fun ByteArray.text(): String = String(this, Charsets.UTF_8)

private val output = ThreadLocal<ByteBuffer>()
private val input = ThreadLocal<ByteBuffer>()

/** The buffer of this thread, if it has room for so much, else one of its own. */
private fun room(bytes: Int, kept: ThreadLocal<ByteBuffer> = output): ByteBuffer {
    if (bytes > SCRATCH_BYTES) return direct(bytes)
    val buffer = kept.get() ?: direct(SCRATCH_BYTES).also { kept.set(it) }
    // By its base class, whose methods old Javas have, too.
    val all: Buffer = buffer
    all.clear()
    all.limit(bytes)
    return buffer.slice().order(ByteOrder.nativeOrder())
}

private fun direct(bytes: Int): ByteBuffer = ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder())

private fun ByteBuffer?.size(): Long = this?.capacity()?.toLong() ?: 0

private fun ShortArray.direct(from: Int = 0, to: Int = size): ByteBuffer {
    val buffer = room((to - from) * Short.SIZE_BYTES, input).order(ByteOrder.LITTLE_ENDIAN)
    buffer.asShortBuffer().put(this, from, to - from)
    return buffer
}

private fun Array<FloatArray>.direct(): Array<ByteBuffer?> = Array(size) { at ->
    direct(this[at].size * Float.SIZE_BYTES).also { it.asFloatBuffer().put(this[at]) }
}

private fun ByteBuffer.floats(count: Int): FloatArray = FloatArray(count).also { asFloatBuffer().get(it) }

/** The text up to the zero byte. */
private fun ByteBuffer.cString(): String {
    var end = 0
    while (end < capacity() && get(end).toInt() != 0) end++
    val text = ByteArray(end)
    duplicate().get(text)
    return text.text()
}
