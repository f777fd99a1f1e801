import Foundation

#if os(iOS) || os(tvOS) || os(watchOS) || os(visionOS)
import os
#endif

/// Whether a model can be used on this device.
public struct Support: Sendable, Hashable {
    /// Why not.
    public enum Obstacle: Sendable, Hashable {
        /// The weights have more bytes than there is memory.
        case memory(needed: Int64, available: Int64)
        /// The model has to be downloaded, and does not fit.
        case disk(needed: Int64, available: Int64)
        /// The model needs what this CPU or this library cannot do.
        case processor(String)
        /// The bundle is damaged, or of a version that this library does not read; the message says which.
        case version(String)
        /// There is no such bundle.
        case missing(String)
    }

    public let obstacles: [Obstacle]
    /// What is known of the bundle.
    public let report: BundleReport?
    public var isUsable: Bool { obstacles.isEmpty }
}

extension Library {
    /// Whether the model in the folder of a bundle can be used on this device, and why not.
    public static func support(bundle path: String) async throws -> Support {
        let report = try await checkBundle(path)
        var obstacles: [Support.Obstacle] = []
        if let error = report.error {
            switch error.kind {
            case .notFound: obstacles.append(.missing(error.message))
            case .bundle where !FileManager.default.fileExists(atPath: path): obstacles.append(.missing(error.message))
            case .bundle: obstacles.append(.version(error.message))
            default: obstacles.append(.processor(error.message))
            }
        }
        if let needed = report.mappedBytes, needed > availableMemory {
            obstacles.append(.memory(needed: needed, available: availableMemory))
        }
        return Support(obstacles: obstacles, report: report)
    }

    /// Whether a model of so many bytes can be downloaded to a folder and used on this device.
    public static func support(downloading bytes: Int64, to folder: URL) -> Support {
        var obstacles: [Support.Obstacle] = []
        if let free = Storage.freeBytes(at: folder), free < bytes {
            obstacles.append(.disk(needed: bytes, available: free))
        }
        if bytes > availableMemory {
            obstacles.append(.memory(needed: bytes, available: availableMemory))
        }
        return Support(obstacles: obstacles, report: nil)
    }

    /// Bytes that this process may still take on iOS, and those of the machine elsewhere.
    static var availableMemory: Int64 {
        #if os(iOS) || os(tvOS) || os(watchOS) || os(visionOS)
        return Int64(clamping: os_proc_available_memory())
        #else
        return Int64(clamping: ProcessInfo.processInfo.physicalMemory)
        #endif
    }
}
