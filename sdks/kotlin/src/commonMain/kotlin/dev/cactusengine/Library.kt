package dev.cactusengine

/** What is known of an event that was asked for: none where there is none yet, or none any more. */
internal class Next(val json: String?, val isOver: Boolean)

/** A document of an index. */
internal class StoredDocument(val text: String, val metadata: String?, val vector: FloatArray)

/** A recording: a file, or samples. */
internal class Recording(val file: String?, val samples: ShortArray?)

/** The C library in types that every Kotlin has. What fails throws [CactusException]. A handle is a number. */
internal interface Library {
    fun version(): String
    fun abiVersion(): Int
    fun checkBundle(path: String, verify: Boolean): String
    fun memoryPressure()
    fun setLog(level: Int, log: LogListener?)

    fun modelLoad(source: String, options: String?, progress: ProgressListener?): Long
    fun modelPrepare(source: String, options: String?, progress: ProgressListener?): String
    fun modelClose(model: Long)
    fun modelInfo(model: Long): String
    fun modelTokenize(model: Long, text: String, special: Boolean): IntArray
    fun modelDetokenize(model: Long, tokens: IntArray, special: Boolean): String
    fun modelScore(model: Long, tokens: IntArray, first: Int): String
    fun modelSetThreads(model: Long, threads: Int, decodeThreads: Int)
    fun modelSetPolicy(model: Long, policy: String?, options: String?)

    fun sessionOpen(model: Long, defaults: String?): Long
    fun sessionSend(session: Long, request: String): Long
    fun sessionMessages(session: Long): String
    fun sessionClose(session: Long)

    fun requestStart(model: Long, request: String): Long
    fun requestNext(request: Long, timeoutMs: Long): Next
    fun requestWait(request: Long): String
    fun requestCancel(request: Long)
    fun requestConsent(request: Long, yes: Boolean)
    fun requestClose(request: Long)

    fun embedderLoad(bundle: String): Long
    fun transcriberLoad(bundle: String): Long
    fun documentsOpen(bundle: String, folder: String): Long

    /** Closes what these three have loaded. */
    fun destroy(model: Long)
    fun stop(model: Long)
    fun ragQuery(model: Long, text: String, count: Int): String
    fun embed(model: Long, text: String, normalize: Boolean): FloatArray
    fun imageEmbed(model: Long, path: String): FloatArray
    fun transcriptionStart(model: Long, recording: Recording, options: String?): Long
    fun detectLanguage(model: Long, recording: Recording, options: String?): String
    fun speech(model: Long, recording: Recording, options: String?): String

    fun liveStart(model: Long, options: String?): Long
    fun livePush(live: Long, samples: ShortArray, from: Int, to: Int): String
    fun liveFinish(live: Long): String
    fun liveClose(live: Long)

    fun indexOpen(folder: String, dimension: Int): Long
    fun indexAdd(index: Long, dimension: Int, ids: IntArray, documents: Array<String>, metadatas: Array<String?>?, vectors: Array<FloatArray>)
    fun indexGet(index: Long, dimension: Int, ids: IntArray): List<StoredDocument>
    fun indexQuery(index: Long, dimension: Int, vectors: Array<FloatArray>, most: Int, options: String?): List<List<Pair<Int, Float>>>
    fun indexDelete(index: Long, ids: IntArray)
    fun indexCompact(index: Long)
    fun indexClose(index: Long)
}
