package dev.cactusengine.android

import android.content.Context
import android.net.Uri
import android.provider.DocumentsContract
import dev.cactusengine.BundleReport
import dev.cactusengine.Cactus
import dev.cactusengine.CactusCode
import dev.cactusengine.CactusException
import dev.cactusengine.LoadOptions
import dev.cactusengine.Model
import dev.cactusengine.ProgressListener
import java.io.File
import java.io.IOException
import java.io.InputStream
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.ensureActive
import kotlinx.coroutines.sync.Mutex
import kotlinx.coroutines.sync.withLock
import kotlinx.coroutines.withContext

/**
 * Models from where a user keeps them. A `content://` address has no path, so what is chosen is copied into
 * [CactusAndroid.modelsFolder] under a name of yours, and found there the next time. A copy gets its name when it is whole. One import runs
 * at a time; others wait.
 */
public object ModelImport {
    /** The folder of a bundle that was imported as [name], or `null`. */
    @JvmStatic
    public fun find(context: Context, name: String): File? = place(context, name).takeIf { it.exists() }

    /** Copies the bundle in a folder that the user has chosen (`ACTION_OPEN_DOCUMENT_TREE`), and compares its checksums. */
    public suspend fun bundle(context: Context, tree: Uri, name: String): File = made(context, name) { folder ->
        copyTree(context, tree, DocumentsContract.getTreeDocumentId(tree), folder)
        checked(folder)
    }

    /** Copies a bundle out of the assets of the application. */
    public suspend fun asset(context: Context, folder: String, name: String): File = made(context, name) { into ->
        if (context.assets.list(folder).orEmpty().isEmpty()) throw IOException("$folder: there is no such folder in the assets")
        copyAssets(context, folder, into)
        checked(into)
    }

    /** Copies a file that the user has chosen, as a GGUF file. */
    public suspend fun file(context: Context, uri: Uri, name: String): File =
        made(context, name) { copy(opened(context, uri), it) }

    private fun place(context: Context, name: String): File {
        if (name.isEmpty() || name.startsWith(".") || name.any { it == '/' || it == '\u0000' }) {
            throw CactusException(CactusCode.ARGUMENT, "argument", "`name`: found `$name`, expected the name of a file")
        }
        return File(CactusAndroid.modelsFolder(context), name)
    }

    /** Two imports of one name would write one file, so one import after the other. */
    private val turn = Mutex()

    private suspend fun made(context: Context, name: String, make: suspend (File) -> Unit): File = turn.withLock {
        withContext(Dispatchers.IO) {
            val place = place(context, name)
            if (place.exists()) return@withContext place
            val part = File(place.parentFile, ".$name.part")
            part.deleteRecursively()
            try {
                make(part)
                if (!part.renameTo(place) && !place.exists()) throw IOException("$place cannot be written")
            } finally {
                part.deleteRecursively()
            }
            place
        }
    }

    private suspend fun checked(folder: File) {
        val report: BundleReport = Cactus.checkBundle(folder.path, verify = true)
        report.error?.let { throw it }
    }

    private fun opened(context: Context, uri: Uri): InputStream =
        context.contentResolver.openInputStream(uri) ?: throw IOException("$uri cannot be opened")

    private suspend fun copy(from: InputStream, to: File) = from.use { input ->
        to.outputStream().use { output ->
            val buffer = ByteArray(1 shl 18)
            while (true) {
                currentCoroutineContext().ensureActive()
                val count = input.read(buffer)
                if (count < 0) break
                output.write(buffer, 0, count)
            }
            output.fd.sync()
        }
    }

    private suspend fun copyAssets(context: Context, path: String, to: File) {
        val inside = context.assets.list(path).orEmpty()
        if (inside.isEmpty()) return copy(context.assets.open(path), to)
        to.mkdirs()
        for (name in inside) copyAssets(context, "$path/$name", File(to, name))
    }

    private suspend fun copyTree(context: Context, tree: Uri, folder: String, to: File) {
        to.mkdirs()
        for (child in children(context, tree, folder)) {
            val place = File(to, child.name)
            if (child.isFolder) copyTree(context, tree, child.id, place)
            else copy(opened(context, DocumentsContract.buildDocumentUriUsingTree(tree, child.id)), place)
        }
    }

    private class Child(val id: String, val name: String, val isFolder: Boolean)

    private fun children(context: Context, tree: Uri, folder: String): List<Child> {
        val found = ArrayList<Child>()
        val columns = arrayOf(
            DocumentsContract.Document.COLUMN_DOCUMENT_ID, DocumentsContract.Document.COLUMN_DISPLAY_NAME, DocumentsContract.Document.COLUMN_MIME_TYPE,
        )
        val listed = DocumentsContract.buildChildDocumentsUriUsingTree(tree, folder)
        context.contentResolver.query(listed, columns, null, null, null)?.use { cursor ->
            while (cursor.moveToNext()) {
                val (id, name, type) = List(3) { cursor.getString(it).orEmpty() }
                // A provider is another application: it does not choose where files go.
                if (name.isEmpty() || '/' in name || name == "." || name == "..") continue
                found += Child(id, name, type == DocumentsContract.Document.MIME_TYPE_DIR)
            }
        } ?: throw IOException("$tree cannot be read")
        return found
    }
}

/**
 * Loads a GGUF file behind a `content://` address by its descriptor, without a copy of it. Where the provider's file cannot be opened
 * again, which the system decides, import it with [ModelImport.file].
 */
public suspend fun Model.Companion.load(
    context: Context,
    gguf: Uri,
    options: LoadOptions? = null,
    onProgress: ProgressListener? = null,
): Model {
    var made: Model? = null
    try {
        return withContext(Dispatchers.IO) {
            val file = context.contentResolver.openFileDescriptor(gguf, "r") ?: throw IOException("$gguf cannot be opened")
            file.use { load("/proc/self/fd/${it.fd}", options, onProgress).also { model -> made = model } }
        }
    } catch (e: Throwable) {
        // A caller that is cancelled by now gets no model.
        made?.let { withContext(NonCancellable) { it.closeAndWait() } }
        throw e
    }
}
