package android.provider;

import android.net.Uri;

/** The id of a document is its path. */
public class DocumentsContract {
    public static class Document {
        public static final String COLUMN_DOCUMENT_ID = "document_id";
        public static final String COLUMN_DISPLAY_NAME = "_display_name";
        public static final String COLUMN_MIME_TYPE = "mime_type";
        public static final String MIME_TYPE_DIR = "vnd.android.document/directory";
    }

    public static String getTreeDocumentId(Uri tree) {
        return tree.file().getPath();
    }

    public static Uri buildChildDocumentsUriUsingTree(Uri tree, String parent) {
        return Uri.parse("content://" + parent);
    }

    public static Uri buildDocumentUriUsingTree(Uri tree, String id) {
        return Uri.parse("content://" + id);
    }
}
