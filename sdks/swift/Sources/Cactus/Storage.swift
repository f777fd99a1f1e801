import Foundation

/// Where models are kept.
public enum Storage {
    /// The folder for models of this application, which backups leave out: `Cactus` in Application Support, or in the folder for data of this
    /// user. It is made where it is missing.
    ///
    /// Keep names relative to it: on iOS its path changes with an update.
    public static var models: URL {
        get throws {
            let files = FileManager.default
            let support = try files.url(for: .applicationSupportDirectory, in: .userDomainMask, appropriateFor: nil, create: true)
            return try excluded(support.appendingPathComponent("Cactus", isDirectory: true))
        }
    }

    /// Makes a folder where it is missing, and takes it out of backups before anything is in it.
    public static func excluded(_ folder: URL) throws -> URL {
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        #if canImport(Darwin)
        var folder = folder
        var values = URLResourceValues()
        values.isExcludedFromBackup = true
        try folder.setResourceValues(values)
        #endif
        return folder
    }

    /// On Apple's systems; elsewhere the library has its own.
    static func defaultCache() throws -> String? {
        #if canImport(Darwin)
        return try models.path
        #else
        return nil
        #endif
    }

    /// Bytes that are free where a folder is, or its nearest folder that exists.
    static func freeBytes(at folder: URL) -> Int64? {
        var folder = folder
        while folder.path.count > 1, !FileManager.default.fileExists(atPath: folder.path) {
            folder.deleteLastPathComponent()
        }
        let attributes = try? FileManager.default.attributesOfFileSystem(forPath: folder.path)
        return (attributes?[.systemFreeSize] as? NSNumber)?.int64Value
    }
}
