import Flutter
import Foundation

/// What Dart cannot ask iOS by itself: how hot the device is, and that a folder stays out of backups.
public final class CactusFlutterPlugin: NSObject, FlutterPlugin, FlutterStreamHandler {
    private var sink: FlutterEventSink?

    public static func register(with registrar: FlutterPluginRegistrar) {
        let plugin = CactusFlutterPlugin()
        let methods = FlutterMethodChannel(name: "cactus_flutter", binaryMessenger: registrar.messenger())
        registrar.addMethodCallDelegate(plugin, channel: methods)
        FlutterEventChannel(name: "cactus_flutter/heat", binaryMessenger: registrar.messenger()).setStreamHandler(plugin)
    }

    public func handle(_ call: FlutterMethodCall, result: @escaping FlutterResult) {
        guard call.method == "keepOutOfBackups", let path = call.arguments as? String else {
            return result(FlutterMethodNotImplemented)
        }
        var url = URL(fileURLWithPath: path, isDirectory: true)
        var values = URLResourceValues()
        values.isExcludedFromBackup = true
        do {
            try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
            try url.setResourceValues(values)
            result(nil)
        } catch {
            result(FlutterError(code: "system", message: error.localizedDescription, details: path))
        }
    }

    public func onListen(withArguments arguments: Any?, eventSink events: @escaping FlutterEventSink) -> FlutterError? {
        sink = events
        NotificationCenter.default.addObserver(
            self, selector: #selector(tell), name: ProcessInfo.thermalStateDidChangeNotification, object: nil)
        tell()
        return nil
    }

    public func onCancel(withArguments arguments: Any?) -> FlutterError? {
        NotificationCenter.default.removeObserver(self)
        sink = nil
        return nil
    }

    @objc private func tell() {
        DispatchQueue.main.async { self.sink?(ProcessInfo.processInfo.thermalState.rawValue) }
    }
}
