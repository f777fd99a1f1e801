#if canImport(Darwin)
import Foundation

/// Passes on to models what Apple's systems say: that memory is short, and that the device is hot.
///
/// ```swift
/// let lifecycle = Lifecycle(of: model)   // as long as it is kept
/// ```
///
/// When memory is short, open models forget what they keep of earlier prompts. When the device is hot, this model uses half of its threads,
/// and one when it is very hot. No answer changes.
///
/// In the background, iOS stops the CPU work of an application after some seconds. An answer under way stands still then, and goes on when
/// the application is back.
public final class Lifecycle: @unchecked Sendable {
    private let model: Model
    private let threads: (prompts: Int, decode: Int)
    private let memory: any DispatchSourceMemoryPressure
    private var heat: (any NSObjectProtocol)?

    public init(of model: Model) throws {
        self.model = model
        let info = try model.info()
        threads = (info.threads, info.decodeThreads)
        memory = DispatchSource.makeMemoryPressureSource(eventMask: [.warning, .critical], queue: .global())
        memory.setEventHandler { Library.memoryPressure() }
        memory.resume()
        heat = NotificationCenter.default.addObserver(
            forName: ProcessInfo.thermalStateDidChangeNotification, object: nil, queue: nil
        ) { [weak self] _ in
            self?.adapt()
        }
        adapt()
    }

    deinit {
        memory.cancel()
        if let heat { NotificationCenter.default.removeObserver(heat) }
    }

    private func adapt() {
        let share =
            switch ProcessInfo.processInfo.thermalState {
            case .critical: threads.prompts
            case .serious: 2
            default: 1
            }
        // A model that was closed meanwhile needs no threads.
        try? model.setThreads(max(1, threads.prompts / share), decode: max(1, threads.decode / share))
    }
}
#endif
