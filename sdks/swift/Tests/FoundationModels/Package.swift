// swift-tools-version:6.0
import PackageDescription

// Compiles and runs the conformance to Apple's framework with stand-ins. `test.sh` copies this folder to where it builds, and puts
// `Sources/CactusFoundationModels` beside its sources.
let package = Package(
    name: "FoundationModelsCheck",
    platforms: [.iOS(.v14), .macOS(.v11)],
    dependencies: [.package(path: Context.environment["CACTUS_SWIFT_PACKAGE"] ?? "../..")],
    targets: [
        .target(name: "FoundationModels", swiftSettings: [.unsafeFlags(["-user-module-version", "2.0"])]),
        .target(
            name: "CactusFoundationModels",
            dependencies: ["FoundationModels", .product(name: "Cactus", package: Context.environment["CACTUS_SWIFT_NAME"] ?? "swift")]
        ),
        .executableTarget(name: "Check", dependencies: ["CactusFoundationModels"]),
    ],
    swiftLanguageModes: [.v6]
)
