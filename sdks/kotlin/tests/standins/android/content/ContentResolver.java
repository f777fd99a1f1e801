package android.content;

import android.database.Cursor;
import android.database.FileCursor;
import android.net.Uri;
import android.os.ParcelFileDescriptor;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.InputStream;

/** Addresses are `content://` and a path. */
public class ContentResolver {
    public InputStream openInputStream(Uri uri) throws FileNotFoundException {
        return new FileInputStream(uri.file());
    }

    public ParcelFileDescriptor openFileDescriptor(Uri uri, String mode) throws FileNotFoundException {
        return new ParcelFileDescriptor(uri.file());
    }

    public Cursor query(Uri uri, String[] columns, String selection, String[] arguments, String order) {
        File[] files = uri.file().listFiles();
        return files == null ? null : new FileCursor(files);
    }
}
